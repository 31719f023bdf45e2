// delta.inl: what adapters add to a product: scale * B (A x), for the rows that have some.
//
//   delta_down   A x, times the scale that the row's span has for the adapter: 16 rows of A belong to one (`owners`)
//   delta_up     B times that, over the adapters that the row has; -0 for a row that has none, so that adding it moves no bit
//
// Both in the order of float weights: 4 accumulators by column mod 4, columns ascending, joined (a0 + a1) + (a2 + a3).

namespace {

constexpr int DELTA_ROWS = 4;      // that are multiplied with a panel at a time

// 16 rows of A: whose they are, and which rows of the product they are for. Vectors of a program are floats.
struct Owner { float adapter, first, end; };
LANE const Owner* owners_of(const Args& a) { return a.in[2].row<const Owner>(0); }

// The scales of the adapters of a row, or nullptr where it has none.
LANE const float* scales_of(const Args& a, int64_t r) {
    const Step& step = *a.step;
    const int32_t span = step.span_of[a.wanted ? step.want[r] : r];
    return step.spans[span].adapter ? step.scales + int64_t{span} * step.adapters : nullptr;
}

// What a row takes 16 rows of A by; 0: it does not have their adapter.
LANE float scale_by(const Args& a, const float* scales, const Owner& owner) {
    return scales && owner.adapter >= 0 && owner.adapter < static_cast<float>(a.step->adapters) ? scales[static_cast<int64_t>(owner.adapter)] : 0.0f;
}

LANE bool owners_fit(const Args& a, int64_t ranks) { return ranks % PANEL == 0 && is_vector(a.in[2], 3 * (ranks / PANEL)); }

// A row of activations as floats: those there are, or what the integers stand for.
LANE const uint8_t* opened(const Operand& x, int64_t r, float* to) {
    if (x.layout == PLAIN) return x.row<const uint8_t>(r);
    for (int64_t b = 0; b < x.width / 32; b++)
        for (int i = 0; i < 32; i++) {
            if (x.layout == RECORD) {
                const Block8& block = x.row<const Block8>(r)[b];
                to[32 * b + i] = static_cast<float>(block.low[i]) * block.scale;
            } else {
                const Block16& block = x.row<const Block16>(r)[b];
                to[32 * b + i] = static_cast<float>(255 * block.high[i] + block.low[i]) * block.scale;
            }
        }
    return reinterpret_cast<const uint8_t*>(to);
}

const char* check_delta_down(const Args& a) {
    const Operand &x = a.in[0], &w = a.in[1];
    if (!x.base || (x.layout != PLAIN && x.layout != RECORD && x.layout != WIDE)) return "needs rows of activations";
    if (w.layout != LAYOUT_f32 || w.width != x.width || w.height < 1 || w.nbytes < panels_of(w.height) * w.stride || w.stride != panel_bytes(w.layout, w.width))
        return "needs weights of floats that fit the activations";
    return is_rows(a.out) && a.out.width == w.height && owners_fit(a, w.height) ? nullptr : "the result has another width";
}

size_t scratch_delta_down(const Args& a) { return DELTA_ROWS * sizeof(float) * static_cast<size_t>(a.in[0].width); }

Tiles tiles_delta_down(const Args& a) noexcept { return {a.out.width / PANEL, 1}; }

void run_delta_down(const Args& a, int64_t first, int64_t last, uint8_t* scratch) noexcept {
    const int64_t columns = a.in[0].width;
    for (int64_t p = first; p < last; p++) {
        const uint8_t* panel = a.in[1].base + p * a.in[1].stride;
        const uint8_t* rows[DELTA_ROWS];
        float* out[DELTA_ROWS];
        float scale[DELTA_ROWS];
        int count = 0;
        const auto multiply = [&] {
            f32x16 y[DELTA_ROWS];
            if (count == DELTA_ROWS) float_product<PanelF32, DELTA_ROWS>(panel, rows_of(rows, columns), 0, floats_of(y));
            else for (int i = 0; i < count; i++) float_product<PanelF32, 1>(panel, rows_of(rows, columns), i, floats_of(y + i));
            for (int i = 0; i < count; i++) store(out[i], mul(y[i], splat(scale[i])));
            count = 0;
        };
        for (int64_t r = 0; r < a.rows; r++) {
            float* low = a.out.row<float>(r) + p * PANEL;
            scale[count] = scale_by(a, scales_of(a, r), owners_of(a)[p]);
            if (scale[count] == 0.0f) {
                store(low, splat(0.0f));
                continue;
            }
            rows[count] = opened(a.in[0], r, reinterpret_cast<float*>(scratch) + count * columns);
            out[count] = low;
            if (++count == DELTA_ROWS) multiply();
        }
        multiply();
    }
}

const char* check_delta_up(const Args& a) {
    const Operand &low = a.in[0], &w = a.in[1];
    if (!is_rows(low) || !is_rows(a.out) || low.width != w.width || a.out.width != w.height) return "the result has another width";
    if (w.layout != LAYOUT_f32 || w.stride != panel_bytes(w.layout, w.width) || w.nbytes < panels_of(w.height) * w.stride) return "needs weights of floats";
    return owners_fit(a, w.width) ? nullptr : "needs an owner of each 16 columns";
}

Tiles tiles_delta_up(const Args& a) noexcept { return tiles_of_weights(panels_of(a.out.width), a.in[1].stride, a.rows); }

void run_delta_up(const Args& a, int64_t first, int64_t last, uint8_t*) noexcept {
    const Owner* owners = owners_of(a);
    for (int64_t p = first; p < last; p++) {
        const uint8_t* panel = a.in[1].base + p * a.in[1].stride;
        const int width = static_cast<int>(a.out.width - p * PANEL);
        const auto begin = static_cast<float>(p * PANEL), end = static_cast<float>((p + 1) * PANEL);
        for (int64_t r = 0; r < a.rows; r++) {
            float* out = a.out.row<float>(r) + p * PANEL;
            const float* scales = scales_of(a, r);
            if (!scales) {
                store(out, splat(-0.0f), width);
                continue;
            }
            const float* low = a.in[0].row<const float>(r);
            f32x16 part[4];
            unroll<4>([&](auto i) INLINE { part[i.value] = splat(0.0f); });
            for (int64_t block = 0; block < a.in[1].width / PANEL; block++) {
                const Owner& owner = owners[block];
                if (owner.first >= end || owner.end <= begin || scale_by(a, scales, owner) == 0.0f) continue;
                for (int64_t k = block * PANEL; k < (block + 1) * PANEL; k += 4)
                    unroll<4>([&](auto i) INLINE { part[i.value] = fma(PanelF32::row(panel, k + i.value), splat(low[k + i.value]), part[i.value]); });
            }
            store(out, add(add(part[0], part[1]), add(part[2], part[3])), width);
        }
    }
}

}  // namespace
