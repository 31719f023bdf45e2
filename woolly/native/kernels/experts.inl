// experts.inl: products with the matrices of experts, which lie one after the other, each in panels of its own.
//
//   top_experts     the experts with the largest scores, the largest first; ties go to the lower one
//   expert_linear   y[r] = the products of row r with its experts' matrices, one after the other; sums as in linear.inl
//
// A tile is one panel of one expert: it is read once for all rows that chose the expert, and not at all where none did.

namespace {

const char* check_top_experts(const Args& a) {
    if (!is_rows(a.in[0]) || !a.out.base || a.out.layout != IDS) return "needs rows of scores, and gives ids";
    return a.attr[0] == a.out.width && a.out.width <= a.in[0].width ? nullptr : "there are not so many experts";
}

void run_top_experts(const Args& a, int64_t first, int64_t last, uint8_t*) noexcept {
    for (int64_t r = first; r < last; r++) {
        const float* score = a.in[0].row<const float>(r);
        int32_t* ids = a.out.row<int32_t>(r);
        // descending scores, then ascending experts; a NaN comes after all numbers
        const auto before = [&](int e, int f) {
            const bool e_nan = score[e] != score[e], f_nan = score[f] != score[f];
            return e_nan != f_nan ? f_nan : !e_nan && score[e] != score[f] ? score[e] > score[f] : e < f;
        };
        for (int k = 0; k < a.out.width; k++) {
            int best = -1;
            for (int e = 0; e < a.in[0].width; e++)
                if ((k == 0 || before(ids[k - 1], e)) && (best < 0 || before(e, best))) best = e;
            ids[k] = best;
        }
    }
}

LANE int64_t experts_of(const Operand& w) { return w.nbytes / (panels_of(w.height) * w.stride); }

const char* check_expert_linear(const Args& a) {
    const Operand &w = a.in[1], &ids = a.in[2];
    if (!is_weight(w, a.in[0], panels_of(w.height)) || a.in[0].layout == WIDE) return "weights and activations do not fit";
    if (!ids.base || ids.layout != IDS || !is_rows(a.out) || a.out.width != int64_t{ids.width} * w.height) return "the result has another width";
    return nullptr;
}

Tiles tiles_expert_linear(const Args& a) noexcept { return {experts_of(a.in[1]) * panels_of(a.in[1].height), 1}; }

void run_expert_linear(const Args& a, int64_t first, int64_t last, uint8_t*) noexcept {
    const Operand &w = a.in[1], &ids = a.in[2];
    const Pass& alone = passes_of(w, a.in[0]).all[4];      // one row at a time: those of an expert stand anywhere
    const int64_t panels = panels_of(w.height);
    for (int64_t number = first; number < last; number++) {
        const int64_t expert = number / panels, at = number % panels * PANEL;
        for (int64_t r = 0; r < a.rows; r++)
            for (int k = 0; k < ids.width; k++) {
                if (ids.row<const int32_t>(r)[k] != expert) continue;
                f32x16 y[PASS_ROWS];
                alone.product(w.base + number * w.stride, a.in[0], r, y);
                store(a.out.row<float>(r) + int64_t{k} * w.height + at, y[0], static_cast<int>(w.height - at));
            }
    }
}

}  // namespace
