// lanes_scalar.h: sixteen lanes as an array, in plain C++. It is there for proof and for unknown processors.
#define WOOLLY_SET scalar
#include <cstdint>
#include <cstring>
#define LANE inline
#define INLINE
#define EACH for (int i = 0; i < 16; i++)

namespace {

// lanes_avx512.h says what these are.
constexpr int PASS_ROWS = 1;
constexpr int ACCUMULATOR_ROWS = 1;
constexpr int UNPACK_ROWS = 0;
constexpr int PREFETCH_ROWS_6BIT = 2;
constexpr int QUERIES_PER_PASS = 1;
constexpr int FLOAT_ACCUMULATORS = 1;

struct f32x16 { float v[16]; };
struct i32x16 { int32_t v[16]; };
struct u8x64 { uint8_t v[64]; };

LANE float bits_to_float(uint32_t u) {
    float f;
    memcpy(&f, &u, 4);
    return f;
}
LANE uint32_t float_to_bits(float f) {
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}
LANE float widen_f16(uint16_t h) {
    const uint32_t sign = (h & 0x8000u) << 16, exponent = (h >> 10) & 31u, fraction = h & 1023u;
    if (exponent == 0) return bits_to_float(float_to_bits(static_cast<float>(fraction) * 0x1p-24f) | sign);
    if (exponent == 31) return bits_to_float(sign | 0x7f800000u | (fraction << 13));
    return bits_to_float(sign | ((exponent + 112) << 23) | (fraction << 13));
}
// to nearest even; the callers have clamped x to what a half can hold, a NaN stays one
LANE uint16_t narrow_f16(float x) {
    const uint32_t u = float_to_bits(x), sign = (u >> 16) & 0x8000u, m = u & 0x7fffffffu;
    if (m > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);
    if (m < 0x38800000u) {   // a subnormal half: 2^-24 is its unit, and adding 0.5 * 2^24 units rounds to it
        const float unit = bits_to_float(m) + 0.5f;
        return static_cast<uint16_t>(sign | (float_to_bits(unit) - 0x3f000000u));
    }
    return static_cast<uint16_t>(sign | ((m + 0xfffu + ((m >> 13) & 1u) - 0x38000000u) >> 13));
}

LANE f32x16 splat(float x) { f32x16 r; EACH r.v[i] = x; return r; }
LANE f32x16 load(const float* p) { f32x16 r; memcpy(r.v, p, 64); return r; }
LANE f32x16 load(const float* p, int n) { f32x16 r; EACH r.v[i] = i < n ? p[i] : 0.0f; return r; }
LANE void store(float* p, f32x16 x) { memcpy(p, x.v, 64); }
LANE void store(float* p, f32x16 x, int n) { EACH if (i < n) p[i] = x.v[i]; }
LANE f32x16 add(f32x16 a, f32x16 b) { EACH a.v[i] += b.v[i]; return a; }
LANE f32x16 sub(f32x16 a, f32x16 b) { EACH a.v[i] -= b.v[i]; return a; }
LANE f32x16 mul(f32x16 a, f32x16 b) { EACH a.v[i] *= b.v[i]; return a; }
LANE f32x16 div(f32x16 a, f32x16 b) { EACH a.v[i] /= b.v[i]; return a; }
LANE f32x16 fma(f32x16 a, f32x16 b, f32x16 c) { EACH c.v[i] = __builtin_fmaf(a.v[i], b.v[i], c.v[i]); return c; }
LANE f32x16 max(f32x16 a, f32x16 b) { EACH a.v[i] = a.v[i] > b.v[i] ? a.v[i] : b.v[i]; return a; }
LANE f32x16 min(f32x16 a, f32x16 b) { EACH a.v[i] = a.v[i] < b.v[i] ? a.v[i] : b.v[i]; return a; }
LANE f32x16 keep(f32x16 x, int n, f32x16 other) { EACH x.v[i] = i < n ? x.v[i] : other.v[i]; return x; }
LANE f32x16 swapped(f32x16 x) { f32x16 r; EACH r.v[i] = x.v[i ^ 1]; return r; }

LANE f32x16 load_f16(const uint16_t* p) { f32x16 r; EACH r.v[i] = widen_f16(p[i]); return r; }
LANE f32x16 load_f16(const uint16_t* p, int n) { f32x16 r; EACH r.v[i] = i < n ? widen_f16(p[i]) : 0.0f; return r; }
LANE f32x16 splat_f16(const uint16_t* p) { return splat(widen_f16(*p)); }
LANE void store_f16(uint16_t* p, f32x16 x, int n) { EACH if (i < n) p[i] = narrow_f16(x.v[i]); }
LANE f32x16 load_bf16(const uint16_t* p) { f32x16 r; EACH r.v[i] = bits_to_float(static_cast<uint32_t>(p[i]) << 16); return r; }

LANE i32x16 zero() { i32x16 r; EACH r.v[i] = 0; return r; }
LANE i32x16 splat(int32_t x) { i32x16 r; EACH r.v[i] = x; return r; }
LANE i32x16 add(i32x16 a, i32x16 b) { EACH a.v[i] += b.v[i]; return a; }
LANE i32x16 sub(i32x16 a, i32x16 b) { EACH a.v[i] -= b.v[i]; return a; }
template <int BY> LANE i32x16 shifted(i32x16 x) { EACH x.v[i] = static_cast<int32_t>(static_cast<uint32_t>(x.v[i]) << BY); return x; }
LANE i32x16 max(i32x16 a, i32x16 b) { EACH a.v[i] = a.v[i] > b.v[i] ? a.v[i] : b.v[i]; return a; }
LANE i32x16 load(const int32_t* p) { i32x16 r; memcpy(r.v, p, 64); return r; }
LANE void store(int32_t* p, i32x16 x) { memcpy(p, x.v, 64); }
LANE int32_t highest(i32x16 x) { int32_t m = x.v[0]; EACH m = x.v[i] > m ? x.v[i] : m; return m; }
LANE int32_t total(i32x16 x) { int32_t s = 0; EACH s += x.v[i]; return s; }
LANE i32x16 magnitude(f32x16 x) { i32x16 r; EACH r.v[i] = static_cast<int32_t>(float_to_bits(x.v[i]) & 0x7fffffffu); return r; }
// values beyond an int32 and NaN give the least one, as the vector sets do
LANE i32x16 round(f32x16 x) {
    i32x16 r;
    EACH {
        const float y = __builtin_rintf(x.v[i]);
        r.v[i] = y >= -0x1p31f && y < 0x1p31f ? static_cast<int32_t>(y) : INT32_MIN;
    }
    return r;
}
LANE f32x16 to_f32(i32x16 x) { f32x16 r; EACH r.v[i] = static_cast<float>(x.v[i]); return r; }
LANE f32x16 pow2(i32x16 n) { f32x16 r; EACH r.v[i] = bits_to_float((static_cast<uint32_t>(n.v[i]) + 127u) << 23); return r; }
LANE void store_i8(int8_t* p, i32x16 x, int n) { EACH if (i < n) p[i] = static_cast<int8_t>(x.v[i]); }
LANE i32x16 load_i8(const int8_t* p) { i32x16 r; EACH r.v[i] = p[i]; return r; }
LANE i32x16 load_i8(const int8_t* p, int n) { i32x16 r; EACH r.v[i] = i < n ? p[i] : 0; return r; }
LANE i32x16 load_u8(const uint8_t* p) { i32x16 r; EACH r.v[i] = p[i]; return r; }
template <int SHIFT, int MASK> LANE i32x16 field(i32x16 x) {
    EACH x.v[i] = static_cast<int32_t>((static_cast<uint32_t>(x.v[i]) >> SHIFT) & static_cast<uint32_t>(MASK));
    return x;
}

LANE u8x64 load(const uint8_t* p) { u8x64 r; memcpy(r.v, p, 64); return r; }
LANE void store(uint8_t* p, u8x64 x) { memcpy(p, x.v, 64); }
template <int SHIFT, int MASK> LANE u8x64 field(u8x64 x) {
    constexpr int right = SHIFT > 0 ? SHIFT : 0, left = SHIFT < 0 ? -SHIFT : 0;
    for (int i = 0; i < 64; i++) x.v[i] = static_cast<uint8_t>((x.v[i] >> right << left) & MASK);
    return x;
}
LANE u8x64 either(u8x64 a, u8x64 b) {
    for (int i = 0; i < 64; i++) a.v[i] = static_cast<uint8_t>(a.v[i] | b.v[i]);
    return a;
}

LANE u8x64 chosen(const uint8_t* table, u8x64 x) {
    for (int i = 0; i < 64; i++) x.v[i] = table[x.v[i]];
    return x;
}

template <int BIT> LANE u8x64 signed_codes(int zero, u8x64 size, u8x64 signs) {
    for (int i = 0; i < 64; i++) size.v[i] = static_cast<uint8_t>(signs.v[i] >> BIT & 1 ? zero - size.v[i] : zero + size.v[i]);
    return size;
}
struct u8x128 { u8x64 low, high; };
template <class Index> LANE u8x64 look_up(const uint32_t* table, const Index* index) {
    u8x64 x;
    EACH memcpy(x.v + 4 * i, table + index[i], 4);
    return x;
}
template <class Index> LANE u8x128 look_up(const uint64_t* table, const Index* index) {
    u8x128 x;
    EACH {
        memcpy(x.low.v + 4 * i, table + index[i], 4);
        memcpy(x.high.v + 4 * i, reinterpret_cast<const uint8_t*>(table + index[i]) + 4, 4);
    }
    return x;
}

template <int MAX_CODE, int LENGTH> struct Dots {
    static constexpr int ZERO_POINT = 0, MIDDLE = MAX_CODE == 255 ? 128 : 0;
    i32x16 sum;
    LANE void start(i32x16 from) { sum = from; }
    template <int I> LANE void take(u8x64 w, const int8_t* x) {
        EACH for (int k = 0; k < 4; k++) sum.v[i] += (static_cast<int32_t>(w.v[4 * i + k]) - MIDDLE) * x[k];
    }
    LANE i32x16 total() const { return sum; }
};

}  // namespace
#undef EACH
