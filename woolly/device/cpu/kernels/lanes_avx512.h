// lanes_avx512.h: sixteen lanes in one register. AVX-512 F, BW, VL, DQ and VNNI.
#define WOOLLY_SET avx512
#include <immintrin.h>

#include <cstdint>
#include <cstring>
#define LANE inline __attribute__((always_inline))
#define INLINE __attribute__((always_inline))      // behind the parameters of a lambda
#include "lookups_x86.h"

namespace {

constexpr int PASS_ROWS = 8;                // rows of activations that share one pass over a panel: a power of two
constexpr int ACCUMULATOR_ROWS = 8;         // those of them whose accumulators are in registers at the same time
constexpr int UNPACK_ROWS = 0;              // rows from which it pays to unpack a panel once for all of them; 0: never
constexpr int PREFETCH_ROWS_6BIT = 2;       // rows from which weights of six bits are prefetched
constexpr int QUERIES_PER_PASS = 6;         // query vectors that share one pass over a part of the cache
constexpr int FLOAT_ACCUMULATORS = 16;      // vectors of sums of floats that are in registers at the same time

struct f32x16 { __m512 v; };
struct i32x16 { __m512i v; };
struct u8x64 { __m512i v; };

LANE __mmask16 first(int n) { return n >= 16 ? 0xffff : n <= 0 ? 0 : static_cast<__mmask16>((1u << n) - 1); }

LANE f32x16 splat(float x) { return {_mm512_set1_ps(x)}; }
LANE f32x16 load(const float* p) { return {_mm512_loadu_ps(p)}; }
LANE f32x16 load(const float* p, int n) { return {_mm512_maskz_loadu_ps(first(n), p)}; }
LANE void store(float* p, f32x16 x) { _mm512_storeu_ps(p, x.v); }
LANE void store(float* p, f32x16 x, int n) { _mm512_mask_storeu_ps(p, first(n), x.v); }
LANE f32x16 add(f32x16 a, f32x16 b) { return {_mm512_add_ps(a.v, b.v)}; }
LANE f32x16 sub(f32x16 a, f32x16 b) { return {_mm512_sub_ps(a.v, b.v)}; }
LANE f32x16 mul(f32x16 a, f32x16 b) { return {_mm512_mul_ps(a.v, b.v)}; }
LANE f32x16 div(f32x16 a, f32x16 b) { return {_mm512_div_ps(a.v, b.v)}; }
LANE f32x16 fma(f32x16 a, f32x16 b, f32x16 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
LANE f32x16 max(f32x16 a, f32x16 b) { return {_mm512_max_ps(a.v, b.v)}; }   // a > b ? a : b
LANE f32x16 min(f32x16 a, f32x16 b) { return {_mm512_min_ps(a.v, b.v)}; }   // a < b ? a : b
LANE f32x16 keep(f32x16 x, int n, f32x16 other) { return {_mm512_mask_mov_ps(other.v, first(n), x.v)}; }
LANE f32x16 swapped(f32x16 x) { return {_mm512_permute_ps(x.v, 0xb1)}; }      // lanes 2i and 2i + 1

LANE f32x16 load_f16(const uint16_t* p) {
    return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
LANE f32x16 load_f16(const uint16_t* p, int n) { return {_mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first(n), p))}; }
LANE f32x16 splat_f16(const uint16_t* p) { return splat(_cvtsh_ss(*p)); }
LANE void store_f16(uint16_t* p, f32x16 x, int n) {
    _mm256_mask_storeu_epi16(p, first(n), _mm512_cvtps_ph(x.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
LANE f32x16 load_bf16(const uint16_t* p) {
    const __m256i h = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16))};
}

LANE i32x16 zero() { return {_mm512_setzero_si512()}; }
LANE i32x16 splat(int32_t x) { return {_mm512_set1_epi32(x)}; }
LANE i32x16 add(i32x16 a, i32x16 b) { return {_mm512_add_epi32(a.v, b.v)}; }
LANE i32x16 sub(i32x16 a, i32x16 b) { return {_mm512_sub_epi32(a.v, b.v)}; }
template <int BY> LANE i32x16 shifted(i32x16 x) { return {_mm512_slli_epi32(x.v, BY)}; }
LANE i32x16 max(i32x16 a, i32x16 b) { return {_mm512_max_epi32(a.v, b.v)}; }
LANE i32x16 load(const int32_t* p) { return {_mm512_loadu_si512(p)}; }
LANE void store(int32_t* p, i32x16 x) { _mm512_storeu_si512(p, x.v); }
LANE int32_t highest(i32x16 x) { return _mm512_reduce_max_epi32(x.v); }
LANE int32_t total(i32x16 x) { return _mm512_reduce_add_epi32(x.v); }
LANE i32x16 magnitude(f32x16 x) {     // the bits of |x|: ordered as integers, a NaN above all
    return {_mm512_and_si512(_mm512_castps_si512(x.v), _mm512_set1_epi32(0x7fffffff))};
}
LANE i32x16 round(f32x16 x) { return {_mm512_cvtps_epi32(x.v)}; }
LANE f32x16 to_f32(i32x16 x) { return {_mm512_cvtepi32_ps(x.v)}; }
LANE f32x16 pow2(i32x16 n) {
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(n.v, _mm512_set1_epi32(127)), 23))};
}
LANE void store_i8(int8_t* p, i32x16 x, int n) { _mm512_mask_cvtepi32_storeu_epi8(p, first(n), x.v); }
LANE i32x16 load_i8(const int8_t* p) {
    return {_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
}
LANE i32x16 load_i8(const int8_t* p, int n) { return {_mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(first(n), p))}; }
LANE i32x16 load_u8(const uint8_t* p) {
    return {_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
}
template <int SHIFT, int MASK> LANE i32x16 field(i32x16 x) {
    return {_mm512_and_si512(_mm512_srli_epi32(x.v, SHIFT), _mm512_set1_epi32(MASK))};
}

LANE u8x64 load(const uint8_t* p) { return {_mm512_loadu_si512(p)}; }
LANE void store(uint8_t* p, u8x64 x) { _mm512_storeu_si512(p, x.v); }
// the bits of MASK after a shift to the right; a negative one is to the left
template <int SHIFT, int MASK> LANE u8x64 field(u8x64 x) {
    const __m512i shifted = SHIFT < 0 ? _mm512_slli_epi16(x.v, -SHIFT) : _mm512_srli_epi16(x.v, SHIFT);
    return {_mm512_and_si512(shifted, _mm512_set1_epi8(MASK))};
}
LANE u8x64 either(u8x64 a, u8x64 b) { return {_mm512_or_si512(a.v, b.v)}; }
// of 16 bytes those that x names, each 15 at the most
LANE u8x64 chosen(const uint8_t* table, u8x64 x) {
    return {_mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table))), x.v)};
}

