// lanes_ymm.h: sixteen lanes in two registers, for the sets that have AVX2, FMA and F16C. They differ in `Dots`.
#include <immintrin.h>

#include <cstdint>
#include <cstring>
#define LANE inline __attribute__((always_inline))
#define INLINE __attribute__((always_inline))      // behind the parameters of a lambda
#include "lookups_x86.h"

namespace {

struct f32x16 { __m256 a, b; };
struct i32x16 { __m256i a, b; };
struct u8x64 { __m256i a, b; };

// a mask whose first n of eight lanes are set
LANE __m256i first(int n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

LANE f32x16 splat(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
LANE f32x16 load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
LANE f32x16 load(const float* p, int n) {
    if (n >= 16) return load(p);
    return {_mm256_maskload_ps(p, first(n)), _mm256_maskload_ps(p + 8, first(n - 8))};
}
LANE void store(float* p, f32x16 x) {
    _mm256_storeu_ps(p, x.a);
    _mm256_storeu_ps(p + 8, x.b);
}
LANE void store(float* p, f32x16 x, int n) {
    if (n >= 16) return store(p, x);      // a store with a mask takes as long as twenty
    _mm256_maskstore_ps(p, first(n), x.a);
    _mm256_maskstore_ps(p + 8, first(n - 8), x.b);
}
LANE f32x16 add(f32x16 x, f32x16 y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
LANE f32x16 sub(f32x16 x, f32x16 y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
LANE f32x16 mul(f32x16 x, f32x16 y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
LANE f32x16 div(f32x16 x, f32x16 y) { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
LANE f32x16 fma(f32x16 x, f32x16 y, f32x16 z) {
    return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
LANE f32x16 max(f32x16 x, f32x16 y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
LANE f32x16 min(f32x16 x, f32x16 y) { return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }
LANE f32x16 keep(f32x16 x, int n, f32x16 other) {
    return {_mm256_blendv_ps(other.a, x.a, _mm256_castsi256_ps(first(n))),
            _mm256_blendv_ps(other.b, x.b, _mm256_castsi256_ps(first(n - 8)))};
}

LANE f32x16 swapped(f32x16 x) { return {_mm256_permute_ps(x.a, 0xb1), _mm256_permute_ps(x.b, 0xb1)}; }

LANE f32x16 load_f16(const uint16_t* p) {
    return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
            _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)))};
}
LANE f32x16 load_f16(const uint16_t* p, int n) {
    if (n >= 16) return load_f16(p);
    uint16_t all[16] = {};
    memcpy(all, p, n > 0 ? 2 * static_cast<size_t>(n) : 0);
    return load_f16(all);
}
LANE f32x16 splat_f16(const uint16_t* p) { return splat(_cvtsh_ss(*p)); }
LANE void store_f16(uint16_t* p, f32x16 x, int n) {
    uint16_t all[16];
    _mm_storeu_si128(reinterpret_cast<__m128i*>(all), _mm256_cvtps_ph(x.a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(all + 8), _mm256_cvtps_ph(x.b, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    memcpy(p, all, n >= 16 ? 32 : n > 0 ? 2 * static_cast<size_t>(n) : 0);
}
LANE __m256 widen_bf16(const uint16_t* p) {
    const __m128i h = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}
LANE f32x16 load_bf16(const uint16_t* p) { return {widen_bf16(p), widen_bf16(p + 8)}; }

LANE i32x16 zero() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
LANE i32x16 splat(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
LANE i32x16 add(i32x16 x, i32x16 y) { return {_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)}; }
LANE i32x16 sub(i32x16 x, i32x16 y) { return {_mm256_sub_epi32(x.a, y.a), _mm256_sub_epi32(x.b, y.b)}; }
template <int BY> LANE i32x16 shifted(i32x16 x) { return {_mm256_slli_epi32(x.a, BY), _mm256_slli_epi32(x.b, BY)}; }
LANE i32x16 max(i32x16 x, i32x16 y) { return {_mm256_max_epi32(x.a, y.a), _mm256_max_epi32(x.b, y.b)}; }
LANE i32x16 load(const int32_t* p) {
    return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)), _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 8))};
}
LANE void store(int32_t* p, i32x16 x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), x.a);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 8), x.b);
}
// one number of four: f of both halves, then of both quarters
template <class F> LANE int32_t folded(__m128i x, const F& f) {
    x = f(x, _mm_unpackhi_epi64(x, x));
    return _mm_cvtsi128_si32(f(x, _mm_shuffle_epi32(x, 1)));
}
LANE int32_t highest(i32x16 x) {
    const __m256i most = _mm256_max_epi32(x.a, x.b);
    return folded(_mm_max_epi32(_mm256_castsi256_si128(most), _mm256_extracti128_si256(most, 1)), [](__m128i a, __m128i b) INLINE { return _mm_max_epi32(a, b); });
}
LANE int32_t total(i32x16 x) {
    const __m256i sum = _mm256_add_epi32(x.a, x.b);
    return folded(_mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1)), [](__m128i a, __m128i b) INLINE { return _mm_add_epi32(a, b); });
}
LANE i32x16 magnitude(f32x16 x) {
    const __m256i m = _mm256_set1_epi32(0x7fffffff);
    return {_mm256_and_si256(_mm256_castps_si256(x.a), m), _mm256_and_si256(_mm256_castps_si256(x.b), m)};
}
LANE i32x16 round(f32x16 x) { return {_mm256_cvtps_epi32(x.a), _mm256_cvtps_epi32(x.b)}; }
LANE f32x16 to_f32(i32x16 x) { return {_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)}; }
LANE __m256 pow2_half(__m256i n) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}
LANE f32x16 pow2(i32x16 n) { return {pow2_half(n.a), pow2_half(n.b)}; }
LANE void store_i8(int8_t* p, i32x16 x, int n) {
    // the lowest byte of each lane: of x.a to the first quarter of each half, of x.b to the second
    const __m256i a = _mm256_shuffle_epi8(x.a, _mm256_setr_epi32(0x0c080400, -1, -1, -1, 0x0c080400, -1, -1, -1));
    const __m256i b = _mm256_shuffle_epi8(x.b, _mm256_setr_epi32(-1, 0x0c080400, -1, -1, -1, 0x0c080400, -1, -1));
    const __m256i both = _mm256_or_si256(a, b);
    const __m128i bytes = _mm_unpacklo_epi32(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1));
    if (n >= 16) return _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bytes);
    int8_t all[16];
    _mm_storeu_si128(reinterpret_cast<__m128i*>(all), bytes);
    memcpy(p, all, n > 0 ? static_cast<size_t>(n) : 0);
}
LANE __m128i eight(const void* p) { return _mm_loadl_epi64(static_cast<const __m128i*>(p)); }
LANE i32x16 load_i8(const int8_t* p) { return {_mm256_cvtepi8_epi32(eight(p)), _mm256_cvtepi8_epi32(eight(p + 8))}; }
LANE i32x16 load_i8(const int8_t* p, int n) {
    if (n >= 16) return load_i8(p);
    int8_t all[16] = {};
    memcpy(all, p, n > 0 ? static_cast<size_t>(n) : 0);
    return load_i8(all);
}
LANE i32x16 load_u8(const uint8_t* p) { return {_mm256_cvtepu8_epi32(eight(p)), _mm256_cvtepu8_epi32(eight(p + 8))}; }
template <int SHIFT, int MASK> LANE i32x16 field(i32x16 x) {
    const __m256i m = _mm256_set1_epi32(MASK);
    return {_mm256_and_si256(_mm256_srli_epi32(x.a, SHIFT), m), _mm256_and_si256(_mm256_srli_epi32(x.b, SHIFT), m)};
}

