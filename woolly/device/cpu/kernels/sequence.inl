// sequence.inl: what is done along a sequence, row after row. Lanes are columns, so the order of sums is that of positions.
//
//   conv            each column over the last rows; those before the step are carried
//   scan            a matrix for each head: s = s * decay; e = seen . s; s += k v - (seen * rate) e; y = q . s
//   selective_scan  a vector of states for each column: s = s * exp(dt * a) + (dt * x) b; y = c . s
//   mean_pool       the mean of a span's rows: one row for each span
//   first_row       the first row of each span
//
// A tile is some columns of a sequence, whose rows it walks from the first to the last: tiles do not depend on each other,
// and what is carried stays near.

namespace {

constexpr int COLUMNS = 64;      // of a tile
constexpr int MAX_TAPS = 64;

LANE int chunks_of(int width) { return (width + COLUMNS - 1) / COLUMNS; }
LANE bool is_carried(const Operand& o, int64_t n) { return o.base && o.layout == PLAIN && o.width == n; }

// The body gets each tile's span, what it carries, and its number among those of the span.
template <class Body> LANE void by_spans(const Args& a, const Operand& state, int64_t tiles, int64_t first, int64_t last, const Body& body) {
    for (int64_t number = first; number < last; number++) {
        const int32_t index = static_cast<int32_t>(number / tiles);
        body(a.step->spans[index], a.step->carried<float>(state, index), static_cast<int>(number % tiles));
    }
}

const char* check_conv(const Args& a) {
    if (const char* wrong = check_same(a)) return wrong;
    const int64_t n = a.out.width, taps = a.in[1].width / n;
    if (taps < 2 || taps > MAX_TAPS || !is_vector(a.in[1], taps * n)) return "there are no taps for each column";
    if (a.in[2].base && !is_vector(a.in[2], n)) return "the bias has another width";
    return is_carried(a.in[3], (taps - 1) * n) ? nullptr : "what is carried has another width";
}

Tiles tiles_conv(const Args& a) noexcept { return {int64_t{a.step->span_count(a.rows)} * chunks_of(a.out.width), 1}; }

void run_conv(const Args& a, int64_t first, int64_t last, uint8_t*) noexcept {
    const int width = a.out.width, taps = a.in[1].width / width;
    by_spans(a, a.in[3], chunks_of(width), first, last, [&](const Span& span, float* carried, int chunk) {
        const int end = lower_of((chunk + 1) * COLUMNS, width);
        for (int i = chunk * COLUMNS; i < end; i += 16) {
            const int n = end - i;
            float tap[MAX_TAPS][16], tail[MAX_TAPS - 1][16];
            for (int c = 0; c < 16; c++)
                for (int t = 0; t < taps; t++) tap[t][c] = c < n ? a.in[1].row<const float>(0)[int64_t{i + c} * taps + t] : 0.0f;
            for (int t = 0; t < taps - 1; t++) store(tail[t], span.position ? load(carried + int64_t{t} * width + i, n) : splat(0.0f));
            // row t of the carried ones and the span's, one after the other
            const auto row = [&](int t) INLINE { return t < taps - 1 ? load(tail[t]) : load(a.in[0].row<const float>(span.first + t - (taps - 1)) + i, n); };
            for (int r = 0; r < span.count; r++) {
                f32x16 y = mul(row(r), load(tap[0]));
                for (int t = 1; t < taps; t++) y = fma(row(r + t), load(tap[t]), y);
                if (a.in[2].base) y = add(y, load(a.in[2].row<const float>(0) + i, n));
                store(a.out.row<float>(span.first + r) + i, y, n);
            }
            for (int t = 0; t < taps - 1; t++) store(carried + int64_t{t} * width + i, row(span.count + t), n);
        }
    });
}

// Sizes of a scan: heads of `keys` rows and `values` columns, and how many numbers of decay and rate each has.
struct ScanSizes {
    int heads, keys, values, groups, decays, rates;
    bool tiled;
    explicit ScanSizes(const Args& a) {
        const int64_t state = a.in[6].width;      // heads * keys * values, and v is heads * values
        keys = static_cast<int>(state / a.in[2].width);
        groups = keys ? a.in[1].width / keys : 0;
        heads = a.in[6].height;
        values = heads ? a.in[2].width / heads : 0;
        decays = heads ? a.in[3].width / heads : 0;
        rates = heads ? a.in[5].width / heads : 0;
        tiled = a.attr[0] != 0.0;
    }
    LANE int group(int head) const { return tiled ? head % groups : head / (heads / groups); }
};

const char* check_scan(const Args& a) {
    if (!is_rows(a.out) || !is_rows(a.in[2]) || a.in[2].width != a.out.width) return "needs rows of one width";
    const ScanSizes s(a);
    if (s.heads < 1 || s.keys < 1 || s.values < 1 || a.in[2].width != int64_t{s.heads} * s.values || !is_carried(a.in[6], int64_t{s.heads} * s.keys * s.values))
        return "what is carried is no matrix for each head";
    if (!is_rows(a.in[1]) || s.groups < 1 || a.in[1].width != int64_t{s.groups} * s.keys || s.heads % s.groups) return "there are no keys for each head";
    if (!is_rows(a.in[0]) || a.in[0].width != a.in[1].width) return "queries have another width than keys";
    const auto fits = [&](const Operand& o, int each) { return is_rows(o) && (each == 1 || each == s.keys) && o.width == int64_t{s.heads} * each; };
    if (!fits(a.in[3], s.decays)) return "the decay has another width";
    if (!a.in[4].base != !a.in[5].base) return "what is seen is taken away at some rate";
    if (a.in[4].base && (!is_rows(a.in[4]) || a.in[4].width != a.in[1].width || !fits(a.in[5], s.rates))) return "what is seen, or its rate, has another width";
    return nullptr;
}

Tiles tiles_scan(const Args& a) noexcept {
    const ScanSizes s(a);
    return {int64_t{a.step->span_count(a.rows)} * s.heads * chunks_of(s.values), 1};
}

// One position of W times 16 columns of a head, of which the last has n.
template <int W> struct ScanColumns {
    const ScanSizes& size;
    float* state;
    int n;
    LANE f32x16 get(const float* p, int w) const { return W > 1 ? load(p + 16 * w) : load(p, n); }
    LANE void put(float* p, int w, f32x16 x) const { W > 1 ? store(p + 16 * w, x) : store(p, x, n); }

    LANE void step(const float* q, const float* k, const float* v, const float* decay, const float* seen, const float* rate, float* out) const {
        f32x16 value[W], known[W], y[W];
        unroll<W>([&](auto w) INLINE {
            value[w.value] = get(v, w.value);
            known[w.value] = y[w.value] = splat(0.0f);
        });
        for (int key = 0; key < size.keys && seen; key++) {
            float* s = state + int64_t{key} * size.values;
            const f32x16 fade = splat(decay[size.decays > 1 ? key : 0]), look = splat(seen[key]);
            unroll<W>([&](auto w) INLINE {
                const f32x16 x = mul(get(s, w.value), fade);
                put(s, w.value, x);
                known[w.value] = fma(look, x, known[w.value]);
            });
        }
        for (int key = 0; key < size.keys; key++) {
            float* s = state + int64_t{key} * size.values;
            const f32x16 fade = splat(decay[size.decays > 1 ? key : 0]), write = splat(k[key]), read = splat(q[key]);
            const f32x16 remove = splat(seen ? -(seen[key] * rate[size.rates > 1 ? key : 0]) : 0.0f);
            unroll<W>([&](auto w) INLINE {
                f32x16 x = get(s, w.value);
                if (!seen) x = mul(x, fade);
                x = fma(write, value[w.value], x);
                if (seen) x = fma(remove, known[w.value], x);
                put(s, w.value, x);
                y[w.value] = fma(read, x, y[w.value]);
            });
        }
        unroll<W>([&](auto w) INLINE { put(out, w.value, y[w.value]); });
    }

    LANE void walk(const Args& a, const Span& span, int head, int column) const {
        for (int key = 0; key < size.keys && !span.position; key++)
            unroll<W>([&](auto w) INLINE { put(state + int64_t{key} * size.values, w.value, splat(0.0f)); });
        const int64_t group = int64_t{size.group(head)} * size.keys, at = int64_t{head} * size.values + column;
        for (int64_t r = span.first; r < span.first + span.count; r++) {
            const auto of = [&](int i, int64_t from) INLINE { return a.in[i].base ? a.in[i].row<const float>(r) + from : nullptr; };
            step(of(0, group), of(1, group), of(2, at), of(3, int64_t{head} * size.decays), of(4, group), of(5, int64_t{head} * size.rates), a.out.row<float>(r) + at);
        }
    }
};

void run_scan(const Args& a, int64_t first, int64_t last, uint8_t*) noexcept {
    const ScanSizes size(a);
    const int chunks = chunks_of(size.values);
    by_spans(a, a.in[6], int64_t{size.heads} * chunks, first, last, [&](const Span& span, float* carried, int tile) {
        const int head = tile / chunks, end = lower_of((tile % chunks + 1) * COLUMNS, size.values);
        float* matrix = carried + int64_t{head} * size.keys * size.values;
        int i = tile % chunks * COLUMNS;
        for (; i + COLUMNS <= end; i += COLUMNS) ScanColumns<COLUMNS / 16>{size, matrix + i, 16}.walk(a, span, head, i);
        for (; i < end; i += 16) ScanColumns<1>{size, matrix + i, end - i}.walk(a, span, head, i);
    });
}

const char* check_selective_scan(const Args& a) {
    if (const char* wrong = check_two(a)) return wrong;
    const int64_t n = a.out.width, states = a.in[2].width;
    if (!is_rows(a.in[2]) || !is_rows(a.in[3]) || a.in[3].width != states) return "inputs and outputs of the states differ in width";
    if (!is_vector(a.in[4], n * states)) return "there is no rate for each state";
    return is_carried(a.in[5], n * states) ? nullptr : "what is carried has another width";
}

Tiles tiles_selective_scan(const Args& a) noexcept { return tiles_conv(a); }

// the rates of 16 columns
size_t scratch_selective_scan(const Args& a) { return static_cast<size_t>(a.in[2].width) * 16 * sizeof(float); }

void run_selective_scan(const Args& a, int64_t first, int64_t last, uint8_t* scratch) noexcept {
    const int width = a.out.width, states = a.in[2].width;
    float* rates = reinterpret_cast<float*>(scratch);
    by_spans(a, a.in[5], chunks_of(width), first, last, [&](const Span& span, float* carried, int chunk) {
        const int end = lower_of((chunk + 1) * COLUMNS, width);
        for (int i = chunk * COLUMNS; i < end; i += 16) {
            const int n = end - i;
            for (int s = 0; s < states; s++)
                for (int c = 0; c < 16; c++) rates[s * 16 + c] = c < n ? a.in[4].row<const float>(0)[int64_t{i + c} * states + s] : 0.0f;
            for (int s = 0; s < states && !span.position; s++) store(carried + int64_t{s} * width + i, splat(0.0f), n);
            for (int64_t r = span.first; r < span.first + span.count; r++) {
                const f32x16 dt = load(a.in[1].row<const float>(r) + i, n), x = mul(dt, load(a.in[0].row<const float>(r) + i, n));
                const float *b = a.in[2].row<const float>(r), *c = a.in[3].row<const float>(r);
                f32x16 y = splat(0.0f);
                for (int s = 0; s < states; s++) {
                    float* at = carried + int64_t{s} * width + i;
                    const f32x16 state = fma(x, splat(b[s]), mul(load(at, n), exp(mul(dt, load(rates + s * 16)))));
                    store(at, state, n);
                    y = fma(splat(c[s]), state, y);
                }
                store(a.out.row<float>(r) + i, y, n);
            }
        }
    });
}

void run_first_row(const Args& a, int64_t first, int64_t last, uint8_t*) noexcept {
    for (int64_t s = first; s < last; s++)
        memcpy(a.out.row<float>(s), a.in[0].row<const float>(a.step->spans[s].first), static_cast<size_t>(a.out.width) * 4);
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
