// lanes_neon.h: sixteen lanes in four registers. ARMv8.2 with the dot product (FEAT_DotProd).
//
// The bits are checked under an emulator (tools/arm.sh). The numbers below are taken over from AVX2, where a vector takes
// up the same share of all registers, but for PREFETCH_ROWS_6BIT; they were not measured on ARM.
#define WOOLLY_SET neon
#include <arm_neon.h>

#include <cstdint>
#include <cstring>
#define LANE inline __attribute__((always_inline))
#define INLINE __attribute__((always_inline))      // behind the parameters of a lambda

namespace {

// lanes_avx512.h says what these are.
constexpr int PASS_ROWS = 8;
constexpr int ACCUMULATOR_ROWS = 4;         // 16 of 32 registers for integer sums
constexpr int UNPACK_ROWS = 32;
constexpr int PREFETCH_ROWS_6BIT = 2;
constexpr int QUERIES_PER_PASS = 6;
constexpr int FLOAT_ACCUMULATORS = 6;   // 24 registers, 4 for what is multiplied

struct f32x16 { float32x4_t a, b, c, d; };
struct i32x16 { int32x4_t a, b, c, d; };
struct u8x64 { uint8x16_t a, b, c, d; };

// f of each of the four registers
template <class To, class F, class... From> LANE To four(const F& f, const From&... x) {
    return {f(x.a...), f(x.b...), f(x.c...), f(x.d...)};
}
#define FLOATS(f, ...) four<f32x16>([](auto... x) INLINE { return f(x...); }, __VA_ARGS__)
#define INTEGERS(f, ...) four<i32x16>([](auto... x) INLINE { return f(x...); }, __VA_ARGS__)

// a mask whose first n of four lanes are set
LANE uint32x4_t first(int n) {
    const int32_t lanes[4] = {0, 1, 2, 3};
    return vcltq_s32(vld1q_s32(lanes), vdupq_n_s32(n));
}

LANE f32x16 splat(float x) {
    const float32x4_t v = vdupq_n_f32(x);
    return {v, v, v, v};
}
LANE f32x16 load(const float* p) { return {vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)}; }
LANE f32x16 load(const float* p, int n) {
    if (n >= 16) return load(p);
    float all[16] = {};
    memcpy(all, p, n > 0 ? 4 * static_cast<size_t>(n) : 0);
    return load(all);
}
LANE void store(float* p, f32x16 x) {
    vst1q_f32(p, x.a);
    vst1q_f32(p + 4, x.b);
    vst1q_f32(p + 8, x.c);
    vst1q_f32(p + 12, x.d);
}
LANE void store(float* p, f32x16 x, int n) {
    if (n >= 16) return store(p, x);
    float all[16];
    store(all, x);
    memcpy(p, all, n > 0 ? 4 * static_cast<size_t>(n) : 0);
}
LANE f32x16 add(f32x16 x, f32x16 y) { return FLOATS(vaddq_f32, x, y); }
LANE f32x16 sub(f32x16 x, f32x16 y) { return FLOATS(vsubq_f32, x, y); }
LANE f32x16 mul(f32x16 x, f32x16 y) { return FLOATS(vmulq_f32, x, y); }
LANE f32x16 div(f32x16 x, f32x16 y) { return FLOATS(vdivq_f32, x, y); }
LANE f32x16 fma(f32x16 x, f32x16 y, f32x16 z) { return FLOATS(vfmaq_f32, z, x, y); }
// Not vmaxq and vminq: of a NaN and a number they give the NaN, and the other sets give y.
LANE float32x4_t larger(float32x4_t x, float32x4_t y) { return vbslq_f32(vcgtq_f32(x, y), x, y); }
LANE float32x4_t smaller(float32x4_t x, float32x4_t y) { return vbslq_f32(vcltq_f32(x, y), x, y); }
LANE f32x16 max(f32x16 x, f32x16 y) { return FLOATS(larger, x, y); }      // x > y ? x : y
LANE f32x16 min(f32x16 x, f32x16 y) { return FLOATS(smaller, x, y); }     // x < y ? x : y
LANE f32x16 keep(f32x16 x, int n, f32x16 other) {
    return {vbslq_f32(first(n), x.a, other.a), vbslq_f32(first(n - 4), x.b, other.b),
            vbslq_f32(first(n - 8), x.c, other.c), vbslq_f32(first(n - 12), x.d, other.d)};
}
LANE f32x16 swapped(f32x16 x) { return FLOATS(vrev64q_f32, x); }      // lanes 2i and 2i + 1

