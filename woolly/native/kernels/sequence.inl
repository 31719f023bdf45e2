// sequence.inl: what is done along a sequence, row after row. Lanes are columns, so the order of sums is that of positions.
//
//   running_sum   y = x + all rows of the sequence before it; the sum so far is carried from step to step
//   mean_pool     the mean of a span's rows: one row for each span

namespace {

constexpr int COLUMNS = 64;      // of a tile of running_sum

const char* check_running_sum(const Args& a) {
    if (const char* wrong = check_same(a)) return wrong;
    return a.in[1].base && a.in[1].layout == PLAIN && a.in[1].width == a.out.width ? nullptr : "what is carried has another width";
}

// A tile is COLUMNS columns of a sequence; every row has them, and the first row of each span does the work.
Tiles tiles_running_sum(const Args& a) noexcept { return {int64_t{a.rows} * ((a.out.width + COLUMNS - 1) / COLUMNS), 1}; }

void run_running_sum(const Args& a, int64_t first, int64_t last, uint8_t*) noexcept {
    const int64_t tiles = (a.out.width + COLUMNS - 1) / COLUMNS;
    for (int64_t number = first; number < last; number++) {
        const int64_t row = number / tiles;
        const Span& span = a.step->spans[a.step->span_of[row]];
        if (row != span.first) continue;
        float* carried = a.step->carried<float>(a.in[1], a.step->span_of[row]);
        const int from = static_cast<int>(number % tiles) * COLUMNS, to = from + COLUMNS < a.out.width ? from + COLUMNS : a.out.width;
        for (int i = from; i < to; i += 16) {
            f32x16 sum = span.position ? load(carried + i, to - i) : splat(0.0f);
            for (int64_t r = row; r < row + span.count; r++) {
                sum = add(sum, load(a.in[0].row<const float>(r) + i, to - i));
                store(a.out.row<float>(r) + i, sum, to - i);
            }
            store(carried + i, sum, to - i);
        }
    }
}

void run_mean_pool(const Args& a, int64_t first, int64_t last, uint8_t*) noexcept {
    for (int64_t s = first; s < last; s++) {
        const Span& span = a.step->spans[s];
        for (int i = 0; i < a.out.width; i += 16) {
            const int n = a.out.width - i;
            f32x16 sum = load(a.in[0].row<const float>(span.first) + i, n);
            for (int64_t r = span.first + 1; r < span.first + span.count; r++) sum = add(sum, load(a.in[0].row<const float>(r) + i, n));
            store(a.out.row<float>(s) + i, div(sum, splat(static_cast<float>(span.count))), n);
        }
    }
}

}  // namespace