// zero + size, and zero - size where bit BIT of the signs is set
template <int BIT> LANE u8x64 signed_codes(int zero, u8x64 size, u8x64 signs) {
    const __m512i z = _mm512_set1_epi8(static_cast<char>(zero));
    const __mmask64 negative = _mm512_test_epi8_mask(signs.v, _mm512_set1_epi8(static_cast<char>(1 << BIT)));
    return {_mm512_mask_sub_epi8(_mm512_add_epi8(z, size.v), negative, z, size.v)};
}
// the entries that sixteen rows name: four bytes of each; of eight, the first four and the others
struct u8x128 { u8x64 low, high; };
LANE u8x64 side_by_side(__m256i a, __m256i b) { return {_mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1)}; }
template <class Index> LANE u8x64 look_up(const uint32_t* table, const Index* index) { return side_by_side(entries(table, index), entries(table, index + 8)); }
template <class Index> LANE u8x128 look_up(const uint64_t* table, const Index* index) {
    const Halves a = entries(table, index), b = entries(table, index + 8);
    return {side_by_side(a.low, b.low), side_by_side(a.high, b.high)};
}

LANE i32x16 add_dots(i32x16 sum, u8x64 w, i32x16 x) { return {_mm512_dpbusd_epi32(sum.v, w.v, x.v)}; }

}  // namespace
#include "dots_vnni.h"