LANE float32x4_t widen_f16(uint16x4_t h) { return vcvt_f32_f16(vreinterpret_f16_u16(h)); }
LANE f32x16 load_f16(const uint16_t* p) {
    return {widen_f16(vld1_u16(p)), widen_f16(vld1_u16(p + 4)), widen_f16(vld1_u16(p + 8)), widen_f16(vld1_u16(p + 12))};
}
LANE f32x16 load_f16(const uint16_t* p, int n) {
    if (n >= 16) return load_f16(p);
    uint16_t all[16] = {};
    memcpy(all, p, n > 0 ? 2 * static_cast<size_t>(n) : 0);
    return load_f16(all);
}
LANE f32x16 splat_f16(const uint16_t* p) {
    const float32x4_t v = widen_f16(vdup_n_u16(*p));
    return {v, v, v, v};
}
LANE uint16x4_t narrow_f16(float32x4_t x) { return vreinterpret_u16_f16(vcvt_f16_f32(x)); }      // to nearest even
LANE void store_f16(uint16_t* p, f32x16 x, int n) {
    uint16_t all[16];
    vst1_u16(all, narrow_f16(x.a));
    vst1_u16(all + 4, narrow_f16(x.b));
    vst1_u16(all + 8, narrow_f16(x.c));
    vst1_u16(all + 12, narrow_f16(x.d));
    memcpy(p, all, n >= 16 ? 32 : n > 0 ? 2 * static_cast<size_t>(n) : 0);
}
LANE f32x16 load_bf16(const uint16_t* p) {
    const uint16x8_t low = vld1q_u16(p), high = vld1q_u16(p + 8), none = vdupq_n_u16(0);
    return {vreinterpretq_f32_u16(vzip1q_u16(none, low)), vreinterpretq_f32_u16(vzip2q_u16(none, low)),
            vreinterpretq_f32_u16(vzip1q_u16(none, high)), vreinterpretq_f32_u16(vzip2q_u16(none, high))};
}

