// lanes_avx2.h: sixteen lanes in two registers. AVX2, FMA and F16C.
#define WOOLLY_SET avx2
#include "lanes_ymm.h"

namespace {

// lanes_avx512.h says what these are.
constexpr int PASS_ROWS = 8;
constexpr int ACCUMULATOR_ROWS = 4;
constexpr int UNPACK_ROWS = 32;
constexpr int PREFETCH_ROWS_6BIT = 1;
constexpr int QUERIES_PER_PASS = 6;
constexpr int FLOAT_ACCUMULATORS = 6;

// The sum over LENGTH groups of w[4 lane .. 4 lane + 3] . x[0 .. 3], weights from 0 to MAX_CODE; whole bytes stand for
// w - 128. Pairs of products are added up in 16 bits for as long as they fit: what widens them costs as much as they do.
template <int MAX_CODE, int LENGTH> struct Dots {
    static constexpr bool BYTES = MAX_CODE == 255;
    static constexpr int FIT = BYTES ? 1 : 32767 / (2 * MAX_CODE * 127);      // |x| <= 127
    static constexpr int ZERO_POINT = 0;                                     // `take` makes signed bytes of them by itself
    __m256i a, b;        // the pairs so far
    i32x16 sum;          // what has been widened
    LANE void start(i32x16 from) { sum = from; }
    template <int I, class Codes> LANE void take(Codes w, const int8_t* x) {
        int32_t four;
        memcpy(&four, x, 4);
        const __m256i v = _mm256_set1_epi32(four);
        const auto [pa, pb] = pairs(w, v);
        a = I % FIT ? _mm256_add_epi16(a, pa) : pa;
        b = I % FIT ? _mm256_add_epi16(b, pb) : pb;
        one_by_one(a, b);
        if constexpr (I % FIT == FIT - 1 || I == LENGTH - 1) {
            const __m256i one = _mm256_set1_epi16(1);
            sum = {_mm256_add_epi32(sum.a, _mm256_madd_epi16(a, one)), _mm256_add_epi32(sum.b, _mm256_madd_epi16(b, one))};
            one_by_one(sum.a, sum.b);
        }
    }
    LANE i32x16 total() const { return sum; }

    // gcc would rather keep all terms, in memory, and add them up in a tree
    static LANE void one_by_one(__m256i& x, __m256i& y) { asm("" : "+x"(x), "+x"(y)); }
    static LANE __m256i pairs(__m256i w, __m256i x) {
        if constexpr (!BYTES) return _mm256_maddubs_epi16(w, x);
        const __m256i s = _mm256_xor_si256(w, _mm256_set1_epi8(-128));
        return _mm256_maddubs_epi16(_mm256_abs_epi8(s), _mm256_sign_epi8(x, s));      // at most 2 * 128 * 127 = 32512
    }
    static LANE i32x16 pairs(u8x64 w, __m256i x) { return {pairs(w.a, x), pairs(w.b, x)}; }

    // Whole bytes taken apart: sizes, and all bits of the negative ones. Then w x is |w| (x ^ sign), and |w| more for each
    // negative one, whatever x is; this spares the pipes that multiply a third of their work.
    struct Signed { u8x64 size, sign; };
    static LANE Signed apart(u8x64 w) {
        const __m256i bias = _mm256_set1_epi8(-128), a = _mm256_xor_si256(w.a, bias), b = _mm256_xor_si256(w.b, bias), none = _mm256_setzero_si256();
        return {{_mm256_abs_epi8(a), _mm256_abs_epi8(b)}, {_mm256_cmpgt_epi8(none, a), _mm256_cmpgt_epi8(none, b)}};
    }
    static LANE i32x16 kept(const uint8_t* p) { return {load(p).a, load(p).b}; }      // what `store` put there
    static LANE u8x64 negative(Signed w) { return {_mm256_and_si256(w.size.a, w.sign.a), _mm256_and_si256(w.size.b, w.sign.b)}; }
    static LANE i32x16 pairs(Signed w, __m256i x) {      // from -2 * 128 * 128 to 2 * 127 * 127
        return {_mm256_maddubs_epi16(w.size.a, _mm256_xor_si256(x, w.sign.a)), _mm256_maddubs_epi16(w.size.b, _mm256_xor_si256(x, w.sign.b))};
    }
};

}  // namespace
