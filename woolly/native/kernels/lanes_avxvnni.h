// lanes_avxvnni.h: sixteen lanes in two registers. AVX2, FMA, F16C and AVX-VNNI: a dot product is one instruction a half.
//
// The numbers below are taken over from AVX2, but for FETCH_SIX; they were not measured on such a processor.
#define WOOLLY_SET avxvnni
#include "lanes_ymm.h"

namespace {

constexpr int TILE = 8;
constexpr int HELD = 4;         // 8 of 16 registers for integer sums
constexpr int OPEN_ROWS = 32;
constexpr int FETCH_SIX = 2;
constexpr int CHAINS = 6;
constexpr int SUMS = 6;

LANE i32x16 add_dots(i32x16 sum, u8x64 w, i32x16 x) {
    return {_mm256_dpbusd_avx_epi32(sum.a, w.a, x.a), _mm256_dpbusd_avx_epi32(sum.b, w.b, x.b)};
}

}  // namespace
#include "dots_vnni.h"
