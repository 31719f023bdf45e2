// norm.inl: norms, and activations to integers. One tile is one row.
//
//   rms_norm       y[i] = (x[i] * (1 / sqrt(dot(x, x) / n + eps))) * w[i], for each of `heads` equal pieces of a row
//   layer_norm     the same of x - mean, then + b[i]
//   rescale        x * (|like| / |x|)          sparsify  max(x - (mean + factor * deviation), 0)
//   quantize       blocks of 32: scale = max|x| / most, q = round(x * most / max|x|); most is 127, or 32512 for 16 bits
//   norm_quantize  one after the other, without a pass through memory

namespace {

LANE float norm_scale(const float* x, int n, float eps) {
    return 1.0f / __builtin_sqrtf(sum_of_squares(x, n) / static_cast<float>(n) + eps);
}

const char* check_rms_norm(const Args& a) {
    const int heads = static_cast<int>(a.attr[1]);
    if (!is_rows(a.out) || !is_rows(a.in[0]) || a.in[0].width != a.out.width) return "needs rows of one width";
    if (heads < 1 || a.out.width % heads) return "heads do not divide the width";
    if (a.in[1].base && !is_vector(a.in[1], a.out.width / heads) && !is_vector(a.in[1], a.out.width)) return "the weight has another width";
    return nullptr;
}

// The body gets each head of each row, and its weights: one for all heads, one for each, or none (nullptr).
template <class Body> LANE void each_head(const Args& a, int64_t first, int64_t last, const Body& body) {
    const int heads = static_cast<int>(a.attr[1]), n = a.out.width / heads;
    const float* w = a.in[1].base ? a.in[1].row<const float>(0) : nullptr;
    const int64_t step = w && a.in[1].width > n ? n : 0;
    for (int64_t r = first; r < last; r++)
        for (int h = 0; h < heads; h++) {
            const int64_t at = int64_t{h} * n;
            body(a.in[0].row<const float>(r) + at, a.out.row<float>(r) + at, n, w ? w + h * step : nullptr, at);
        }
}

void run_rms_norm(const Args& a, int64_t first, int64_t last, uint8_t*) noexcept {
    const float eps = static_cast<float>(a.attr[0]);
    each_head(a, first, last, [&](const float* x, float* y, int n, const float* w, int64_t) INLINE {
        const f32x16 scale = splat(norm_scale(x, n, eps));
        for (int i = 0; i < n; i += 16) {
            const f32x16 v = mul(load(x + i, n - i), scale);
            store(y + i, w ? mul(v, load(w + i, n - i)) : v, n - i);
        }
    });
}

// y = x - its mean
LANE void centre(const float* x, float* y, int n) {
    const f32x16 mean = splat(sum_of(x, n) / static_cast<float>(n));
    for (int i = 0; i < n; i += 16) store(y + i, sub(load(x + i, n - i), mean), n - i);
}

const char* check_layer_norm(const Args& a) {
    if (a.in[2].base && !is_vector(a.in[2], a.out.width)) return "the bias has another width";
    return check_rms_norm(a);
}

void run_layer_norm(const Args& a, int64_t first, int64_t last, uint8_t*) noexcept {
    const float eps = static_cast<float>(a.attr[0]);
    const float* bias = a.in[2].base ? a.in[2].row<const float>(0) : nullptr;
    each_head(a, first, last, [&](const float* x, float* y, int n, const float* w, int64_t at) INLINE {
        centre(x, y, n);
        const f32x16 scale = splat(norm_scale(y, n, eps));
        for (int i = 0; i < n; i += 16) {
            f32x16 v = mul(load(y + i, n - i), scale);
            if (w) v = mul(v, load(w + i, n - i));
            store(y + i, bias ? add(v, load(bias + at + i, n - i)) : v, n - i);
        }
    });
}

// Rows whose values `value` gives, 16 at a time, become records.
template <class Value> LANE void make_records(const Args& a, int64_t first, int64_t last, const Value& value) {
    const int n = a.out.width;
    const bool wide = a.out.layout == WIDE;
    for (int64_t r = first; r < last; r++) {
        const auto at = value(r);
        for (int i = 0; i < n; i += 32) quantize_block(at(i), at(i + 16), wide, a.out.row<uint8_t>(r), i / 32);
    }
}

const char* check_record(const Args& a, int bits) {
    return is_record(a.out, bits) && is_rows(a.in[0]) && a.in[0].width == a.out.width ? nullptr : "needs rows of a multiple of 32";
}
const char* check_quantize(const Args& a) { return check_record(a, static_cast<int>(a.attr[0])); }
const char* check_norm_quantize(const Args& a) {
    if (const char* wrong = check_record(a, static_cast<int>(a.attr[1]))) return wrong;
    return is_vector(a.in[1], a.out.width) ? nullptr : "the weight has another width";
}

void run_quantize(const Args& a, int64_t first, int64_t last, uint8_t*) noexcept {
    make_records(a, first, last, [&](int64_t r) INLINE {
        const float* x = a.in[0].row<const float>(r);
        return [x](int i) INLINE { return load(x + i); };
    });
}

void run_norm_quantize(const Args& a, int64_t first, int64_t last, uint8_t*) noexcept {
    const float* w = a.in[1].row<const float>(0);
    make_records(a, first, last, [&](int64_t r) INLINE {
        const float* x = a.in[0].row<const float>(r);
        const f32x16 scale = splat(norm_scale(x, a.out.width, static_cast<float>(a.attr[0])));
        return [x, w, scale](int i) INLINE { return mul(mul(load(x + i), scale), load(w + i)); };
    });
}

}  // namespace
