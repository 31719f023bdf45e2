// lanes_avxvnni.h: sixteen lanes in two registers. AVX2, FMA, F16C and AVX-VNNI: a dot product is one instruction a half.
//
// The numbers below are taken over from AVX2, but for PREFETCH_ROWS_6BIT; they were not measured on such a processor.
#define WOOLLY_SET avxvnni
#include "lanes_ymm.h"

namespace {

// lanes_avx512.h says what these are.
constexpr int PASS_ROWS = 8;
constexpr int ACCUMULATOR_ROWS = 4;         // 8 of 16 registers for integer sums
constexpr int UNPACK_ROWS = 32;
constexpr int PREFETCH_ROWS_6BIT = 2;
constexpr int QUERIES_PER_PASS = 6;
constexpr int FLOAT_ACCUMULATORS = 6;

LANE i32x16 add_dots(i32x16 sum, u8x64 w, i32x16 x) {
    return {_mm256_dpbusd_avx_epi32(sum.a, w.a, x.a), _mm256_dpbusd_avx_epi32(sum.b, w.b, x.b)};
}

}  // namespace
#include "dots_vnni.h"
