// cache.inl: the key and value cache.
//
// A page holds PAGE positions of every layer. One layer's piece: for each key-value head its keys, then its values.
//   keys    [PAGE/16][dim][16 positions]   lanes are positions       values  [PAGE][value dim]   lanes are dimensions
//   q8 adds scales of 32 dimensions behind each:  f16 [PAGE/16][dim/32][16]   and   f16 [PAGE][dim/32]
//   where one row is for both: rows [PAGE][dim], as values, whose first columns are values; keys are turned as they are read
// So neither product of attention sums across lanes. `Keys` reads 32 dimensions of a group of 16 positions, `Values` a
// page; what it has to unpack first, f32 [PAGE][dim/32], is written to `unpacked`.
//
//   store   one tile a row: the step's keys and values, rounded to the cache's type, to their positions
//   (store_attend does the same where it attends: attention.inl)

namespace {

struct CacheF32 {
    static constexpr bool LATENT = false;
    static constexpr int BYTES = 4;      // of a value, scales apart
    static LANE void fetch_scales(const uint8_t*, int) {}
    static int64_t keys(int dim) { return int64_t{PAGE} * dim * 4; }
    static int64_t values(int dim) { return int64_t{PAGE} * dim * 4; }
    struct Keys {
        const float* group;
        Keys() = default;
        LANE Keys(const uint8_t* k, int dim, int g, int) : group(reinterpret_cast<const float*>(k) + int64_t{g} * dim * 16) {}
        LANE f32x16 at(int i) const { return load(group + int64_t{i} * 16); }
    };
    struct Values {
        const float* page;
        int dim;
        LANE Values(const uint8_t* v, int d, float*) : page(reinterpret_cast<const float*>(v)), dim(d) {}
        LANE f32x16 at(int slot, int i, int n) const { return load(page + int64_t{slot} * dim + i, n); }
    };
    static void put_key(uint8_t* k, int dim, int slot, const float* x) {
        float* at = reinterpret_cast<float*>(k) + int64_t{slot / 16} * dim * 16 + slot % 16;
        for (int i = 0; i < dim; i++) at[int64_t{i} * 16] = x[i];
    }
    static void put_value(uint8_t* v, int dim, int slot, const float* x) {
        memcpy(v + int64_t{slot} * dim * 4, x, static_cast<size_t>(dim) * 4);
    }
};

LANE f32x16 within_f16(f32x16 x) { return min(splat(65504.0f), max(splat(-65504.0f), x)); }

struct CacheF16 {
    static constexpr bool LATENT = false;
    static constexpr int BYTES = 2;
    static LANE void fetch_scales(const uint8_t*, int) {}
    static int64_t keys(int dim) { return int64_t{PAGE} * dim * 2; }
    static int64_t values(int dim) { return int64_t{PAGE} * dim * 2; }
    struct Keys {
        const uint16_t* group;
        Keys() = default;
        LANE Keys(const uint8_t* k, int dim, int g, int) : group(reinterpret_cast<const uint16_t*>(k) + int64_t{g} * dim * 16) {}
        LANE f32x16 at(int i) const { return load_f16(group + int64_t{i} * 16); }
    };
    struct Values {
        const uint16_t* page;
        int dim;
        LANE Values(const uint8_t* v, int d, float*) : page(reinterpret_cast<const uint16_t*>(v)), dim(d) {}
        LANE f32x16 at(int slot, int i, int n) const { return load_f16(page + int64_t{slot} * dim + i, n); }
    };
    static void put_key(uint8_t* k, int dim, int slot, const float* x) {
        uint16_t* at = reinterpret_cast<uint16_t*>(k) + int64_t{slot / 16} * dim * 16 + slot % 16;
        for (int i = 0; i < dim; i += 16) {
            uint16_t half[16];
            store_f16(half, within_f16(load(x + i, dim - i)), 16);
            for (int j = 0; j < 16 && i + j < dim; j++) at[int64_t{i + j} * 16] = half[j];
        }
    }
    static void put_value(uint8_t* v, int dim, int slot, const float* x) {
        uint16_t* at = reinterpret_cast<uint16_t*>(v) + int64_t{slot} * dim;
        for (int i = 0; i < dim; i += 16) store_f16(at + i, within_f16(load(x + i, dim - i)), dim - i);
    }
};

struct CacheQ8 {
    static constexpr bool LATENT = false;
    static constexpr int BYTES = 1;
    static int groups(int dim) { return (dim + 31) / 32; }
    static int64_t keys(int dim) { return int64_t{PAGE} * (dim + 2 * groups(dim)); }
    static int64_t values(int dim) { return keys(dim); }
    static LANE const uint16_t* scales(const uint8_t* p, int dim) { return reinterpret_cast<const uint16_t*>(p + int64_t{PAGE} * dim); }
    static LANE void fetch_scales(const uint8_t* p, int dim) {      // of a page's keys, or of its values
        const uint16_t* s = scales(p, dim);
        for (int i = 0; i < PAGE * groups(dim); i += 32) __builtin_prefetch(s + i, 0, 2);
    }
    struct Keys {
        const int8_t* group;
        f32x16 scale;
        Keys() = default;
        LANE Keys(const uint8_t* k, int dim, int g, int i)
            : group(reinterpret_cast<const int8_t*>(k) + int64_t{g} * dim * 16), scale(load_f16(scales(k, dim) + (int64_t{g} * groups(dim) + i / 32) * 16)) {}
        LANE f32x16 at(int i) const { return mul(to_f32(load_i8(group + int64_t{i} * 16)), scale); }
    };
    struct Values {
        const int8_t* page;
        int dim;
        const float* scale;
        LANE Values(const uint8_t* v, int d, float* unpacked) : page(reinterpret_cast<const int8_t*>(v)), dim(d), scale(unpacked) {
            for (int i = 0; i < PAGE * groups(d); i += 16) store(unpacked + i, load_f16(scales(v, d) + i));
        }
        LANE f32x16 at(int slot, int i, int n) const {
            return mul(to_f32(load_i8(page + int64_t{slot} * dim + i, n)), splat(scale[slot * groups(dim) + i / 32]));
        }
    };
    // up to 32 values with one scale: s = f16(max / 127), q = round(x / s) within +-127; one that is not finite
    // makes the scale a NaN
    static LANE uint16_t quantize(const float* x, int n, int8_t* q) {
        const f32x16 low = load(x, n), high = load(x + 16, n - 16);
        const int32_t bits = highest(max(magnitude(low), magnitude(high)));
        uint16_t half;
        store_f16(&half, within_f16(splat(bits >= 0x7f800000 ? __builtin_nanf("") : as_float(bits) / 127.0f)), 1);
        float scale[16];
        store(scale, splat_f16(&half));
        const f32x16 inverse = splat(scale[0] == 0.0f ? 0.0f : 1.0f / scale[0]);
        const auto clamped = [&](f32x16 v) INLINE { return round(min(splat(127.0f), max(splat(-127.0f), mul(v, inverse)))); };
        store_i8(q, clamped(low), n);
        if (n > 16) store_i8(q + 16, clamped(high), n - 16);
        return half;
    }
    static void put_key(uint8_t* k, int dim, int slot, const float* x) {
        int8_t* at = reinterpret_cast<int8_t*>(k) + int64_t{slot / 16} * dim * 16 + slot % 16;
        uint16_t* scale = const_cast<uint16_t*>(scales(k, dim)) + int64_t{slot / 16} * groups(dim) * 16 + slot % 16;
        for (int i = 0; i < dim; i += 32) {
            int8_t q[32];
            scale[int64_t{i / 32} * 16] = quantize(x + i, dim - i < 32 ? dim - i : 32, q);
            for (int j = 0; j < 32 && i + j < dim; j++) at[int64_t{i + j} * 16] = q[j];
        }
    }
    static void put_value(uint8_t* v, int dim, int slot, const float* x) {
        int8_t* at = reinterpret_cast<int8_t*>(v) + int64_t{slot} * dim;
        uint16_t* scale = const_cast<uint16_t*>(scales(v, dim)) + int64_t{slot} * groups(dim);
        for (int i = 0; i < dim; i += 32) scale[i / 32] = quantize(x + i, dim - i < 32 ? dim - i : 32, at + i);
    }
};

// One row of a position for all heads, whose first columns are its values.
template <class Base> struct Latent : Base {
    static constexpr bool LATENT = true;
    static int64_t keys(int dim) { return Base::values(dim); }
    static int64_t values(int) { return 0; }
    static void put_key(uint8_t* k, int dim, int slot, const float* x) { Base::put_value(k, dim, slot, x); }
    static void put_value(uint8_t*, int, int, const float*) {}
    // 16 positions of a page from `slot` on, lanes are positions: f32 [dim][16]
    static LANE void turn(const uint8_t* page, int dim, int slot, float* scales, float* out) {
        const typename Base::Values rows(page, dim, scales);
        for (int i = 0; i < dim; i += 16) {
            float block[16][16];
            for (int j = 0; j < 16; j++) store(block[j], rows.at(slot + j, i, dim - i));
            for (int c = 0; c < 16 && i + c < dim; c += 4)
                for (int j = 0; j < 16; j += 4) {
                    Words x[4];
                    for (int t = 0; t < 4; t++) x[t] = get(reinterpret_cast<const uint8_t*>(block[j + t] + c));
                    transpose(x);
                    for (int t = 0; t < 4; t++) put(reinterpret_cast<uint8_t*>(out + (i + c + t) * 16 + j), x[t]);
                }
        }
    }
};

LANE bool is_latent(int32_t layout) { return layout == LATENT_F32 || layout == LATENT_F16 || layout == LATENT_Q8; }

template <class Body> LANE void with_cache(int32_t layout, const Body& body) {
    switch (layout) {
        case LATENT_F32: body(Latent<CacheF32>{}); break;
        case LATENT_F16: body(Latent<CacheF16>{}); break;
        case LATENT_Q8: body(Latent<CacheQ8>{}); break;
        case KV_F32: body(CacheF32{}); break;
        case KV_F16: body(CacheF16{}); break;
        case KV_Q8: body(CacheQ8{}); break;
    }
}

// Whether a state holds keys, and values of this size.
LANE bool is_state(const Operand& s, int value_dim) {
    if (!s.base || s.width < 1 || value_dim < 1 || s.height < 1 || s.stride < 0 || (is_latent(s.layout) && value_dim > s.width)) return false;
    int64_t need = -1;
    with_cache(s.layout, [&](auto cache) { need = s.height * (cache.keys(s.width) + cache.values(value_dim)); });
    return need >= 0 && s.nbytes >= need;
}

// What is to be stored: a row's keys and values have one piece for each head of the cache.
struct Stored {
    const Step*    step;
    const Operand &keys, &values, &state;
    const char* check() const {
        const bool latent = is_latent(state.layout);
        if (!is_rows(keys) || (latent ? values.base != nullptr : !is_rows(values)) || state.height < 1 || values.width % state.height) return "needs keys and values of each head";
        if (!is_state(state, latent ? 1 : value_dim())) return "needs a cache";
        return keys.width == int64_t{state.height} * state.width ? nullptr : "keys have another width";
    }
    LANE int value_dim() const { return values.width / state.height; }
    template <class Cache> LANE void put(int64_t r, int head) const {
        const int dim = state.width, position = step->position[r];
        uint8_t* at = step->page(state, step->span_of[r], position) + state.stride + head * (Cache::keys(dim) + Cache::values(value_dim()));
        Cache::put_key(at, dim, position % PAGE, keys.row<const float>(r) + int64_t{head} * dim);
        if (values.base) Cache::put_value(at + Cache::keys(dim), value_dim(), position % PAGE, values.row<const float>(r) + int64_t{head} * value_dim());
    }
};

const char* check_store(const Args& a) { return Stored{a.step, a.in[0], a.in[1], a.in[2]}.check(); }

void run_store(const Args& a, int64_t first, int64_t last, uint8_t*) noexcept {
    const Stored stored{a.step, a.in[0], a.in[1], a.in[2]};
    with_cache(a.in[2].layout, [&](auto cache) {
        for (int64_t r = first; r < last; r++)
            for (int h = 0; h < a.in[2].height; h++) stored.put<decltype(cache)>(r, h);
    });
}

}  // namespace