LANE i32x16 splat(int32_t x) {
    const int32x4_t v = vdupq_n_s32(x);
    return {v, v, v, v};
}
LANE i32x16 zero() { return splat(int32_t{0}); }
LANE i32x16 add(i32x16 x, i32x16 y) { return INTEGERS(vaddq_s32, x, y); }
LANE i32x16 sub(i32x16 x, i32x16 y) { return INTEGERS(vsubq_s32, x, y); }
template <int BY> LANE i32x16 shifted(i32x16 x) {
    return four<i32x16>([](int32x4_t v) INLINE { return vshlq_n_s32(v, BY); }, x);
}
LANE i32x16 max(i32x16 x, i32x16 y) { return INTEGERS(vmaxq_s32, x, y); }
LANE i32x16 load(const int32_t* p) { return {vld1q_s32(p), vld1q_s32(p + 4), vld1q_s32(p + 8), vld1q_s32(p + 12)}; }
LANE void store(int32_t* p, i32x16 x) {
    vst1q_s32(p, x.a);
    vst1q_s32(p + 4, x.b);
    vst1q_s32(p + 8, x.c);
    vst1q_s32(p + 12, x.d);
}
LANE int32_t highest(i32x16 x) { return vmaxvq_s32(vmaxq_s32(vmaxq_s32(x.a, x.b), vmaxq_s32(x.c, x.d))); }
LANE int32_t total(i32x16 x) { return vaddvq_s32(vaddq_s32(vaddq_s32(x.a, x.b), vaddq_s32(x.c, x.d))); }
LANE i32x16 magnitude(f32x16 x) {
    return four<i32x16>([](float32x4_t v) INLINE { return vandq_s32(vreinterpretq_s32_f32(v), vdupq_n_s32(0x7fffffff)); }, x);
}
// The conversion gives the nearest integer there is, and 0 of a NaN; the other sets give the least one for both.
LANE i32x16 round(f32x16 x) {
    return four<i32x16>([](float32x4_t v) INLINE {
        return vbslq_s32(vcltq_f32(v, vdupq_n_f32(0x1p31f)), vcvtnq_s32_f32(v), vdupq_n_s32(INT32_MIN));
    }, x);
}
LANE f32x16 to_f32(i32x16 x) { return FLOATS(vcvtq_f32_s32, x); }
LANE f32x16 pow2(i32x16 n) {
    return four<f32x16>([](int32x4_t v) INLINE { return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(v, vdupq_n_s32(127)), 23)); }, n);
}
LANE int8x16_t lowest_bytes(i32x16 x) {
    const int16x8_t low = vuzp1q_s16(vreinterpretq_s16_s32(x.a), vreinterpretq_s16_s32(x.b));
    const int16x8_t high = vuzp1q_s16(vreinterpretq_s16_s32(x.c), vreinterpretq_s16_s32(x.d));
    return vuzp1q_s8(vreinterpretq_s8_s16(low), vreinterpretq_s8_s16(high));
}
LANE void store_i8(int8_t* p, i32x16 x, int n) {
    if (n >= 16) return vst1q_s8(p, lowest_bytes(x));
    int8_t all[16];
    vst1q_s8(all, lowest_bytes(x));
    memcpy(p, all, n > 0 ? static_cast<size_t>(n) : 0);
}
LANE i32x16 load_i8(const int8_t* p) {
    const int8x16_t v = vld1q_s8(p);
    const int16x8_t low = vmovl_s8(vget_low_s8(v)), high = vmovl_high_s8(v);
    return {vmovl_s16(vget_low_s16(low)), vmovl_high_s16(low), vmovl_s16(vget_low_s16(high)), vmovl_high_s16(high)};
}
LANE i32x16 load_i8(const int8_t* p, int n) {
    if (n >= 16) return load_i8(p);
    int8_t all[16] = {};
    memcpy(all, p, n > 0 ? static_cast<size_t>(n) : 0);
    return load_i8(all);
}
LANE i32x16 load_u8(const uint8_t* p) {
    const uint8x16_t v = vld1q_u8(p);
    const uint16x8_t low = vmovl_u8(vget_low_u8(v)), high = vmovl_high_u8(v);
    return {vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(low))), vreinterpretq_s32_u32(vmovl_high_u16(low)),
            vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(high))), vreinterpretq_s32_u32(vmovl_high_u16(high))};
}
template <int SHIFT, int MASK> LANE i32x16 field(i32x16 x) {
    return four<i32x16>([](int32x4_t v) INLINE {
        uint32x4_t u = vreinterpretq_u32_s32(v);
        if constexpr (SHIFT > 0) u = vshrq_n_u32(u, SHIFT);
        return vreinterpretq_s32_u32(vandq_u32(u, vdupq_n_u32(MASK)));
    }, x);
}

