// math.inl: the few functions over lanes that several kernels share. model/ops/numerics.py defines them to the bit.

namespace {

// Sixteen bytes, by fours.
using Words = uint32_t __attribute__((vector_size(16)));
LANE Words get(const uint8_t* p) {
    Words x;
    memcpy(&x, p, 16);
    return x;
}
LANE void put(uint8_t* p, Words x) { memcpy(p, &x, 16); }
LANE constexpr uint32_t in_each_byte(uint32_t bits) { return bits * 0x01010101u; }

// a loop whose index is a constant of the compiler
template <int I> struct Index { static constexpr int value = I; };
template <int N, int I = 0, class Body> LANE void unroll(const Body& body) {
    if constexpr (I < N) {
        body(Index<I>{});
        unroll<N, I + 1>(body);
    }
}

// A loop that is unrolled when its body has been compiled, so the index is none of the compiler's constants: in less time
// than `unroll`, to the same code.
#if defined(__clang__)
#define UNROLLED(i, n) _Pragma("unroll") for (int i = 0; i < (n); i++)
#else
#define UNROLLED(i, n) _Pragma("GCC unroll 16") for (int i = 0; i < (n); i++)
#endif

// What lies there is read again where it could have been kept: registers are scarcer than loads.
template <class T> LANE T* anew(T* p) {
    asm volatile("" : "+r"(p));
    return p;
}

LANE int lower_of(int a, int b) { return a < b ? a : b; }
LANE int higher_of(int a, int b) { return a > b ? a : b; }
LANE int64_t rounded_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

// One number of sixteen: f of lane i and lane i+8, then of i and i+4, i+2, i+1.
template <class F> LANE float folded(f32x16 x, const F& f) {
    using Four = float __attribute__((vector_size(16)));
    float v[16];
    store(v, x);
    Four four[4];
    memcpy(four, v, sizeof four);
    const Four all = f(f(four[0], four[2]), f(four[1], four[3]));
    return f(f(all[0], all[2]), f(all[1], all[3]));
}
LANE float sum16(f32x16 x) { return folded(x, [](auto a, auto b) INLINE { return a + b; }); }
LANE float largest(f32x16 x) { return folded(x, [](auto a, auto b) INLINE { return a > b ? a : b; }); }

// 32 partial sums by fma: element i goes to partial i mod 32; partial j + partial j+16, then the tree
LANE float sum_of_squares(const float* x, int n) {
    f32x16 low = splat(0.0f), high = splat(0.0f);
    for (int i = 0; i < n; i += 32) {
        const f32x16 a = load(x + i, n - i), b = load(x + i + 16, n - i - 16);
        low = fma(a, a, low);
        high = fma(b, b, high);
    }
    return sum16(add(low, high));
}

// e^x: x = n ln 2 + r with ln 2 in two pieces, a polynomial of r, times 2^n. A NaN stays a NaN.
LANE f32x16 exp(f32x16 x) {
    x = min(splat(88.0f), max(splat(-87.0f), x));
    const i32x16 n = round(mul(x, splat(1.44269504088896341f)));
    const f32x16 f = to_f32(n);
    x = fma(f, splat(-0.693145751953125f), x);
    x = fma(f, splat(-1.428606765330187e-6f), x);
    f32x16 p = splat(1.9875691500e-4f);
    p = fma(p, x, splat(1.3981999507e-3f));
    p = fma(p, x, splat(8.3334519073e-3f));
    p = fma(p, x, splat(4.1665795894e-2f));
    p = fma(p, x, splat(1.6666665459e-1f));
    p = fma(p, x, splat(5.0000001201e-1f));
    p = fma(mul(p, x), x, add(x, splat(1.0f)));
    return mul(p, pow2(n));
}

// The same of the values themselves: a product with ones, which needs no fma.
LANE float sum_of(const float* x, int n) {
    f32x16 low = splat(0.0f), high = splat(0.0f);
    for (int i = 0; i < n; i += 32) {
        low = add(low, load(x + i, n - i));
        high = add(high, load(x + i + 16, n - i - 16));
    }
    return sum16(add(low, high));
}

LANE f32x16 silu(f32x16 x) { return div(x, add(splat(1.0f), exp(sub(splat(0.0f), x)))); }

LANE f32x16 sigmoid(f32x16 x) { return div(splat(1.0f), add(splat(1.0f), exp(sub(splat(0.0f), x)))); }
LANE f32x16 gelu(f32x16 x) {
    const f32x16 t = mul(x, fma(mul(x, x), splat(0.071354816272600248f), splat(1.5957691216057308f)));
    return div(x, add(splat(1.0f), exp(sub(splat(0.0f), t))));
}
LANE f32x16 relu(f32x16 x) { return max(x, splat(0.0f)); }

// A quotient of two polynomials; a NaN stays a NaN.
LANE f32x16 tanh(f32x16 x) {
    x = min(splat(7.90531110763549805f), max(splat(-7.90531110763549805f), x));
    const f32x16 square = mul(x, x);
    f32x16 above = splat(-2.76076847742355e-16f), below = splat(1.19825839466702e-06f);
    above = fma(above, square, splat(2.00018790482477e-13f));
    above = fma(above, square, splat(-8.60467152213735e-11f));
    above = fma(above, square, splat(5.12229709037114e-08f));
    above = fma(above, square, splat(1.48572235717979e-05f));
    above = fma(above, square, splat(6.37261928875436e-04f));
    above = fma(above, square, splat(4.89352455891786e-03f));
    below = fma(below, square, splat(1.18534705686654e-04f));
    below = fma(below, square, splat(2.26843463243900e-03f));
    below = fma(below, square, splat(4.89352518554385e-03f));
    return div(mul(x, above), below);
}
// ln(1 + e^x): max(x, 0) + ln(1 + t) with t = e^-|x|, and ln(1 + t) = 2 atanh(t / (2 + t)). A NaN stays a NaN.
LANE f32x16 softplus(f32x16 x) {
    const f32x16 t = exp(min(x, sub(splat(0.0f), x))), y = div(t, add(t, splat(2.0f))), square = mul(y, y);
    f32x16 p = splat(static_cast<float>(2.0 / 15));
    for (int n = 13; n > 0; n -= 2) p = fma(p, square, splat(static_cast<float>(2.0 / n)));
    return fma(p, y, max(x, splat(0.0f)));
}
LANE f32x16 soft_cap(f32x16 x, f32x16 cap) { return mul(tanh(div(x, cap)), cap); }

// The activations of a gate, by number: GATES of model/ops/linear.py.
enum Gate { SILU, GELU, RELU, GATES };
LANE f32x16 activated(Gate act, f32x16 x) { return act == SILU ? silu(x) : act == GELU ? gelu(x) : relu(x); }

LANE i32x16 times255(i32x16 x) { return sub(shifted<8>(x), x); }

LANE float as_float(int32_t bits) {
    float f;
    memcpy(&f, &bits, 4);
    return f;
}

// A row of activations as integers is a record: a run of blocks of 32 columns with a scale and their sums. So a piece of a
// row is a record too.
struct Block8 {
    int8_t  low[32];
    float   scale, scaled_sum;      // the second is scale * (sum[0] + sum[1])
    int32_t sum[2];                 // of 16 integers each
};
// Integers of 16 bits are 255 * high + low, both within +-127, so the same byte products serve for them.
struct Block16 {
    int8_t  low[32], high[32];
    float   scale, scaled_sum;
    int32_t sum[2];
};
template <bool WIDE_> struct BlockOf { using Type = Block8; };
template <> struct BlockOf<true> { using Type = Block16; };
template <bool WIDE_> using Block = typename BlockOf<WIDE_>::Type;

// Bytes of so many columns of a row of activations.
LANE int64_t row_bytes(int32_t layout, int64_t columns) {
    if (layout == RECORD) return columns / 32 * static_cast<int64_t>(sizeof(Block8));
    return layout == WIDE ? columns / 32 * static_cast<int64_t>(sizeof(Block16)) : 4 * columns;
}

// 32 values (low and high 16) become a block. A value that is not finite makes the scale a NaN, so that it reaches the
// logits and is seen there.
template <bool WIDE_> LANE void quantize_block(f32x16 first, f32x16 second, Block<WIDE_>& out) {
    constexpr float top = WIDE_ ? 255.0f * 127.0f + 127.0f : 127.0f;
    const int32_t bits = highest(max(magnitude(first), magnitude(second)));
    const float most = as_float(bits);
    if (bits >= 0x7f800000 || most < 0x1p-100f) {
        memset(&out, 0, sizeof out);
        out.scale = out.scaled_sum = bits >= 0x7f800000 ? __builtin_nanf("") : 0.0f;
        return;
    }
    const f32x16 inverse = splat(top / most);
    const i32x16 q[2] = {round(mul(first, inverse)), round(mul(second, inverse))};
    for (int i = 0; i < 2; i++) {
        if constexpr (WIDE_) {
            const i32x16 high = round(mul(to_f32(q[i]), splat(1.0f / 255.0f)));
            store_i8(out.high + 16 * i, high, 16);
            store_i8(out.low + 16 * i, sub(q[i], times255(high)), 16);
        } else {
            store_i8(out.low + 16 * i, q[i], 16);
        }
        out.sum[i] = total(q[i]);
    }
    out.scale = most / top;
    out.scaled_sum = out.scale * static_cast<float>(out.sum[0] + out.sum[1]);
}

// Block b of a record, wide or not.
LANE void quantize_block(f32x16 first, f32x16 second, bool wide, uint8_t* record, int64_t b) {
    if (wide) quantize_block<true>(first, second, reinterpret_cast<Block16*>(record)[b]);
    else quantize_block<false>(first, second, reinterpret_cast<Block8*>(record)[b]);
}

// What many kernels say of their instructions: tiles, scratch, and what operands must be.
LANE Tiles tiles_by_row(const Args& a) noexcept { return {a.rows, a.rows > 64 ? 8 : 1}; }
LANE size_t no_scratch(const Args&) { return 0; }

LANE bool is_rows(const Operand& o) { return o.base && o.layout == PLAIN && o.width > 0; }
LANE bool is_record(const Operand& o, int bits) {
    return o.base && (bits == 8 ? o.layout == RECORD : bits == 16 && o.layout == WIDE) && o.width > 0 && o.width % 32 == 0;
}
LANE bool is_vector(const Operand& o, int64_t n) { return is_rows(o) && o.width == n; }

}  // namespace
