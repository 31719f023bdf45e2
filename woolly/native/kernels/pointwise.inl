// pointwise.inl: what is done value by value, and the choice of rows. One tile is one row.
//
//   add x + y   mul x * y   silu x / (1 + e^-x)   scale x * by   divide x / by   add_bias x + b   take rows of `want`

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
void run_silu(const Args& a, int64_t first, int64_t last, uint8_t*) noexcept {
    each(a, first, last, [](int64_t, int, f32x16 x) INLINE { return silu(x); });
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
