// experts.inl: which experts a row has, and products with their matrices, which lie one after the other, each in panels of
// its own. A row of `count` pieces has one for each of its experts, in the order of their ranks.
//
//   softmax         y = e^(x - m) / their sum, m the largest of a row: 16 lane sums (lane i mod 16), then the tree
//   top_experts     the experts with the largest scores, the largest first; ties go to the lower one
//   take_scores     their scores
//   normalize       a row over its sum, added from the first column to the last, but not below `least`
//   expert_linear   the products of a row, or of its pieces, with its experts' matrices; sums as in linear.inl. Without ids
//                   a row has a piece for each matrix
//   expert_gate_up, expert_gate_up_quantize     as gate_up and gate_up_quantize, for each expert of a row
//   expert_bias     a piece + its expert's vector      expert_scale    a piece * its expert's number
//   expert_inputs   a row * each of its weights        expert_sum      w0 * x0, then fma(w, x, y); or x0, then y + x
//
// A panel is read once for all rows that chose its expert, and not at all where none did.

namespace {

void run_softmax(const Args& a, int64_t first, int64_t last, uint8_t*) noexcept {
    const int n = a.out.width;
    for (int64_t r = first; r < last; r++) {
        const float* x = a.in[0].row<const float>(r);
        float* y = a.out.row<float>(r);
        const f32x16 least = splat(-__builtin_inff());
        f32x16 most = least, sum = splat(0.0f);
        for (int i = 0; i < n; i += 16) most = max(most, keep(load(x + i, n - i), n - i, least));
        const f32x16 m = splat(largest(most));
        for (int i = 0; i < n; i += 16) {
            const f32x16 p = exp(sub(load(x + i, n - i), m));
            store(y + i, p, n - i);
            sum = add(sum, keep(p, n - i, splat(0.0f)));
        }
        const f32x16 total = splat(sum16(sum));
        for (int i = 0; i < n; i += 16) store(y + i, div(load(y + i, n - i), total), n - i);
    }
}

void run_normalize(const Args& a, int64_t first, int64_t last, uint8_t*) noexcept {
    const float least = static_cast<float>(a.attr[0]);
    for (int64_t r = first; r < last; r++) {
        const float* x = a.in[0].row<const float>(r);
        float total = x[0];
        for (int i = 1; i < a.out.width; i++) total = total + x[i];
        total = least > total ? least : total;      // a NaN stays
        for (int i = 0; i < a.out.width; i++) a.out.row<float>(r)[i] = x[i] / total;
    }
}

LANE bool is_ids(const Operand& o) { return o.base && o.layout == IDS && o.width > 0; }

// The largest of the scores that are offered in ascending order of their places; of equal ones the first, a NaN after all.
struct Best {
    const float* score;
    int32_t* places;
    int most, count = 0;
    static LANE bool before(float x, float y) { return x > y || (x == x && y != y); }
    LANE void offer(int32_t place) {
        const float x = score[place];
        if (count == most && !before(x, score[places[most - 1]])) return;
        int at = count < most ? count++ : most - 1;
        for (; at > 0 && before(x, score[places[at - 1]]); at--) places[at] = places[at - 1];
        places[at] = place;
    }
};

LANE float sum_of_best(const float* score, int count) {
    float best = __builtin_nanf(""), second = best;
    for (int i = 0; i < count; i++) {
        if (Best::before(score[i], best)) second = best, best = score[i];
        else if (Best::before(score[i], second)) second = score[i];
    }
    return best + second;
}

const char* check_top_experts(const Args& a) {
    const double count = a.attr[0], groups = a.attr[1], used = a.attr[2];
    if (!is_rows(a.in[0]) || !is_ids(a.out)) return "needs rows of scores, and gives ids";
    if (!(groups >= 1 && groups <= a.in[0].width) || a.in[0].width % static_cast<int>(groups) || !(used >= 1 && used <= groups)) return "the experts are no such groups";
    return count == a.out.width && count <= used * (a.in[0].width / static_cast<int>(groups)) ? nullptr : "there are not so many experts";
}

// a score and a place for each group
size_t scratch_top_experts(const Args& a) { return static_cast<size_t>(a.attr[1]) * (sizeof(float) + sizeof(int32_t)); }

void run_top_experts(const Args& a, int64_t first, int64_t last, uint8_t* scratch) noexcept {
    const int groups = static_cast<int>(a.attr[1]), used = static_cast<int>(a.attr[2]), each = a.in[0].width / groups;
    float* sums = reinterpret_cast<float*>(scratch);
    int32_t* chosen = reinterpret_cast<int32_t*>(sums + groups);
    for (int64_t r = first; r < last; r++) {
        const float* score = a.in[0].row<const float>(r);
        Best experts{score, a.out.row<int32_t>(r), a.out.width};
        Best best{sums, chosen, used};
        for (int g = 0; g < groups && used < groups; g++) {
            sums[g] = sum_of_best(score + g * each, each);
            best.offer(g);
        }
        const auto is_used = [&](int g) {
            for (int i = 0; i < best.count; i++)
                if (chosen[i] == g) return true;
            return used == groups;
        };
        for (int g = 0; g < groups; g++)
            for (int e = g * each; e < (g + 1) * each && is_used(g); e++) experts.offer(e);
    }
}

// The expert of a rank. There are so many; another number cannot come from top_experts.
LANE int64_t expert_of(const Operand& ids, int64_t r, int64_t rank, int64_t experts) {
    const int32_t id = ids.row<const int32_t>(r)[rank];
    return id >= 0 && id < experts ? id : 0;
}

const char* check_take_scores(const Args& a) {
    return is_rows(a.in[0]) && is_ids(a.in[1]) && is_rows(a.out) && a.out.width == a.in[1].width ? nullptr : "needs scores and ids";
}
void run_take_scores(const Args& a, int64_t first, int64_t last, uint8_t*) noexcept {
    for (int64_t r = first; r < last; r++)
        for (int k = 0; k < a.out.width; k++) a.out.row<float>(r)[k] = a.in[0].row<const float>(r)[expert_of(a.in[1], r, k, a.in[0].width)];
}

// ------------------------------------------------------------------------------------------------ products

// What a product has to do: so many panels of each expert. With fewer choices than experts a unit is a choice, and the
// first of several rows that chose an expert stands for all; else a unit is an expert.
struct Choices {
    const Operand &x, &w, &ids, &out;
    int64_t rows, panels, experts, count;
    bool    alone;      // each choice is a unit
    Choices(const Args& a, int64_t panels_)
        : x(a.in[0]), w(a.in[1]), ids(a.in[2]), out(a.out), rows(a.rows), panels(panels_), experts(w.nbytes / (panels * w.stride)), count(rows * ids.width),
          alone(ids.base && count < experts) {}
    LANE int64_t units() const { return alone ? count : experts; }
    LANE int64_t expert(int64_t choice) const { return expert_of(ids, choice / ids.width, choice % ids.width, experts); }