LANE u8x64 load(const uint8_t* p) {
    return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)), _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 32))};
}
LANE void store(uint8_t* p, u8x64 x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), x.a);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 32), x.b);
}
template <int SHIFT> LANE __m256i shifted_right(__m256i x) { return SHIFT < 0 ? _mm256_slli_epi16(x, -SHIFT) : _mm256_srli_epi16(x, SHIFT); }
template <int SHIFT, int MASK> LANE u8x64 field(u8x64 x) {
    const __m256i m = _mm256_set1_epi8(MASK);
    return {_mm256_and_si256(shifted_right<SHIFT>(x.a), m), _mm256_and_si256(shifted_right<SHIFT>(x.b), m)};
}
LANE u8x64 either(u8x64 x, u8x64 y) { return {_mm256_or_si256(x.a, y.a), _mm256_or_si256(x.b, y.b)}; }
LANE u8x64 chosen(const uint8_t* table, u8x64 x) {
    const __m256i t = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)));
    return {_mm256_shuffle_epi8(t, x.a), _mm256_shuffle_epi8(t, x.b)};
}
template <int BIT> LANE u8x64 signed_codes(int zero, u8x64 size, u8x64 signs) {
    const __m256i z = _mm256_set1_epi8(static_cast<char>(zero));
    // the highest bit of a byte negates; a byte must not be zero
    const auto half = [&](__m256i x, __m256i s) INLINE { return _mm256_add_epi8(z, _mm256_sign_epi8(x, _mm256_or_si256(_mm256_slli_epi16(s, 7 - BIT), _mm256_set1_epi8(1)))); };
    return {half(size.a, signs.a), half(size.b, signs.b)};
}
struct u8x128 { u8x64 low, high; };
template <class Index> LANE u8x64 look_up(const uint32_t* table, const Index* index) { return {entries(table, index), entries(table, index + 8)}; }
template <class Index> LANE u8x128 look_up(const uint64_t* table, const Index* index) {
    const Halves a = entries(table, index), b = entries(table, index + 8);
    return {{a.low, b.low}, {a.high, b.high}};
}

}  // namespace
