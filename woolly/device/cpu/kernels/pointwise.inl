// pointwise.inl: what is done value by value, and the choice of rows. One tile is one row.
//
//   add x + y   mul x * y   scale x * by   divide x / by   add_bias x + b   mul_vector x * w   div_vector x / w
//   silu, gelu, relu, relu2, sigmoid, tanh, exp, softplus, soft_cap, clamp, xielu, clamped_gate: as model/ops/elementwise.py says
//   scale_heads each head times its number   head_sums their sums   join head after head of two   add_scaled x + y * by   rescale, sparsify: norm.inl   take rows of `want`

namespace {

const char* check_same(const Args& a) {
    return is_rows(a.out) && is_rows(a.in[0]) && a.in[0].width == a.out.width ? nullptr : "needs rows of one width";
}
const char* check_two(const Args& a) {
    if (const char* wrong = check_same(a)) return wrong;
    return is_rows(a.in[1]) && a.in[1].width == a.out.width ? nullptr : "needs rows of one width";
}
const char* check_vector(const Args& a) {
    if (const char* wrong = check_same(a)) return wrong;
    return is_vector(a.in[1], a.out.width) ? nullptr : "the vector has another width";
}

template <class F> LANE void each(const Args& a, int64_t first, int64_t last, const F& f) {
    const int n = a.out.width;
    for (int64_t r = first; r < last; r++) {
        const float* x = a.in[0].row<const float>(r);
        float* y = a.out.row<float>(r);
        for (int i = 0; i < n; i += 16) store(y + i, f(r, i, load(x + i, n - i)), n - i);
    }
}

void run_add(const Args& a, int64_t first, int64_t last, uint8_t*) noexcept {
    each(a, first, last, [&](int64_t r, int i, f32x16 x) INLINE { return add(x, load(a.in[1].row<const float>(r) + i, a.out.width - i)); });
}
void run_mul(const Args& a, int64_t first, int64_t last, uint8_t*) noexcept {
    each(a, first, last, [&](int64_t r, int i, f32x16 x) INLINE { return mul(x, load(a.in[1].row<const float>(r) + i, a.out.width - i)); });
}
void run_add_bias(const Args& a, int64_t first, int64_t last, uint8_t*) noexcept {
    each(a, first, last, [&](int64_t, int i, f32x16 x) INLINE { return add(x, load(a.in[1].row<const float>(0) + i, a.out.width - i)); });
}
void run_mul_vector(const Args& a, int64_t first, int64_t last, uint8_t*) noexcept {
    each(a, first, last, [&](int64_t, int i, f32x16 x) INLINE { return mul(x, load(a.in[1].row<const float>(0) + i, a.out.width - i)); });
}
void run_div_vector(const Args& a, int64_t first, int64_t last, uint8_t*) noexcept {
    each(a, first, last, [&](int64_t, int i, f32x16 x) INLINE { return div(x, load(a.in[1].row<const float>(0) + i, a.out.width - i)); });
}
void run_silu(const Args& a, int64_t first, int64_t last, uint8_t*) noexcept {
    each(a, first, last, [](int64_t, int, f32x16 x) INLINE { return silu(x); });
}
void run_gelu(const Args& a, int64_t first, int64_t last, uint8_t*) noexcept {
    each(a, first, last, [](int64_t, int, f32x16 x) INLINE { return gelu(x); });
}
void run_relu(const Args& a, int64_t first, int64_t last, uint8_t*) noexcept {
    each(a, first, last, [](int64_t, int, f32x16 x) INLINE { return relu(x); });
}
void run_relu2(const Args& a, int64_t first, int64_t last, uint8_t*) noexcept {
    each(a, first, last, [](int64_t, int, f32x16 x) INLINE { return mul(relu(x), relu(x)); });
}
void run_sigmoid(const Args& a, int64_t first, int64_t last, uint8_t*) noexcept {
    each(a, first, last, [](int64_t, int, f32x16 x) INLINE { return sigmoid(x); });
}
void run_tanh(const Args& a, int64_t first, int64_t last, uint8_t*) noexcept {
    each(a, first, last, [](int64_t, int, f32x16 x) INLINE { return tanh(x); });
}
void run_exp(const Args& a, int64_t first, int64_t last, uint8_t*) noexcept {
    each(a, first, last, [](int64_t, int, f32x16 x) INLINE { return exp(x); });
}
void run_softplus(const Args& a, int64_t first, int64_t last, uint8_t*) noexcept {
    each(a, first, last, [](int64_t, int, f32x16 x) INLINE { return softplus(x); });
}
void run_soft_cap(const Args& a, int64_t first, int64_t last, uint8_t*) noexcept {
    const f32x16 cap = splat(static_cast<float>(a.attr[0]));
    each(a, first, last, [&](int64_t, int, f32x16 x) INLINE { return soft_cap(x, cap); });
}
void run_clamp(const Args& a, int64_t first, int64_t last, uint8_t*) noexcept {
    const f32x16 least = splat(static_cast<float>(a.attr[0])), most = splat(static_cast<float>(a.attr[1]));
    each(a, first, last, [&](int64_t, int, f32x16 x) INLINE { return min(most, max(least, x)); });
}
void run_xielu(const Args& a, int64_t first, int64_t last, uint8_t*) noexcept {
    const auto attr = [&](int i) { return splat(static_cast<float>(a.attr[i])); };
    const f32x16 above = attr(0), below = attr(1), beta = attr(2), eps = attr(3);
    each(a, first, last, [&](int64_t, int, f32x16 x) INLINE {
        float value[16], rise[16], fall[16];
        store(value, x);
        store(rise, mul(above, mul(x, x)));
        store(fall, mul(sub(sub(exp(min(x, eps)), splat(1.0f)), x), below));
        for (int i = 0; i < 16; i++) fall[i] = value[i] > 0.0f ? rise[i] : fall[i];
        return fma(beta, x, load(fall));
    });
}
void run_clamped_gate(const Args& a, int64_t first, int64_t last, uint8_t*) noexcept {
    const f32x16 alpha = splat(static_cast<float>(a.attr[0])), most = splat(static_cast<float>(a.attr[1])), one = splat(1.0f);
    const f32x16 least = splat(-static_cast<float>(a.attr[1]));
    each(a, first, last, [&](int64_t r, int i, f32x16 x) INLINE {
        const f32x16 gate = min(most, x), up = min(most, max(least, load(a.in[1].row<const float>(r) + i, a.out.width - i)));
        return mul(div(gate, add(one, exp(sub(splat(0.0f), mul(gate, alpha))))), add(up, one));
    });
}
const char* check_scale_heads(const Args& a) {
    if (const char* wrong = check_same(a)) return wrong;
    return is_rows(a.in[1]) && a.out.width % a.in[1].width == 0 ? nullptr : "there is no number for each head";
}
void run_scale_heads(const Args& a, int64_t first, int64_t last, uint8_t*) noexcept {
    const int heads = a.in[1].width, n = a.out.width / heads;
    for (int64_t r = first; r < last; r++)
        for (int h = 0; h < heads; h++) {
            const f32x16 by = splat(a.in[1].row<const float>(r)[h]);
            const float* x = a.in[0].row<const float>(r) + int64_t{h} * n;
            float* y = a.out.row<float>(r) + int64_t{h} * n;
            for (int i = 0; i < n; i += 16) store(y + i, mul(load(x + i, n - i), by), n - i);
        }
}
const char* check_head_sums(const Args& a) {
    return is_rows(a.out) && is_rows(a.in[0]) && a.attr[0] == a.out.width && a.in[0].width % a.out.width == 0 ? nullptr : "there is no sum for each head";
}
void run_head_sums(const Args& a, int64_t first, int64_t last, uint8_t*) noexcept {
    const int heads = a.out.width, n = a.in[0].width / heads;
    for (int64_t r = first; r < last; r++)
        for (int h = 0; h < heads; h++) a.out.row<float>(r)[h] = sum_of(a.in[0].row<const float>(r) + int64_t{h} * n, n);
}
const char* check_join(const Args& a) {
    if (!is_rows(a.out) || !is_rows(a.in[0]) || !is_rows(a.in[1]) || a.out.width != a.in[0].width + a.in[1].width) return "the result has another width";
    const double heads = a.attr[0];
    return heads >= 1 && heads <= INT32_MAX && a.in[0].width % static_cast<int>(heads) == 0 && a.in[1].width % static_cast<int>(heads) == 0 ? nullptr : "there are no such heads";
}
void run_join(const Args& a, int64_t first, int64_t last, uint8_t*) noexcept {
    const int heads = static_cast<int>(a.attr[0]);
    const size_t n = static_cast<size_t>(a.in[0].width / heads), m = static_cast<size_t>(a.in[1].width / heads);
    for (int64_t r = first; r < last; r++)
        for (size_t h = 0; h < static_cast<size_t>(heads); h++) {
            float* y = a.out.row<float>(r) + h * (n + m);
            memcpy(y, a.in[0].row<const float>(r) + h * n, 4 * n);
            memcpy(y + n, a.in[1].row<const float>(r) + h * m, 4 * m);
        }
}
const char* check_add_scaled(const Args& a) {
    if (const char* wrong = check_two(a)) return wrong;
    return is_rows(a.in[2]) && a.in[2].width == 1 ? nullptr : "there is no number for each row";
}
void run_add_scaled(const Args& a, int64_t first, int64_t last, uint8_t*) noexcept {
    each(a, first, last, [&](int64_t r, int i, f32x16 x) INLINE {
        return fma(load(a.in[1].row<const float>(r) + i, a.out.width - i), splat(a.in[2].row<const float>(r)[0]), x);
    });
}
void run_rescale(const Args& a, int64_t first, int64_t last, uint8_t*) noexcept {
    const int n = a.out.width;
    for (int64_t r = first; r < last; r++) {
        const float *x = a.in[0].row<const float>(r), *like = a.in[1].row<const float>(r);
        const f32x16 by = splat(__builtin_sqrtf(sum_of_squares(like, n)) / __builtin_sqrtf(sum_of_squares(x, n)));
        for (int i = 0; i < n; i += 16) store(a.out.row<float>(r) + i, mul(load(x + i, n - i), by), n - i);
    }
}
size_t scratch_sparsify(const Args& a) { return static_cast<size_t>(a.out.width) * sizeof(float); }
void run_sparsify(const Args& a, int64_t first, int64_t last, uint8_t* scratch) noexcept {
    const int n = a.out.width;
    float* centred = reinterpret_cast<float*>(scratch);
    for (int64_t r = first; r < last; r++) {
        const float* x = a.in[0].row<const float>(r);
        const float mean = sum_of(x, n) / static_cast<float>(n);
        centre(x, centred, n);
        const float deviation = __builtin_sqrtf(sum_of_squares(centred, n) / static_cast<float>(n - 1));
        const f32x16 least = splat(__builtin_fmaf(deviation, static_cast<float>(a.attr[0]), mean));
        for (int i = 0; i < n; i += 16) store(a.out.row<float>(r) + i, relu(sub(load(x + i, n - i), least)), n - i);
    }
}
void run_scale(const Args& a, int64_t first, int64_t last, uint8_t*) noexcept {
    const f32x16 by = splat(static_cast<float>(a.attr[0]));
    each(a, first, last, [&](int64_t, int, f32x16 x) INLINE { return mul(x, by); });
}
void run_divide(const Args& a, int64_t first, int64_t last, uint8_t*) noexcept {
    const f32x16 by = splat(static_cast<float>(a.attr[0]));
    each(a, first, last, [&](int64_t, int, f32x16 x) INLINE { return div(x, by); });
}
void run_take(const Args& a, int64_t first, int64_t last, uint8_t*) noexcept {
    for (int64_t r = first; r < last; r++)
        memcpy(a.out.row<float>(r), a.in[0].row<const float>(a.step->want[r]), static_cast<size_t>(a.out.width) * 4);
}

}  // namespace
