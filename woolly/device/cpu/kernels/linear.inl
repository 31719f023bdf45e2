// linear.inl: products with packed weights. One tile is one panel (16 output rows), for all rows of the step.
//
//   linear            y[r] = sum_k w[r, k] x[k]; then + bias, then * scale, then residual + y: each rounded
//   adapted_linear    the same with a delta (delta.inl), which is added to the sum first; so for gate_up, to both its sums
//   gate_up           act(gate . x) * (up . x), gate and up panels alternating
//   gate_up_quantize  the same, quantised where it is made: two pairs of panels give a block of 32
//   embed             rows of a weight read back from its panels; embed_positions: those of the positions
//

namespace {

constexpr int64_t STREAM_BYTES = 256 * 1024;   // bytes of weights a thread takes at a time when few rows share them

LANE ActivationRows rows_of(const Operand& x) { return {x.base, x.stride, x.width, nullptr}; }
LANE ActivationRows rows_of(const uint8_t* const* rows, int64_t columns) { return {nullptr, 0, columns, rows}; }
LANE float* floats_of(f32x16* y) { return reinterpret_cast<float*>(y); }

const WeightKernels& kernels_of(int32_t layout) {
    const WeightKernels& weight = OF_SET(weights_a_).of[layout];
    return weight.pack ? weight : OF_SET(weights_b_).of[layout];
}

PackPanel packing_of(int32_t layout) { return kernels_of(layout).pack; }

const Passes& passes_of(const Operand& w, const Operand& x) {
    const WeightKernels& weight = kernels_of(w.layout);
    return x.layout == WIDE ? *weight.wide : *weight.passes;
}

// Walks all rows of the step: the body gets the first row of each pass, the pass, and COUNT panels from `panel` on. Many
// rows pay for unpacking the panels first.
template <int COUNT, class Body>
LANE void by_passes(const Passes& passes, const Operand& w, int64_t panel, int64_t rows, uint8_t* scratch, const Body& body) {
    const uint8_t *packed[COUNT], *unpacked[COUNT];
    for (int i = 0; i < COUNT; i++) packed[i] = w.base + (panel + i) * w.stride;
    const Pass* pass = passes.all + passes.unpacked;
    if (passes.unpack && rows >= passes.unpack_rows) {
        pass = passes.all;
        for (int i = 0; i < COUNT; i++, scratch += w.width / 32 * passes.unpacked_bytes) {
            passes.unpack(packed[i], w.width, scratch);
            unpacked[i] = scratch;
        }
    }
    for (int64_t r = 0; r < rows; r += pass->rows) {
        while (pass->rows > rows - r) pass++;
        body(r, *pass, pass < passes.all + passes.unpacked ? unpacked : packed);
    }
}

// Bytes that by_passes needs for COUNT unpacked panels.
template <int COUNT> size_t scratch_unpacked(const Args& a) {
    if (!quantised(a.in[1].layout)) return 0;
    return static_cast<size_t>(COUNT * (a.in[1].width / 32)) * static_cast<size_t>(passes_of(a.in[1], a.in[0]).unpacked_bytes);
}

LANE bool is_weight(const Operand& w, const Operand& x, int64_t panels) {
    if (!w.base || !x.base || w.width < 1 || w.width != x.width || w.height < 1) return false;
    if (quantised(w.layout) ? x.layout != RECORD && x.layout != WIDE : x.layout != PLAIN) return false;
    return w.stride == panel_bytes(w.layout, w.width) && w.nbytes >= panels * w.stride;
}

LANE int64_t panels_of(int64_t rows) { return (rows + PANEL - 1) / PANEL; }

// Few rows: long streams of weights. Many rows: small pieces, so that the threads end together.
LANE Tiles tiles_of_weights(int64_t count, int64_t nbytes, int64_t rows) {
    const int64_t few = nbytes > 0 ? STREAM_BYTES / nbytes : 1;
    return {count, rows > PASS_ROWS ? 2 : few > 1 ? few : 1};
}

// What adapters add to a product, if anything.
LANE bool is_delta(const Operand& delta, int64_t width) { return !delta.base || is_vector(delta, width); }
LANE f32x16 with_delta(f32x16 y, const Operand& delta, int64_t r, int64_t at, int64_t end) {
    return delta.base ? add(y, load(delta.row<const float>(r) + at, static_cast<int>(end - at))) : y;
}

const char* check_linear(const Args& a) {
    if (!is_rows(a.out) || !is_weight(a.in[1], a.in[0], panels_of(a.in[1].height))) return "weights and activations do not fit";
    if (a.out.width != a.in[1].height) return "the result has another width than the weight has rows";
    if (a.in[2].base && !is_vector(a.in[2], a.out.width)) return "the bias has another width";
    if (a.in[3].base && !(is_rows(a.in[3]) && a.in[3].width == a.out.width)) return "the residual has another width";
    return is_delta(a.in[4], a.out.width) ? nullptr : "the delta has another width";
}

Tiles tiles_linear(const Args& a) noexcept { return tiles_of_weights(panels_of(a.in[1].height), a.in[1].stride, a.rows); }

void run_linear(const Args& a, int64_t first, int64_t last, uint8_t* scratch) noexcept {
    const Passes& passes = passes_of(a.in[1], a.in[0]);
    const float scale = static_cast<float>(a.attr[0]);
    const float* bias = a.in[2].base ? a.in[2].row<const float>(0) : nullptr;
    const ActivationRows x = rows_of(a.in[0]);
    for (int64_t p = first; p < last; p++) {
        const int64_t at = p * PANEL;
        const int width = static_cast<int>(a.out.width - at);
        by_passes<1>(passes, a.in[1], p, a.rows, scratch, [&](int64_t r, const Pass& pass, const uint8_t* const* panels) INLINE {
            f32x16 y[PASS_ROWS];
            pass.product(panels[0], x, r, floats_of(y));
            for (int t = 0; t < pass.rows; t++) {
                f32x16 v = with_delta(y[t], a.in[4], r + t, at, a.out.width);
                if (bias) v = add(v, load(bias + at, width));
                if (scale != 1.0f) v = mul(v, splat(scale));
                if (a.in[3].base) v = add(load(a.in[3].row<const float>(r + t) + at, width), v);
                store(a.out.row<float>(r + t) + at, v, width);
            }
        });
    }
}

LANE bool is_gate(double act) { return act >= 0 && act < int{GATES}; }

// 16 values of act(gate) * up for each row of a pass, from column `at` on: gate is the first of two panels, up the second.
LANE void gated(Gate act, const Pass& pass, const uint8_t* const* panels, const ActivationRows& x, int64_t r, f32x16 (&y)[PASS_ROWS],
                const Operand& delta = {}, int64_t at = 0) {
    f32x16 up[PASS_ROWS];
    pass.product(panels[0], x, r, floats_of(y));
    pass.product(panels[1], x, r, floats_of(up));
    const int64_t half = delta.width / 2;
    for (int t = 0; t < pass.rows; t++)
        y[t] = mul(activated(act, with_delta(y[t], delta, r + t, at, half)), with_delta(up[t], delta, r + t, half + at, 2 * half));
}

const char* check_gate_up(const Args& a) {
    const int64_t half = a.in[1].height / 2;
    if (!is_weight(a.in[1], a.in[0], 2 * panels_of(half)) || a.in[1].height % 2) return "weights and activations do not fit";
    if (!is_gate(a.attr[0])) return "there is no such activation";
    if (!is_delta(a.in[2], a.in[1].height)) return "the delta has another width";
    return is_rows(a.out) && a.out.width == half ? nullptr : "the result has another width than half of the weight's rows";
}

Tiles tiles_gate_up(const Args& a) noexcept { return tiles_of_weights(panels_of(a.out.width), 2 * a.in[1].stride, a.rows); }

void run_gate_up(const Args& a, int64_t first, int64_t last, uint8_t* scratch) noexcept {
    const Passes& passes = passes_of(a.in[1], a.in[0]);
    const ActivationRows x = rows_of(a.in[0]);
    for (int64_t p = first; p < last; p++)
        by_passes<2>(passes, a.in[1], 2 * p, a.rows, scratch, [&](int64_t r, const Pass& pass, const uint8_t* const* panels) INLINE {
            f32x16 y[PASS_ROWS];
            gated(static_cast<Gate>(a.attr[0]), pass, panels, x, r, y, a.in[2], p * PANEL);
            for (int t = 0; t < pass.rows; t++) store(a.out.row<float>(r + t) + p * PANEL, y[t], static_cast<int>(a.out.width - p * PANEL));
        });
}

const char* check_gate_up_quantize(const Args& a) {
    const int64_t half = a.in[1].height / 2;
    if (!is_weight(a.in[1], a.in[0], 2 * panels_of(half)) || a.in[1].height % 2) return "weights and activations do not fit";
    if (!is_gate(a.attr[0])) return "there is no such activation";
    if (!is_delta(a.in[2], a.in[1].height)) return "the delta has another width";
    return is_record(a.out, static_cast<int>(a.attr[1])) && a.out.width == half ? nullptr : "the result has another width than half of the weight's rows";
}

Tiles tiles_gate_up_quantize(const Args& a) noexcept { return tiles_of_weights(a.out.width / 32, 4 * a.in[1].stride, a.rows); }

void run_gate_up_quantize(const Args& a, int64_t first, int64_t last, uint8_t* scratch) noexcept {
    const Passes& passes = passes_of(a.in[1], a.in[0]);
    const ActivationRows x = rows_of(a.in[0]);
    const bool wide = a.out.layout == WIDE;
    for (int64_t b = first; b < last; b++)
        by_passes<4>(passes, a.in[1], 4 * b, a.rows, scratch, [&](int64_t r, const Pass& pass, const uint8_t* const* panels) INLINE {
            f32x16 low[PASS_ROWS], high[PASS_ROWS];
            gated(static_cast<Gate>(a.attr[0]), pass, panels, x, r, low, a.in[2], 32 * b);
            gated(static_cast<Gate>(a.attr[0]), pass, panels + 2, x, r, high, a.in[2], 32 * b + PANEL);
            for (int t = 0; t < pass.rows; t++) quantize_block(low[t], high[t], wide, a.out.row<uint8_t>(r + t), b);
        });
}

const char* check_embed(const Args& a) {
    const Operand& w = a.in[1];
    if (!is_rows(a.out) || !w.base || w.width != a.out.width || w.height < 1) return "the result has another width than the weight";
    if (w.stride != panel_bytes(w.layout, w.width)) return "needs packed weights whose panels have their layout's size";
    return w.nbytes >= panels_of(w.height) * w.stride ? nullptr : "the weight is cut short";
}

// Row number[r] of a weight for each row r.
LANE void read_rows(const Args& a, const int32_t* number, int64_t first, int64_t last) {
    const auto read = kernels_of(a.in[1].layout).read_row;
    for (int64_t r = first; r < last; r++) read(a.in[1].base + number[r] / PANEL * a.in[1].stride, a.in[1].width, number[r] % PANEL, a.out.row<float>(r));
}
void run_embed(const Args& a, int64_t first, int64_t last, uint8_t*) noexcept { read_rows(a, a.step->tokens, first, last); }
void run_embed_positions(const Args& a, int64_t first, int64_t last, uint8_t*) noexcept { read_rows(a, a.step->position, first, last); }

}  // namespace
