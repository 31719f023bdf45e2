// passes.inl: products of panels with rows of activations, for each layout and number of rows, and rows read back.
//
// Quantised weights, one block b of 32 columns, one accumulator an output, b ascending:
//   f   = float(i_0) * s_0            i = integer sum over the group of 32 (or the two groups of 16), exact
//   f   = fma(float(i_1), s_1, f)
//   acc = fma(f, scale, acc)
//   acc = fma(min, scaled_sum, acc)             where the type has a minimum (per 16: scale * sum[i])
// Float weights: 4 accumulators by k mod 4, k ascending, joined (a0 + a1) + (a2 + a3).
// A lane is an output row and no lane is ever added to another, so tiles, batches and sets do not move a bit.

namespace {

constexpr int PREFETCH_DISTANCE = 2048;          // bytes, where weights are prefetched (panels.inl, PREFETCH_ROWS)

LANE const uint8_t* row_of(const ActivationRows& x, int64_t r) { return x.chosen ? x.chosen[r] : x.base + r * x.stride; }

// acc += block j of a unit, which is block b of its panel, times N records.
template <class P, int N, bool WIDE_>
LANE void add_block(const P& unit, const Scales& s, int j, const Block<WIDE_>* const (&records)[N], int64_t b, f32x16* acc) {
    const auto x = [&](int t) INLINE -> const Block<WIDE_>& { return records[t][b]; };
    constexpr int length = 8 / P::groups;
    using Sum = Dots<P::MAX_CODE, length>;
    f32x16 f[N];
    unroll<P::groups>([&](auto i) INLINE {
        Sum sum[N], high[WIDE_ ? N : 1];
        UNROLLED(t, N) {
            constexpr int offset = P::MAX_CODE == 255 ? Sum::ZERO_POINT : P::ZERO_POINT;
            const auto of16 = [&](int k) INLINE { return static_cast<uint32_t>(x(t).sum[k]); };
            const auto from = [&](int32_t start) INLINE {
                if constexpr (requires { unit.start(); }) return add(unit.start(), splat(start));
                else return splat(start);
            };
            if constexpr (WIDE_) high[t].start(from(0));
            sum[t].start(from(offset ? static_cast<int32_t>(-uint32_t{offset} * (P::groups == 1 ? of16(0) + of16(1) : of16(i.value))) : 0));
        }
        unroll<length>([&](auto g) INLINE {
            constexpr int group = i.value * length + g.value;
            const auto codes = unit.template codes<group>(j);
            UNROLLED(t, N) {
                if constexpr (WIDE_) high[t].template take<g.value>(codes, x(t).high + 4 * group);
                sum[t].template take<g.value>(codes, x(t).low + 4 * group);
            }
        });
        UNROLLED(t, N) {
            i32x16 whole = sum[t].total();
            if constexpr (WIDE_) whole = add(whole, times255(high[t].total()));
            f[t] = i.value ? fma(to_f32(whole), s.scale[i.value], f[t]) : mul(to_f32(whole), s.scale[i.value]);
        }
    });
    UNROLLED(t, N) {
        const float scale = x(t).scale;
        acc[t] = fma(f[t], splat(scale), acc[t]);
        if constexpr (P::HAS_MIN && P::groups == 1) acc[t] = fma(s.min[0], splat(x(t).scaled_sum), acc[t]);
        else if constexpr (P::HAS_MIN)
            unroll<2>([&](auto i) INLINE {
                acc[t] = fma(s.min[i.value], splat(scale * static_cast<float>(x(t).sum[i.value])), acc[t]);
            });
    }
}

// N rows of activations against one panel.
template <class P, int N, bool WIDE_> void product(const uint8_t* p, const ActivationRows& rows, int64_t row, float* sums) noexcept {
    constexpr int block_bytes = P::nbytes / P::blocks, at_once = N < ACCUMULATOR_ROWS ? N : ACCUMULATOR_ROWS;
    const Block<WIDE_>* records[N];
    f32x16 acc[N];
    UNROLLED(t, N) {
        records[t] = reinterpret_cast<const Block<WIDE_>*>(row_of(rows, row + t));
        acc[t] = splat(0.0f);
    }
    for (int64_t b0 = 0; b0 < rows.columns / 32; b0 += P::blocks, p += P::nbytes) {
        const P unit(p);
        for (int j = 0; j < P::blocks; j++) {
            if ((WIDE_ ? 2 : 1) * N >= P::PREFETCH_ROWS && row == 0)      // the other rows find it near
                unroll<(block_bytes + 63) / 64>([&](auto i) INLINE { __builtin_prefetch(p + j * block_bytes + PREFETCH_DISTANCE + 64 * i.value); });
            const Scales s = unit.scales(j);
            unroll<N / at_once>([&](auto i) INLINE {
                const Block<WIDE_>* some[at_once];
                UNROLLED(t, at_once) {
                    some[t] = records[i.value * at_once + t];
                    // Else the compiler moves a pointer to each along, block by block, and has no registers for them.
                    if (N > at_once) some[t] = anew(some[t]);
                }
                add_block<P, at_once, WIDE_>(unit, s, j, some, b0 + j, acc + i.value * at_once);
            });
        }
    }
    UNROLLED(t, N) store(sums + 16 * t, acc[t]);
}

// As many of the four sums at a time as registers hold.
template <class P, int N> void float_product(const uint8_t* p, const ActivationRows& x, int64_t row, float* sums) noexcept {
    const int64_t columns = x.columns;
    constexpr int fit = FLOAT_ACCUMULATORS / N, at_once = fit >= 4 ? 4 : fit >= 2 ? 2 : 1;
    const float* rows[N];
    f32x16 part[4][N];
    UNROLLED(t, N) rows[t] = reinterpret_cast<const float*>(row_of(x, row + t));
    for (int first = 0; first < 4; first += at_once) {
        f32x16 sum[at_once][N];
        UNROLLED(i, at_once) UNROLLED(t, N) sum[i][t] = splat(0.0f);
        const auto one = [&](int64_t k, int i) INLINE {
            const f32x16 lane = P::row(p, k);
            UNROLLED(t, N) sum[i][t] = fma(lane, splat(rows[t][k]), sum[i][t]);
        };
        int64_t k = first;
        for (; k + at_once <= columns; k += 4) UNROLLED(i, at_once) one(k + i, i);
        UNROLLED(i, at_once) if (k + i < columns) one(k + i, i);
        UNROLLED(i, at_once) UNROLLED(t, N) part[first + i][t] = sum[i][t];
    }
    UNROLLED(t, N) store(sums + 16 * t, add(add(part[0][t], part[1][t]), add(part[2][t], part[3][t])));
}

template <class P, int N, bool WIDE_> constexpr Pass pass() {
    static_assert(N <= PASS_ROWS);
    if constexpr (P::QUANTISED) return {N, product<P, N, WIDE_>};
    else return {N, float_product<P, N>};
}

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

// The value of lane `lane` in every column, as decode of the format gives it: code * scale, then + min.
template <class P> void read_row(const uint8_t* p, int64_t columns, int lane, float* y) noexcept {
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

}  // namespace
