// avxvnni.h: the one intrinsic that lanes_avxvnni.h asks of AVX-VNNI, done by AVX2, for test_lanes.py and avx512.h.
#pragma once
#include <immintrin.h>

namespace {

// In each lane, four products of a byte without a sign by a byte with one are added to what is there; no sum is clamped.
// Not inlined: in every place that uses it, it would take the compiler long.
__attribute__((noinline, unused)) __m256i _mm256_dpbusd_avx_epi32(__m256i sum, __m256i bytes, __m256i signed_bytes) {
    for (int i = 0; i < 4; i++) {
        const __m256i a = _mm256_and_si256(_mm256_srli_epi32(bytes, 8 * i), _mm256_set1_epi32(255));
        const __m256i b = _mm256_srai_epi32(_mm256_slli_epi32(signed_bytes, 24 - 8 * i), 24);
        sum = _mm256_add_epi32(sum, _mm256_mullo_epi32(a, b));
    }
    return sum;
}

}  // namespace