LANE u8x64 load(const uint8_t* p) { return {vld1q_u8(p), vld1q_u8(p + 16), vld1q_u8(p + 32), vld1q_u8(p + 48)}; }
LANE void store(uint8_t* p, u8x64 x) {
    vst1q_u8(p, x.a);
    vst1q_u8(p + 16, x.b);
    vst1q_u8(p + 32, x.c);
    vst1q_u8(p + 48, x.d);
}
// the bits of MASK after a shift to the right; a negative one is to the left
template <int SHIFT, int MASK> LANE u8x64 field(u8x64 x) {
    return four<u8x64>([](uint8x16_t v) INLINE {
        constexpr int left = (SHIFT < 0 ? 255 << -SHIFT : 255 >> SHIFT) & 255;      // bytes are shifted, nothing comes from beside
        if constexpr (SHIFT > 0) v = vshrq_n_u8(v, SHIFT);
        if constexpr (SHIFT < 0) v = vshlq_n_u8(v, -SHIFT);
        if constexpr ((left & ~MASK) != 0) v = vandq_u8(v, vdupq_n_u8(MASK));
        return v;
    }, x);
}
LANE u8x64 either(u8x64 x, u8x64 y) {
    return four<u8x64>([](uint8x16_t v, uint8x16_t w) INLINE { return vorrq_u8(v, w); }, x, y);
}

LANE u8x64 chosen(const uint8_t* table, u8x64 x) {
    const uint8x16_t t = vld1q_u8(table);
    return four<u8x64>([&](uint8x16_t v) INLINE { return vqtbl1q_u8(t, v); }, x);
}

template <int BIT> LANE u8x64 signed_codes(int zero, u8x64 size, u8x64 signs) {
    const uint8x16_t z = vdupq_n_u8(static_cast<uint8_t>(zero)), bit = vdupq_n_u8(1 << BIT);
    return four<u8x64>([&](uint8x16_t x, uint8x16_t s) INLINE { return vbslq_u8(vtstq_u8(s, bit), vsubq_u8(z, x), vaddq_u8(z, x)); }, size, signs);
}
struct u8x128 { u8x64 low, high; };
template <class Index> LANE u8x64 look_up(const uint32_t* table, const Index* index) {
    uint8_t found[64];
    for (int i = 0; i < 16; i++) memcpy(found + 4 * i, table + index[i], 4);
    return load(found);
}
template <class Index> LANE u8x128 look_up(const uint64_t* table, const Index* index) {
    const auto four_rows = [&](const Index* i) INLINE {
        uint32_t found[8];
        for (int k = 0; k < 4; k++) memcpy(found + 2 * k, table + i[k], 8);
        return vld2q_u32(found);
    };
    const uint32x4x2_t a = four_rows(index), b = four_rows(index + 4), c = four_rows(index + 8), d = four_rows(index + 12);
    const auto whole = [&](int half) INLINE {
        return u8x64{vreinterpretq_u8_u32(a.val[half]), vreinterpretq_u8_u32(b.val[half]), vreinterpretq_u8_u32(c.val[half]), vreinterpretq_u8_u32(d.val[half])};
    };
    return {whole(0), whole(1)};
}

// The sum over LENGTH groups of w[4 lane .. 4 lane + 3] . x[0 .. 3], weights from 0 to MAX_CODE; whole bytes stand for
// w - 128. All fewer bits are signed bytes as they are. Four groups of x are read together, and `sdot` picks one of them:
// what `take<I>` is given is group I of a run of LENGTH, which is a multiple of four.
template <int MAX_CODE, int LENGTH> struct Dots {
    static_assert(LENGTH % 4 == 0 && (MAX_CODE <= 127 || MAX_CODE == 255));
    static constexpr int ZERO_POINT = 0;      // `take` makes signed bytes of them by itself
    i32x16 sum;
    LANE void start(i32x16 from) { sum = from; }
    template <int I> LANE void take(u8x64 w, const int8_t* x) {
        const int8x16_t groups = vld1q_s8(x - 4 * (I % 4));
        sum = four<i32x16>([&](int32x4_t s, uint8x16_t v) INLINE {
            if constexpr (MAX_CODE == 255) v = veorq_u8(v, vdupq_n_u8(0x80));
            return vdotq_laneq_s32(s, vreinterpretq_s8_u8(v), groups, I % 4);
        }, sum, w);
    }
    LANE i32x16 total() const { return sum; }
};

}  // namespace
#undef FLOATS
#undef INTEGERS
