// rope.inl: rotary positions and mistral3's attention temperature. One tile is one row.
//
//   rope    pairs (a, b) of the first `rot` values of each head become a c - b s and a s + b c, not fused;
//           pairs are (2i, 2i+1), or (i, i + rot/2) with `neox`; the table's row is cos[rot/2] then sin[rot/2]
//   scale_by_position  x * table[position]

namespace {

const char* check_rope(const Args& a) {
    if (const char* wrong = check_same(a)) return wrong;
    const int heads = static_cast<int>(a.attr[0]), rot = static_cast<int>(a.attr[1]);
    if (heads < 1 || a.out.width % heads || rot < 2 || rot % 2 || rot > a.out.width / heads) return "heads and rotation do not fit";
    return is_rows(a.in[2]) && a.in[2].width == rot ? nullptr : "the table has another width";
}

size_t scratch_rope(const Args& a) { return static_cast<size_t>(2 * a.attr[1]) * sizeof(float); }

// Pairs (2i, 2i+1): every value times its cosine, plus its neighbour times the sine, which is negative for the first.
LANE void rotate_pairs(const float* x, const float* cosines, const float* sines, int rot, float* y) {
    for (int i = 0; i < rot; i += 16) {
        const f32x16 v = load(x + i, rot - i);
        store(y + i, add(mul(v, load(cosines + i, rot - i)), mul(swapped(v), load(sines + i, rot - i))), rot - i);
    }
}

LANE void rotate_halves(const float* x, const float* c, const float* s, int half, float* y) {
    for (int i = 0; i < half; i += 16) {
        const int n = half - i;
        const f32x16 cos = load(c + i, n), sin = load(s + i, n), p = load(x + i, n), q = load(x + half + i, n);
        store(y + i, sub(mul(p, cos), mul(q, sin)), n);
        store(y + half + i, add(mul(p, sin), mul(q, cos)), n);
    }
}

void run_rope(const Args& a, int64_t first, int64_t last, uint8_t* scratch) noexcept {
    const int heads = static_cast<int>(a.attr[0]), rot = static_cast<int>(a.attr[1]), half = rot / 2, dim = a.out.width / heads;
    const bool neox = a.attr[2] != 0;
    float *cosines = reinterpret_cast<float*>(scratch), *sines = cosines + rot;
    for (int64_t r = first; r < last; r++) {
        const float* c = a.in[2].row<const float>(a.step->position[r]);
        const float* s = c + half;
        for (int i = 0; i < rot && !neox; i++) {
            cosines[i] = c[i / 2];
            sines[i] = i % 2 ? s[i / 2] : -s[i / 2];
        }
        for (int h = 0; h < heads; h++) {
            const float* x = a.in[0].row<const float>(r) + static_cast<int64_t>(h) * dim;
            float* y = a.out.row<float>(r) + static_cast<int64_t>(h) * dim;
            if (neox) rotate_halves(x, c, s, half, y);
            else rotate_pairs(x, cosines, sines, rot, y);
            if (rot < dim) memcpy(y + rot, x + rot, static_cast<size_t>(dim - rot) * 4);
        }
    }
}

const char* check_scale_by_position(const Args& a) {
    if (const char* wrong = check_same(a)) return wrong;
    return is_rows(a.in[2]) && a.in[2].width == 1 ? nullptr : "the table has another width";
}

void run_scale_by_position(const Args& a, int64_t first, int64_t last, uint8_t*) noexcept {
    each(a, first, last, [&](int64_t r, int, f32x16 x) INLINE { return mul(x, splat(*a.in[2].row<const float>(a.step->position[r]))); });
}

}  // namespace