    // Where the rows, or pieces, of a unit's expert begin, and where their results go; how many there are.
    int64_t gather(int64_t unit, const uint8_t** from, uint8_t** to) const {
        const int64_t wanted = alone ? expert(unit) : unit;
        for (int64_t c = 0; c < unit && alone; c++)
            if (expert(c) == wanted) return 0;
        const int64_t in = x.width == w.width ? 0 : row_bytes(x.layout, w.width), gives = row_bytes(out.layout, out.width / (ids.base ? ids.width : experts));
        int64_t found = 0;
        for (; !ids.base && found < rows; found++) {
            from[found] = x.row<const uint8_t>(found) + unit * in;
            to[found] = out.row<uint8_t>(found) + unit * gives;
        }
        for (int64_t r = 0; r < rows && ids.base; r++)
            for (int64_t k = 0; k < ids.width; k++)
                if (ids.row<const int32_t>(r)[k] == wanted) {
                    from[found] = x.row<const uint8_t>(r) + k * in;
                    to[found++] = out.row<uint8_t>(r) + k * gives;
                }
        return found;
    }
};

// Bytes of COUNT unpacked panels, then of the two lists of the largest step.
LANE int64_t most_pieces(const Args& a) {      // of one expert, in the largest step
    const Operand& ids = a.in[2];
    return ids.base ? ids.nbytes / ids.stride * ids.width : a.out.nbytes / a.out.stride;
}
template <int COUNT> size_t scratch_experts(const Args& a) { return scratch_unpacked<COUNT>(a) + static_cast<size_t>(most_pieces(a)) * 2 * sizeof(uint8_t*); }

// Tiles of COUNT panels each. With many rows a thread takes so few that all end together, and so many that the search for
// an expert's rows does not count.
constexpr int64_t SEARCH_PANELS = 32;
template <int COUNT> LANE Tiles tiles_of_experts(const Args& a, int64_t tiles) {
    const Choices choices(a, COUNT * tiles);
    const int64_t few = STREAM_BYTES / (COUNT * a.in[1].stride), many = SEARCH_PANELS / COUNT;
    return {choices.units() * tiles, choices.alone ? (few > 1 ? few : 1) : many > few ? many : few};
}

// Rows from which the panels of the next tile are fetched while those of this one are used, a share of them in each pass.
constexpr int64_t NEXT_ROWS = 16;
LANE void fetch_piece(const uint8_t* p, int64_t nbytes, int64_t r, int64_t count, int64_t rows) {
    for (int64_t at = r * nbytes / rows / 64 * 64; at < (r + count) * nbytes / rows; at += 64) __builtin_prefetch(p + at, 0, 2);
}

// The body gets each tile of every expert that was chosen: its number among those of the expert, and for each pass the first
// row, the pass, COUNT panels, the rows of activations and where their results go.
template <int COUNT, class Body>
LANE void by_experts(const Args& a, int64_t tiles, int64_t first, int64_t last, uint8_t* scratch, const Body& body) {
    const Choices choices(a, COUNT * tiles);
    const Passes& passes = passes_of(a.in[1], a.in[0]);
    const auto from = reinterpret_cast<const uint8_t**>(scratch + scratch_unpacked<COUNT>(a));
    uint8_t** to = const_cast<uint8_t**>(from) + most_pieces(a);
    for (int64_t number = first; number < last;) {
        const int64_t unit = number / tiles, end = (unit + 1) * tiles < last ? (unit + 1) * tiles : last;
        const int64_t rows = choices.gather(unit, from, to);
        const int64_t expert = choices.alone ? choices.expert(unit) : unit;
        const ActivationRows x = rows_of(from, a.in[1].width);
        for (; number < end && rows; number++) {
            const int64_t tile = number - unit * tiles;
            const uint8_t* next = a.in[1].base + COUNT * (expert * tiles + tile + 1) * a.in[1].stride;
            by_passes<COUNT>(passes, a.in[1], COUNT * (expert * tiles + tile), rows, scratch,
                             [&](int64_t r, const Pass& pass, const uint8_t* const* panels) INLINE {
                                 if (rows >= NEXT_ROWS) fetch_piece(next, COUNT * a.in[1].stride, r, pass.rows, rows);
                                 body(tile, pass, panels, x, r, to + r);
                             });
        }
        number = end;
    }
}

// Whether x has rows, or pieces, for the matrices of w, which have so many panels each.
LANE bool are_experts(const Args& a, int64_t panels) {
    const Operand &w = a.in[1], &ids = a.in[2];
    Operand piece = a.in[0];
    if (w.width < 1 || w.stride < 1 || (ids.base ? !is_ids(ids) || ids.stride < 1 : a.out.stride < 1)) return false;
    if (piece.width == (ids.base ? ids.width : w.nbytes / (panels * w.stride)) * int64_t{w.width}) piece.width = w.width;
    else if (!ids.base) return false;
    return is_weight(w, piece, panels) && w.nbytes % (panels * w.stride) == 0;
}

const char* check_expert_linear(const Args& a) {
    const Operand& w = a.in[1];
    if (!are_experts(a, panels_of(w.height))) return "weights and activations do not fit";
    const int64_t pieces = a.in[2].base ? a.in[2].width : w.nbytes / (panels_of(w.height) * w.stride);
    return is_rows(a.out) && a.out.width == pieces * w.height ? nullptr : "the result has another width";
}

Tiles tiles_expert_linear(const Args& a) noexcept { return tiles_of_experts<1>(a, panels_of(a.in[1].height)); }

void run_expert_linear(const Args& a, int64_t first, int64_t last, uint8_t* scratch) noexcept {
    const int64_t height = a.in[1].height;
    by_experts<1>(a, panels_of(height), first, last, scratch,
                  [&](int64_t p, const Pass& pass, const uint8_t* const* panels, const ActivationRows& x, int64_t r, uint8_t** to) INLINE {
                      f32x16 y[PASS_ROWS];
                      pass.product(panels[0], x, r, floats_of(y));
                      for (int t = 0; t < pass.rows; t++) store(reinterpret_cast<float*>(to[t]) + p * PANEL, y[t], static_cast<int>(height - p * PANEL));
                  });
}

const char* check_expert_pair(const Args& a) {
    const int64_t half = a.in[1].height / 2;
    if (!is_gate(a.attr[0])) return "there is no such activation";
    if (a.in[1].height % 2 || !are_experts(a, 2 * panels_of(half))) return "weights and activations do not fit";
    return a.out.width == a.in[2].width * half ? nullptr : "the result has another width than half of the weight's rows";
}
const char* check_expert_gate_up(const Args& a) {
    if (const char* wrong = check_expert_pair(a)) return wrong;
    return is_rows(a.out) ? nullptr : "the result is rows of floats";
}
const char* check_expert_gate_up_quantize(const Args& a) {
    if (const char* wrong = check_expert_pair(a)) return wrong;
    return is_record(a.out, static_cast<int>(a.attr[1])) && a.in[1].height % 64 == 0 ? nullptr : "the result is rows of integers, and so is each piece";
}

Tiles tiles_expert_gate_up(const Args& a) noexcept { return tiles_of_experts<2>(a, panels_of(a.in[1].height / 2)); }
Tiles tiles_expert_gate_up_quantize(const Args& a) noexcept { return tiles_of_experts<4>(a, a.in[1].height / 64); }

void run_expert_gate_up(const Args& a, int64_t first, int64_t last, uint8_t* scratch) noexcept {
    const int64_t half = a.in[1].height / 2;
    by_experts<2>(a, panels_of(half), first, last, scratch,
                  [&](int64_t p, const Pass& pass, const uint8_t* const* panels, const ActivationRows& x, int64_t r, uint8_t** to) INLINE {
                      f32x16 y[PASS_ROWS];
                      gated(static_cast<Gate>(a.attr[0]), pass, panels, x, r, y);
                      for (int t = 0; t < pass.rows; t++) store(reinterpret_cast<float*>(to[t]) + p * PANEL, y[t], static_cast<int>(half - p * PANEL));
                  });
}

void run_expert_gate_up_quantize(const Args& a, int64_t first, int64_t last, uint8_t* scratch) noexcept {
    const bool wide = a.out.layout == WIDE;
    by_experts<4>(a, a.in[1].height / 64, first, last, scratch,
                  [&](int64_t b, const Pass& pass, const uint8_t* const* panels, const ActivationRows& x, int64_t r, uint8_t** to) INLINE {
                      f32x16 low[PASS_ROWS], high[PASS_ROWS];
                      gated(static_cast<Gate>(a.attr[0]), pass, panels, x, r, low);
                      gated(static_cast<Gate>(a.attr[0]), pass, panels + 2, x, r, high);
                      for (int t = 0; t < pass.rows; t++) quantize_block(low[t], high[t], wide, to[t], b);
                  });
}

// ------------------------------------------------------------------------------------------------ pieces

// f of 16 values of each piece, and of the row, the rank and the column they come from; a piece is `width` columns of y.
template <class F> LANE void each_piece(const Args& a, int64_t first, int64_t last, int count, const F& f) {
    const int width = a.out.width / count;
    for (int64_t r = first; r < last; r++)
        for (int k = 0; k < count; k++) {
            float* y = a.out.row<float>(r) + int64_t{k} * width;
            for (int i = 0; i < width; i += 16) store(y + i, f(r, k, i, width), width - i);
        }
}

const char* check_expert_bias(const Args& a) {
    if (const char* wrong = check_same(a)) return wrong;
    if (!is_ids(a.in[2]) || a.out.width % a.in[2].width) return "the rows have no such pieces";
    return is_rows(a.in[1]) && a.in[1].width % (a.out.width / a.in[2].width) == 0 ? nullptr : "the vectors have another width";
}
void run_expert_bias(const Args& a, int64_t first, int64_t last, uint8_t*) noexcept {
    each_piece(a, first, last, a.in[2].width, [&](int64_t r, int k, int i, int width) INLINE {
        const float* b = a.in[1].row<const float>(0) + expert_of(a.in[2], r, k, a.in[1].width / width) * width;
        return add(load(a.in[0].row<const float>(r) + int64_t{k} * width + i, width - i), load(b + i, width - i));
    });
}

const char* check_expert_scale(const Args& a) {
    if (const char* wrong = check_same(a)) return wrong;
    return is_ids(a.in[2]) && a.out.width % a.in[2].width == 0 && is_rows(a.in[1]) ? nullptr : "the rows have no such pieces";
}
void run_expert_scale(const Args& a, int64_t first, int64_t last, uint8_t*) noexcept {
    each_piece(a, first, last, a.in[2].width, [&](int64_t r, int k, int i, int width) INLINE {
        const float s = a.in[1].row<const float>(0)[expert_of(a.in[2], r, k, a.in[1].width)];
        return mul(load(a.in[0].row<const float>(r) + int64_t{k} * width + i, width - i), splat(s));
    });
}

const char* check_expert_inputs(const Args& a) {
    return is_rows(a.out) && is_rows(a.in[0]) && is_rows(a.in[1]) && a.out.width == int64_t{a.in[0].width} * a.in[1].width ? nullptr : "the result has another width";
}
void run_expert_inputs(const Args& a, int64_t first, int64_t last, uint8_t*) noexcept {
    each_piece(a, first, last, a.in[1].width, [&](int64_t r, int k, int i, int width) INLINE {
        return mul(load(a.in[0].row<const float>(r) + i, width - i), splat(a.in[1].row<const float>(r)[k]));
    });
}

const char* check_expert_sum(const Args& a) {
    if (!is_rows(a.out) || !is_rows(a.in[0]) || a.attr[0] < 1 || a.in[0].width != a.attr[0] * a.out.width) return "the rows have no such pieces";
    return !a.in[1].base || (is_rows(a.in[1]) && a.in[1].width == a.attr[0]) ? nullptr : "there is another number of weights";
}
void run_expert_sum(const Args& a, int64_t first, int64_t last, uint8_t*) noexcept {
    const int count = static_cast<int>(a.attr[0]), n = a.out.width;
    for (int64_t r = first; r < last; r++) {
        const float* w = a.in[1].base ? a.in[1].row<const float>(r) : nullptr;
        for (int i = 0; i < n; i += 16) {
            const auto piece = [&](int k) INLINE { return load(a.in[0].row<const float>(r) + int64_t{k} * n + i, n - i); };
            f32x16 y = w ? mul(piece(0), splat(w[0])) : piece(0);
            for (int k = 1; k < count; k++) y = w ? fma(splat(w[k]), piece(k), y) : add(y, piece(k));
            store(a.out.row<float>(r) + i, y, n - i);
        }
    }
}

}  // namespace
