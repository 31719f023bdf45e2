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

// The sum over LENGTH groups of w[4 lane .. 4 lane + 3] . x[0 .. 3], weights from 0 to MOST; whole bytes stand for
// w - 128, and OFFSET times the sum of x is to be taken away by whoever starts the sum.
template <int MOST, int LENGTH> struct Dots {
    static constexpr int OFFSET = MOST == 255 ? 128 : 0;
    i32x16 sum;
    LANE void start(i32x16 from) { sum = from; }
    template <int I> LANE void take(u8x64 w, const int8_t* x) {
        int32_t four;
        memcpy(&four, x, 4);
        const __m256i v = _mm256_set1_epi32(four);
        sum = {_mm256_dpbusd_avx_epi32(sum.a, w.a, v), _mm256_dpbusd_avx_epi32(sum.b, w.b, v)};
    }
    LANE i32x16 total() const { return sum; }
};

}  // namespace
