// avx512.h: what lanes_avx512.h asks of AVX-512, done by AVX2 and plain arithmetic, so that its kernels run on every x86
// machine of the tests. It is included before all else of avx512.cpp, by the build with the sanitizers and no other.
//
// Types and functions have the names of the real ones, and hide them, because they stand in the unnamed namespace of those
// who use them. One that is missing here does not compile: the real ones need instructions that are not switched on.
// Under a mask only the enabled lanes are touched in memory, each by an access of its own that the sanitizer checks.
#pragma once
#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "avxvnni.h"
#undef _mm512_cvtps_ph      // macros for some compilers
#undef _mm512_permute_ps
#undef _mm512_inserti64x4

#define EMULATED inline __attribute__((always_inline))
#define APART __attribute__((noinline, unused))      // in every place that uses them they would take the compiler long

namespace {

struct __m512 { __m256 low, high; };
struct __m512i { __m256i low, high; };

// --- memory --------------------------------------------------------------------------------------------------------------

EMULATED __m512 _mm512_loadu_ps(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
EMULATED void _mm512_storeu_ps(float* p, __m512 x) {
    _mm256_storeu_ps(p, x.low);
    _mm256_storeu_ps(p + 8, x.high);
}
EMULATED __m512i _mm512_loadu_si512(const void* p) {
    const auto* half = static_cast<const __m256i_u*>(p);
    return {_mm256_loadu_si256(half), _mm256_loadu_si256(half + 1)};
}
EMULATED void _mm512_storeu_si512(void* p, __m512i x) {
    auto* half = static_cast<__m256i_u*>(p);
    _mm256_storeu_si256(half, x.low);
    _mm256_storeu_si256(half + 1, x.high);
}

template <class Register, class Lane> APART Register enabled(__mmask16 mask, const Lane* p) {
    static_assert(sizeof(Register) == 16 * sizeof(Lane));
    Lane lane[16] = {};
    for (int i = 0; i < 16; i++)
        if (mask >> i & 1) lane[i] = p[i];
    Register x;
    memcpy(&x, lane, sizeof x);
    return x;
}
template <class Register, class Lane> APART void store_enabled(Lane* p, __mmask16 mask, Register x) {
    static_assert(sizeof(Register) == 16 * sizeof(Lane));
    Lane lane[16];
    memcpy(lane, &x, sizeof x);
    for (int i = 0; i < 16; i++)
        if (mask >> i & 1) p[i] = lane[i];
}
EMULATED __m512 _mm512_maskz_loadu_ps(__mmask16 mask, const float* p) { return enabled<__m512>(mask, p); }
EMULATED __m256i _mm256_maskz_loadu_epi16(__mmask16 mask, const uint16_t* p) { return enabled<__m256i>(mask, p); }
EMULATED __m128i _mm_maskz_loadu_epi8(__mmask16 mask, const int8_t* p) { return enabled<__m128i>(mask, p); }
EMULATED void _mm512_mask_storeu_ps(float* p, __mmask16 mask, __m512 x) { store_enabled(p, mask, x); }
EMULATED void _mm256_mask_storeu_epi16(uint16_t* p, __mmask16 mask, __m256i x) { store_enabled(p, mask, x); }
APART void _mm512_mask_cvtepi32_storeu_epi8(int8_t* p, __mmask16 mask, __m512i x) {
    int32_t lane[16];
    memcpy(lane, &x, sizeof x);
    for (int i = 0; i < 16; i++)
        if (mask >> i & 1) p[i] = static_cast<int8_t>(lane[i]);      // the low byte, whatever the others are
}

// --- floats: each half as AVX2 and FMA have it -----------------------------------------------------------------------------

EMULATED __m512 _mm512_set1_ps(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
EMULATED __m512 _mm512_add_ps(__m512 a, __m512 b) { return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)}; }
EMULATED __m512 _mm512_sub_ps(__m512 a, __m512 b) { return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)}; }
EMULATED __m512 _mm512_mul_ps(__m512 a, __m512 b) { return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)}; }
EMULATED __m512 _mm512_div_ps(__m512 a, __m512 b) { return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)}; }
EMULATED __m512 _mm512_max_ps(__m512 a, __m512 b) { return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)}; }
EMULATED __m512 _mm512_min_ps(__m512 a, __m512 b) { return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)}; }
EMULATED __m512 _mm512_fmadd_ps(__m512 a, __m512 b, __m512 c) {
    return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
APART __m512 _mm512_permute_ps(__m512 x, int places) {      // of each four lanes, two bits a place
    float lane[16], from[16];
    memcpy(from, &x, sizeof from);
    for (int i = 0; i < 16; i++) lane[i] = from[i / 4 * 4 + (places >> i % 4 * 2 & 3)];
    return _mm512_loadu_ps(lane);
}
APART __m512 _mm512_mask_mov_ps(__m512 other, __mmask16 mask, __m512 x) {
    float lane[16], from[16];
    memcpy(lane, &other, sizeof lane);
    memcpy(from, &x, sizeof from);
    for (int i = 0; i < 16; i++)
        if (mask >> i & 1) lane[i] = from[i];
    return _mm512_loadu_ps(lane);
}

// --- integers ------------------------------------------------------------------------------------------------------------

EMULATED __m512i _mm512_setzero_si512() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
EMULATED __m512i _mm512_set1_epi32(int x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
EMULATED __m512i _mm512_set1_epi8(char x) { return {_mm256_set1_epi8(x), _mm256_set1_epi8(x)}; }
EMULATED __m512i _mm512_add_epi32(__m512i a, __m512i b) {
    return {_mm256_add_epi32(a.low, b.low), _mm256_add_epi32(a.high, b.high)};
}
EMULATED __m512i _mm512_sub_epi32(__m512i a, __m512i b) {
    return {_mm256_sub_epi32(a.low, b.low), _mm256_sub_epi32(a.high, b.high)};
}
EMULATED __m512i _mm512_max_epi32(__m512i a, __m512i b) {
    return {_mm256_max_epi32(a.low, b.low), _mm256_max_epi32(a.high, b.high)};
}
EMULATED __m512i _mm512_and_si512(__m512i a, __m512i b) {
    return {_mm256_and_si256(a.low, b.low), _mm256_and_si256(a.high, b.high)};
}
EMULATED __m512i _mm512_or_si512(__m512i a, __m512i b) {
    return {_mm256_or_si256(a.low, b.low), _mm256_or_si256(a.high, b.high)};
}
EMULATED __m512i _mm512_slli_epi32(__m512i x, int by) { return {_mm256_slli_epi32(x.low, by), _mm256_slli_epi32(x.high, by)}; }
EMULATED __m512i _mm512_srli_epi32(__m512i x, int by) { return {_mm256_srli_epi32(x.low, by), _mm256_srli_epi32(x.high, by)}; }
EMULATED __m512i _mm512_slli_epi16(__m512i x, int by) { return {_mm256_slli_epi16(x.low, by), _mm256_slli_epi16(x.high, by)}; }
EMULATED __m512i _mm512_srli_epi16(__m512i x, int by) { return {_mm256_srli_epi16(x.low, by), _mm256_srli_epi16(x.high, by)}; }

EMULATED __m512i _mm512_broadcast_i32x4(__m128i x) { return {_mm256_broadcastsi128_si256(x), _mm256_broadcastsi128_si256(x)}; }
EMULATED __m512i _mm512_shuffle_epi8(__m512i x, __m512i places) {
    return {_mm256_shuffle_epi8(x.low, places.low), _mm256_shuffle_epi8(x.high, places.high)};
}

EMULATED __m512i _mm512_castsi256_si512(__m256i x) { return {x, _mm256_setzero_si256()}; }
EMULATED __m512i _mm512_inserti64x4(__m512i x, __m256i y, int place) { return place ? __m512i{x.low, y} : __m512i{y, x.high}; }
EMULATED __m512i _mm512_add_epi8(__m512i a, __m512i b) { return {_mm256_add_epi8(a.low, b.low), _mm256_add_epi8(a.high, b.high)}; }
APART __mmask64 _mm512_test_epi8_mask(__m512i a, __m512i b) {
    uint8_t x[64], y[64];
    memcpy(x, &a, sizeof x);
    memcpy(y, &b, sizeof y);
    __mmask64 mask = 0;
    for (int i = 0; i < 64; i++) mask |= static_cast<__mmask64>((x[i] & y[i]) != 0) << i;
    return mask;
}
APART __m512i _mm512_mask_sub_epi8(__m512i other, __mmask64 mask, __m512i a, __m512i b) {
    uint8_t x[64], y[64], z[64];
    memcpy(x, &a, sizeof x);
    memcpy(y, &b, sizeof y);
    memcpy(z, &other, sizeof z);
    for (int i = 0; i < 64; i++)
        if (mask >> i & 1) z[i] = static_cast<uint8_t>(x[i] - y[i]);
    return _mm512_loadu_si512(z);
}

APART int _mm512_reduce_max_epi32(__m512i x) {
    int32_t lane[16], most = INT32_MIN;
    memcpy(lane, &x, sizeof lane);
    for (int i = 0; i < 16; i++) most = lane[i] > most ? lane[i] : most;
    return most;
}
APART int _mm512_reduce_add_epi32(__m512i x) {
    uint32_t lane[16], sum = 0;      // unsigned, because the real one wraps around
    memcpy(lane, &x, sizeof lane);
    for (int i = 0; i < 16; i++) sum += lane[i];
    return static_cast<int>(sum);
}

EMULATED __m512i _mm512_dpbusd_epi32(__m512i sum, __m512i a, __m512i b) {
    return {_mm256_dpbusd_avx_epi32(sum.low, a.low, b.low), _mm256_dpbusd_avx_epi32(sum.high, a.high, b.high)};
}

// --- from one kind to another --------------------------------------------------------------------------------------------

EMULATED __m512i _mm512_castps_si512(__m512 x) { return {_mm256_castps_si256(x.low), _mm256_castps_si256(x.high)}; }
EMULATED __m512 _mm512_castsi512_ps(__m512i x) { return {_mm256_castsi256_ps(x.low), _mm256_castsi256_ps(x.high)}; }
EMULATED __m512i _mm512_cvtps_epi32(__m512 x) { return {_mm256_cvtps_epi32(x.low), _mm256_cvtps_epi32(x.high)}; }
EMULATED __m512 _mm512_cvtepi32_ps(__m512i x) { return {_mm256_cvtepi32_ps(x.low), _mm256_cvtepi32_ps(x.high)}; }
EMULATED __m512i _mm512_cvtepi8_epi32(__m128i x) {
    return {_mm256_cvtepi8_epi32(x), _mm256_cvtepi8_epi32(_mm_srli_si128(x, 8))};
}
EMULATED __m512i _mm512_cvtepu8_epi32(__m128i x) {
    return {_mm256_cvtepu8_epi32(x), _mm256_cvtepu8_epi32(_mm_srli_si128(x, 8))};
}
EMULATED __m512i _mm512_cvtepu16_epi32(__m256i x) {
    return {_mm256_cvtepu16_epi32(_mm256_castsi256_si128(x)), _mm256_cvtepu16_epi32(_mm256_extracti128_si256(x, 1))};
}
EMULATED __m512 _mm512_cvtph_ps(__m256i x) {
    return {_mm256_cvtph_ps(_mm256_castsi256_si128(x)), _mm256_cvtph_ps(_mm256_extracti128_si256(x, 1))};
}
EMULATED __m256i _mm512_cvtps_ph(__m512 x, int rounding) {
    constexpr int NEAREST = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    if (rounding != NEAREST) __builtin_trap();      // the instructions have it inside them: it cannot be handed on
    return _mm256_set_m128i(_mm256_cvtps_ph(x.high, NEAREST), _mm256_cvtps_ph(x.low, NEAREST));
}

}  // namespace

#undef EMULATED
#undef APART
