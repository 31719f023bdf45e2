// dots_vnni.h: dot products where one instruction adds four of them to a sum (`add_dots`): AVX-VNNI and AVX-512.

namespace {

// The sum over LENGTH groups of w[4 lane .. 4 lane + 3] . x[0 .. 3], weights from 0 to MAX_CODE; whole bytes stand for
// w - 128, and ZERO_POINT times the sum of x is to be taken away by whoever starts the sum.
template <int MAX_CODE, int LENGTH> struct Dots {
    static constexpr int ZERO_POINT = MAX_CODE == 255 ? 128 : 0;
    i32x16 sum;
    LANE void start(i32x16 from) { sum = from; }
    template <int I> LANE void take(u8x64 w, const int8_t* x) {
        int32_t four;
        memcpy(&four, x, 4);
        sum = add_dots(sum, w, splat(four));
    }
    LANE i32x16 total() const { return sum; }
};

}  // namespace
