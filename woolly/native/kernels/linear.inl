// linear.inl: products with packed weights. One tile is one panel (16 output rows), for all rows of the step.
//
//   linear            y[r] = sum_k w[r, k] x[k]; then + bias, then * scale, then residual + y: each rounded
//   adapted_linear    the same with a delta (delta.inl), which is added to the sum first; so for gate_up, to both its sums
//   gate_up           act(gate . x) * (up . x), gate and up panels alternating
//   gate_up_quantize  the same, quantised where it is made: two pairs of panels give a block of 32
//   embed             rows of a weight read back from its panels; embed_positions: those of the positions
//
// Quantised weights, one block b of 32 columns, one accumulator an output, b ascending:
//   f   = float(i_0) * s_0            i = integer sum over the group of 32 (or the two groups of 16), exact
//   f   = fma(float(i_1), s_1, f)
//   acc = fma(f, scale, acc)
//   acc = fma(min, scaled_sum, acc)             where the type has a minimum (per 16: scale * sum[i])
// Float weights: 4 accumulators by k mod 4, k ascending, joined (a0 + a1) + (a2 + a3).
// A lane is an output row and no lane is ever added to another, so tiles, batches and sets do not move a bit.

namespace {

constexpr int64_t STREAM_BYTES = 256 * 1024;   // bytes of weights a thread takes at a time when few rows share them
constexpr int PREFETCH_DISTANCE = 2048;          // bytes, where weights are prefetched (panels.inl, PREFETCH_ROWS)

// Rows of activations: those of an operand, or some that stand anywhere.
struct Rows {
    const uint8_t* base;
    int64_t stride, columns;
    const uint8_t* const* chosen = nullptr;
    explicit Rows(const Operand& x) : base(x.base), stride(x.stride), columns(x.width) {}
    Rows(const uint8_t* const* rows, int64_t columns_) : base(nullptr), stride(0), columns(columns_), chosen(rows) {}
    LANE const uint8_t* row(int64_t r) const { return chosen ? chosen[r] : base + r * stride; }
};

// acc += block j of a unit, which is block b of its panel, times N records.
template <class P, int N, bool WIDE_>
LANE void add_block(const P& unit, const Scales& s, int j, const Block<WIDE_>* const (&records)[N], int64_t b, f32x16* acc) {
    const auto x = [&](auto t) INLINE -> const Block<WIDE_>& { return records[t.value][b]; };
    constexpr int length = 8 / P::groups;
    using Sum = Dots<P::MAX_CODE, length>;
    f32x16 f[N];
    unroll<P::groups>([&](auto i) INLINE {
        Sum sum[N], high[WIDE_ ? N : 1];
        unroll<N>([&](auto t) INLINE {
            constexpr int offset = P::MAX_CODE == 255 ? Sum::ZERO_POINT : P::ZERO_POINT;
            const auto of16 = [&](int k) INLINE { return static_cast<uint32_t>(x(t).sum[k]); };
            const auto from = [&](int32_t start) INLINE {
                if constexpr (requires { unit.start(); }) return add(unit.start(), splat(start));
                else return splat(start);
            };
            if constexpr (WIDE_) high[t.value].start(from(0));
            sum[t.value].start(from(offset ? static_cast<int32_t>(-uint32_t{offset} * (P::groups == 1 ? of16(0) + of16(1) : of16(i.value))) : 0));
        });
        unroll<length>([&](auto g) INLINE {
            constexpr int group = i.value * length + g.value;
            const auto codes = unit.template codes<group>(j);
            unroll<N>([&](auto t) INLINE {
                if constexpr (WIDE_) high[t.value].template take<g.value>(codes, x(t).high + 4 * group);
                sum[t.value].template take<g.value>(codes, x(t).low + 4 * group);
            });
        });
        unroll<N>([&](auto t) INLINE {
            i32x16 whole = sum[t.value].total();
            if constexpr (WIDE_) whole = add(whole, times255(high[t.value].total()));
            f[t.value] = i.value ? fma(to_f32(whole), s.scale[i.value], f[t.value]) : mul(to_f32(whole), s.scale[i.value]);
        });
    });
    unroll<N>([&](auto t) INLINE {
        const float scale = x(t).scale;
        acc[t.value] = fma(f[t.value], splat(scale), acc[t.value]);
        if constexpr (P::HAS_MIN && P::groups == 1) acc[t.value] = fma(s.min[0], splat(x(t).scaled_sum), acc[t.value]);
        else if constexpr (P::HAS_MIN)
            unroll<2>([&](auto i) INLINE {
                acc[t.value] = fma(s.min[i.value], splat(scale * static_cast<float>(x(t).sum[i.value])), acc[t.value]);
            });
    });
}

// N rows of activations against one panel.
template <class P, int N, bool WIDE_> void product(const uint8_t* p, const Rows& x, int64_t row, f32x16* y) noexcept {
    constexpr int block_bytes = P::nbytes / P::blocks, at_once = N < ACCUMULATOR_ROWS ? N : ACCUMULATOR_ROWS;
    const Block<WIDE_>* records[N];
    f32x16 acc[N];
    unroll<N>([&](auto t) INLINE {
        records[t.value] = reinterpret_cast<const Block<WIDE_>*>(x.row(row + t.value));
        acc[t.value] = splat(0.0f);
    });
    for (int64_t b0 = 0; b0 < x.columns / 32; b0 += P::blocks, p += P::nbytes) {
        const P unit(p);
        for (int j = 0; j < P::blocks; j++) {
            if ((WIDE_ ? 2 : 1) * N >= P::PREFETCH_ROWS && row == 0)      // the other rows find it near
                unroll<(block_bytes + 63) / 64>([&](auto i) INLINE { __builtin_prefetch(p + j * block_bytes + PREFETCH_DISTANCE + 64 * i.value); });
            const Scales s = unit.scales(j);
            unroll<N / at_once>([&](auto i) INLINE {
                const Block<WIDE_>* some[at_once];
                unroll<at_once>([&](auto t) INLINE {
                    some[t.value] = records[i.value * at_once + t.value];
                    // Else the compiler moves a pointer to each along, block by block, and has no registers for them.
                    if (N > at_once) some[t.value] = anew(some[t.value]);
                });
                add_block<P, at_once, WIDE_>(unit, s, j, some, b0 + j, acc + i.value * at_once);
            });
        }
    }
    unroll<N>([&](auto t) INLINE { y[t.value] = acc[t.value]; });
}

// As many of the four sums at a time as registers hold.
template <class P, int N> void float_product(const uint8_t* p, const Rows& x, int64_t row, f32x16* y) noexcept {
    const int64_t columns = x.columns;
    constexpr int fit = FLOAT_ACCUMULATORS / N, at_once = fit >= 4 ? 4 : fit >= 2 ? 2 : 1;
    const float* rows[N];
    f32x16 part[4][N];
    unroll<N>([&](auto t) INLINE { rows[t.value] = reinterpret_cast<const float*>(x.row(row + t.value)); });
    for (int first = 0; first < 4; first += at_once) {
        f32x16 sum[at_once][N];
        unroll<at_once>([&](auto i) INLINE { unroll<N>([&](auto t) INLINE { sum[i.value][t.value] = splat(0.0f); }); });
        const auto one = [&](int64_t k, auto i) INLINE {
            const f32x16 lane = P::row(p, k);
            unroll<N>([&](auto t) INLINE { sum[i.value][t.value] = fma(lane, splat(rows[t.value][k]), sum[i.value][t.value]); });
        };
        int64_t k = first;
        for (; k + at_once <= columns; k += 4) unroll<at_once>([&](auto i) INLINE { one(k + i.value, i); });
        unroll<at_once>([&](auto i) INLINE { if (k + i.value < columns) one(k + i.value, i); });
        unroll<at_once>([&](auto i) INLINE { unroll<N>([&](auto t) INLINE { part[first + i.value][t.value] = sum[i.value][t.value]; }); });
    }
    unroll<N>([&](auto t) INLINE { y[t.value] = add(add(part[0][t.value], part[1][t.value]), add(part[2][t.value], part[3][t.value])); });
}

// A pass over one panel: its product with so many rows of activations, from `row` on. Behind this pointer a layout no
// longer shows, so the kernels below are compiled once and not for each.
struct Pass {
    int rows;
    void (*product)(const uint8_t* panel, const Rows& x, int64_t row, f32x16* y) noexcept;
};

template <class P, int N, bool WIDE_> constexpr Pass pass() {
    static_assert(N <= PASS_ROWS);
    if constexpr (P::QUANTISED) return {N, product<P, N, WIDE_>};
    else return {N, float_product<P, N>};
}

// The passes of a layout: over panels that were unpacked before, then over packed ones, the widest first of each.
struct Passes {
    Pass all[5];
    int unpacked;            // how many of them read unpacked panels
    void (*unpack)(const uint8_t* panel, int64_t columns, uint8_t* out) noexcept;
    int unpacked_bytes;      // of 32 columns
    int unpack_rows;         // rows from which panels are unpacked; 0: never
};

#if defined(WOOLLY_FEW_PASSES)
constexpr int SOME_ROWS = 1, TWO_ROWS = 1;
#else
constexpr int SOME_ROWS = 4, TWO_ROWS = 2;      // of the passes between the widest and that of one row
#endif

template <class P, bool WIDE_> constexpr Passes passes() {
    // Wide records need more registers a row.
    constexpr int integers = WIDE_ && ACCUMULATOR_ROWS > 1 ? ACCUMULATOR_ROWS / 2 : ACCUMULATOR_ROWS;
    constexpr int rows = P::QUANTISED ? integers : FLOAT_ACCUMULATORS < PASS_ROWS ? FLOAT_ACCUMULATORS : PASS_ROWS;
    // Scales that are packed themselves are worth reading once for twice as many rows as fit into registers.
    constexpr int most = !WIDE_ && packs_scales<P>() ? PASS_ROWS : rows;
    constexpr auto within = [](int n, int limit) { return n < limit ? n : limit; };
    Passes found{};
    found.all[4] = pass<P, 1, WIDE_>();
    if constexpr (unpack_rows<P>() > 0) {
        found.all[0] = pass<Unpacked<P>, rows, WIDE_>();
        found.unpack = unpack_panel<P>;
        found.unpacked_bytes = Unpacked<P>::nbytes;
        found.unpack_rows = unpack_rows<P>();
    }
    if constexpr (OpensUnits<P>) {      // opened for one row, or once for all
        found.all[1] = pass<Unpacked<P>, within(SOME_ROWS, rows), WIDE_>();
        found.all[2] = pass<Unpacked<P>, within(TWO_ROWS, rows), WIDE_>();
        found.all[3] = pass<Unpacked<P>, 1, WIDE_>();
        found.unpacked = 4;
    } else {
        found.all[1] = pass<P, most, WIDE_>();
        found.all[2] = pass<P, within(SOME_ROWS, most), WIDE_>();
        found.all[3] = pass<P, within(TWO_ROWS, most), WIDE_>();
        found.unpacked = 1;
    }
    return found;
}
template <class P, bool WIDE_> constexpr Passes PASSES = passes<P, WIDE_>();

const Passes& passes_of(const Operand& w, const Operand& x) {
    const Passes* found = nullptr;
    with_panel(w.layout, [&](auto type) {
        using P = typename decltype(type)::Panel;
        found = x.layout == WIDE ? &PASSES<P, P::QUANTISED> : &PASSES<P, false>;
    });
    return *found;
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
    const Rows x(a.in[0]);
    for (int64_t p = first; p < last; p++) {
        const int64_t at = p * PANEL;
        const int width = static_cast<int>(a.out.width - at);
        by_passes<1>(passes, a.in[1], p, a.rows, scratch, [&](int64_t r, const Pass& pass, const uint8_t* const* panels) INLINE {
            f32x16 y[PASS_ROWS];
            pass.product(panels[0], x, r, y);
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
LANE void gated(Gate act, const Pass& pass, const uint8_t* const* panels, const Rows& x, int64_t r, f32x16 (&y)[PASS_ROWS],
                const Operand& delta = {}, int64_t at = 0) {
    f32x16 up[PASS_ROWS];
    pass.product(panels[0], x, r, y);
    pass.product(panels[1], x, r, up);
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
    const Rows x(a.in[0]);
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
    const Rows x(a.in[0]);
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

// The value of lane `lane` in every column, as decode of the format gives it: code * scale, then + min.
template <class P> LANE void read_back(const uint8_t* p, int64_t columns, int lane, float* y) {
    if constexpr (P::QUANTISED) {
        for (int64_t b0 = 0; b0 < columns / 32; b0 += P::blocks, p += P::nbytes) {
            const P unit(p);
            for (int j = 0; j < P::blocks; j++) {
                const Scales s = unit.scales(j);
                float scale[2][16], min[2][16];
                unroll<P::groups>([&](auto i) INLINE {
                    store(scale[i.value], s.scale[i.value]);
                    if constexpr (P::HAS_MIN) store(min[i.value], s.min[i.value]);
                });
                unroll<8>([&](auto g) INLINE {
                    constexpr int group = g.value * P::groups / 8;
                    uint8_t codes[64];
                    store(codes, unit.template codes<g.value>(j));
                    for (int i = 0; i < 4; i++) {
                        float v = static_cast<float>(static_cast<int>(codes[4 * lane + i]) - P::ZERO_POINT) * scale[group][lane];
                        if constexpr (P::HAS_MIN) v = v + min[group][lane];
                        y[32 * (b0 + j) + 4 * g.value + i] = v;
                    }
                });
            }
        }
    } else {
        for (int64_t k = 0; k < columns; k++) {
            float v[16];
            store(v, P::row(p, k));
            y[k] = v[lane];
        }
    }
}

// Row number[r] of a weight for each row r.
LANE void read_rows(const Args& a, const int32_t* number, int64_t first, int64_t last) {
    with_panel(a.in[1].layout, [&](auto type) {
        using P = typename decltype(type)::Panel;
        for (int64_t r = first; r < last; r++)
            read_back<P>(a.in[1].base + number[r] / PANEL * a.in[1].stride, a.in[1].width, number[r] % PANEL, a.out.template row<float>(r));
    });
}
void run_embed(const Args& a, int64_t first, int64_t last, uint8_t*) noexcept { read_rows(a, a.step->tokens, first, last); }
void run_embed_positions(const Args& a, int64_t first, int64_t last, uint8_t*) noexcept { read_rows(a, a.step->position, first, last); }

}  // namespace
