// panels.inl: how each layout keeps 16 rows of weights. formats/layouts.py is the definition of the bytes.
//
// A panel is a run of units along k; a unit has `blocks` blocks of 32 columns. A line is 64 bytes: 4 columns (a
// group) of 16 rows, byte 4 * row + i. A block has 8 groups:
//   nibbles  4 lines: line j has group j in the low halves and group j+4 in the high ones
//   crumbs   2 lines of 2-bit fields: line h, bits 2j..2j+1 is group 4h+j
//   bits     1 line: bit g is group g
//   bytes    8 lines, one a group
//   sixes    6 lines, three for four groups: line 3h+j has group 4h+j, and above it two bits of group 4h+3
// `codes<G>(j)` gives the unsigned codes of group G in block j, MAX_CODE at the most; the value is code - ZERO_POINT.
// `scales(j)` gives the factors. PREFETCH_ROWS is how many rows of activations it takes until fetching the weights ahead pays:
// one row leaves that to the hardware, which follows one stream well, but not the two of Q5_K, nor, where six bits take
// long to put together, that of Q6_K.

namespace {

template <int G> LANE u8x64 nibbles(const uint8_t* lines) { return field<G / 4 * 4, 15>(load(lines + 64 * (G % 4))); }
template <int G> LANE u8x64 crumbs(const uint8_t* lines) { return field<2 * (G % 4), 3>(load(lines + 64 * (G / 4))); }
// shifted by AT, to where they are wanted
template <int G, int AT> LANE u8x64 bits(const uint8_t* line) { return field<G - AT, 1 << AT>(load(line)); }
template <int G> LANE u8x64 sixes(const uint8_t* lines) {
    const uint8_t* three = lines + 192 * (G / 4);
    if constexpr (G % 4 < 3) return field<0, 63>(load(three + 64 * (G % 4)));
    else return either(either(field<6, 3>(load(three)), field<4, 12>(load(three + 64))), field<2, 48>(load(three + 128)));
}
LANE f32x16 halves(const uint8_t* p) { return load_f16(reinterpret_cast<const uint16_t*>(p)); }

using TwoRows = uint32_t __attribute__((vector_size(32)));      // of small numbers, a byte for each of 16 lanes

struct Scales {                 // of one block of 32 columns: one group of 32, or two of 16
    f32x16 scale[2], min[2];
};

// Types of one block a unit: a scale, perhaps a minimum, 4 or 5 bits.
template <bool HAS_MIN_, int BITS, int ZERO_POINT_> struct SmallPanel {
    static constexpr int blocks = 1, groups = 1, MAX_CODE = (1 << BITS) - 1, ZERO_POINT = ZERO_POINT_, PREFETCH_ROWS = 2;
    static constexpr bool QUANTISED = true, HAS_MIN = HAS_MIN_;
    static constexpr int header = HAS_MIN ? 64 : 32, nbytes = header + 256 + (BITS == 5 ? 64 : 0);
    const uint8_t* p;
    LANE explicit SmallPanel(const uint8_t* unit) : p(unit) {}
    LANE Scales scales(int) const {
        Scales s;
        s.scale[0] = halves(p);
        if constexpr (HAS_MIN) s.min[0] = halves(p + 32);
        return s;
    }
    template <int G> LANE u8x64 codes(int) const {
        const u8x64 low = nibbles<G>(p + header);
        if constexpr (BITS == 5) return either(low, bits<G, 4>(p + header + 256));
        else return low;
    }
};
using PanelQ4_0 = SmallPanel<false, 4, 8>;
using PanelQ4_1 = SmallPanel<true, 4, 0>;
using PanelQ5_0 = SmallPanel<false, 5, 16>;
using PanelQ5_1 = SmallPanel<true, 5, 0>;

struct PanelQ8_0 {
    static constexpr int blocks = 1, groups = 1, MAX_CODE = 255, ZERO_POINT = 128, nbytes = 544, PREFETCH_ROWS = 3;
    static constexpr bool QUANTISED = true, HAS_MIN = false;
    const uint8_t* p;
    LANE explicit PanelQ8_0(const uint8_t* unit) : p(unit) {}
    LANE Scales scales(int) const {
        Scales s;
        s.scale[0] = halves(p);
        return s;
    }
    template <int G> LANE u8x64 codes(int) const { return load(p + 32 + 64 * G); }
};

// Q4_K and Q5_K: 6-bit scales and minimums; low nibbles of both in 8 x 16 bytes, their high bits in 4 x 16. Those of a unit
// are put together as bytes, two blocks at a time, before they become floats: block by block that would be a third of the
// work for a single row of activations.
template <int BITS> struct PanelK {
    static constexpr int blocks = 8, groups = 1, MAX_CODE = (1 << BITS) - 1, ZERO_POINT = 0, nbytes = BITS == 4 ? 2304 : 2816, PREFETCH_ROWS = BITS == 5 ? 1 : 2;
    static constexpr bool QUANTISED = true, HAS_MIN = true;
    const uint8_t* p;
    f32x16 d, min;
    uint8_t scale[8 * 16], minimum[8 * 16];
    LANE explicit PanelK(const uint8_t* unit) : p(unit), d(halves(unit)), min(halves(unit + 32)) {
        unroll<4>([&](auto i) INLINE {
            TwoRows low;
            memcpy(&low, p + 64 + 32 * i.value, 32);
            const Words h = get(p + 192 + 16 * i.value);
            const TwoRows high = TwoRows{h[0], h[1], h[2], h[3], h[0], h[1], h[2], h[3]} >> TwoRows{0, 0, 0, 0, 4, 4, 4, 4};
            const TwoRows scales = (low & in_each_byte(15)) | (high << 4 & in_each_byte(0x30));
            const TwoRows minimums = (low >> 4 & in_each_byte(15)) | (high << 2 & in_each_byte(0x30));
            memcpy(scale + 32 * i.value, &scales, 32);
            memcpy(minimum + 32 * i.value, &minimums, 32);
        });
    }
    LANE Scales scales(int j) const {
        Scales s;
        s.scale[0] = mul(to_f32(load_u8(scale + 16 * j)), d);
        s.min[0] = mul(to_f32(load_u8(minimum + 16 * j)), min);
        return s;
    }
    template <int G> LANE u8x64 codes(int j) const {
        const u8x64 low = nibbles<G>(p + 256 + 256 * j);
        if constexpr (BITS == 5) return either(low, bits<G, 4>(p + 2304 + 64 * j));
        else return low;
    }
};
using PanelQ4_K = PanelK<4>;
using PanelQ5_K = PanelK<5>;

struct PanelQ6_K {
    static constexpr int blocks = 8, groups = 2, MAX_CODE = 63, ZERO_POINT = 32, nbytes = 3360, PREFETCH_ROWS = PREFETCH_ROWS_6BIT;
    static constexpr bool QUANTISED = true, HAS_MIN = false;
    const uint8_t* p;
    f32x16 d;
    LANE explicit PanelQ6_K(const uint8_t* unit) : p(unit), d(halves(unit)) {}
    LANE Scales scales(int j) const {
        Scales s;
        for (int i = 0; i < 2; i++)
            s.scale[i] = mul(to_f32(load_i8(reinterpret_cast<const int8_t*>(p + 32 + 16 * (2 * j + i)))), d);
        return s;
    }
    template <int G> LANE u8x64 codes(int j) const { return sixes<G>(p + 288 + 384 * j); }
};

// Q3_K: 16 scales of 6 bits around 32: scale s has its low nibble in row s mod 8, its high bits in row s mod 4. They are put
// together as those of Q4_K.
struct PanelQ3_K {
    static constexpr int blocks = 8, groups = 2, MAX_CODE = 7, ZERO_POINT = 4, nbytes = 1760, PREFETCH_ROWS = 2;
    static constexpr bool QUANTISED = true, HAS_MIN = false;
    const uint8_t* p;
    f32x16 d;
    int8_t scale[16 * 16];
    LANE explicit PanelQ3_K(const uint8_t* unit) : p(unit), d(halves(unit)) {
        using Bytes32 = uint8_t __attribute__((vector_size(32)));
        unroll<8>([&](auto i) INLINE {
            constexpr int s = 2 * i.value;
            TwoRows nibble, crumb;
            memcpy(&nibble, p + 32 + 16 * (s % 8), 32);
            memcpy(&crumb, p + 160 + 16 * (s % 4), 32);
            const TwoRows both = (nibble >> (s / 8 * 4) & in_each_byte(15)) | (crumb >> (s / 4 * 2) & in_each_byte(3)) << 4;
            const Bytes32 scales = reinterpret_cast<Bytes32>(both) - 32;
            memcpy(scale + 16 * s, &scales, 32);
        });
    }
    LANE Scales scales(int j) const {
        Scales s;
        for (int i = 0; i < 2; i++) s.scale[i] = mul(to_f32(load_i8(scale + 16 * (2 * j + i))), d);
        return s;
    }
    template <int G> LANE u8x64 codes(int j) const {
        const uint8_t* lines = p + 224 + 192 * j;
        return either(crumbs<G>(lines), bits<G, 2>(lines + 128));
    }
};

struct PanelQ2_K {
    static constexpr int blocks = 8, groups = 2, MAX_CODE = 3, ZERO_POINT = 0, nbytes = 1344, PREFETCH_ROWS = 2;
    static constexpr bool QUANTISED = true, HAS_MIN = true;
    const uint8_t* p;
    f32x16 d, min;
    LANE explicit PanelQ2_K(const uint8_t* unit) : p(unit), d(halves(unit)), min(halves(unit + 32)) {}
    LANE Scales scales(int j) const {
        Scales s;
        for (int i = 0; i < 2; i++) {
            const i32x16 both = load_u8(p + 64 + 16 * (2 * j + i));
            s.scale[i] = mul(to_f32(field<0, 15>(both)), d);
            s.min[i] = mul(to_f32(field<4, 15>(both)), min);
        }
        return s;
    }
    template <int G> LANE u8x64 codes(int j) const { return crumbs<G>(p + 320 + 128 * j); }
};

struct PanelF32 {
    static constexpr bool QUANTISED = false;
    static LANE f32x16 row(const uint8_t* panel, int64_t k) { return load(reinterpret_cast<const float*>(panel) + 16 * k); }
};
struct PanelF16 {
    static constexpr bool QUANTISED = false;
    static LANE f32x16 row(const uint8_t* panel, int64_t k) { return load_f16(reinterpret_cast<const uint16_t*>(panel) + 16 * k); }
};
struct PanelBF16 {
    static constexpr bool QUANTISED = false;
    static LANE f32x16 row(const uint8_t* panel, int64_t k) { return load_bf16(reinterpret_cast<const uint16_t*>(panel) + 16 * k); }
};

// A panel taken apart once for many rows: a byte a code, scales and minimums in f32. One block a unit; `write` makes it of
// block j of a packed one.
template <class P> struct Unpacked {
    static constexpr int blocks = 1, groups = P::groups, MAX_CODE = P::MAX_CODE, ZERO_POINT = P::ZERO_POINT;
    static constexpr bool QUANTISED = true, HAS_MIN = P::HAS_MIN;
    static constexpr int PREFETCH_ROWS = 1 << 30;      // it lies near already
    static constexpr int factors = 512, nbytes = factors + 64 * groups * (HAS_MIN ? 2 : 1);
    const uint8_t* p;
    LANE explicit Unpacked(const uint8_t* unit) : p(unit) {}
    LANE Scales scales(int) const {
        Scales s;
        const float* f = reinterpret_cast<const float*>(p + factors);
        unroll<groups>([&](auto i) INLINE {
            s.scale[i.value] = load(f + 16 * i.value);
            if constexpr (HAS_MIN) s.min[i.value] = load(f + 16 * (groups + i.value));
        });
        return s;
    }
    template <int G> LANE u8x64 codes(int) const { return load(p + 64 * G); }
    static LANE void write(const P& unit, int j, uint8_t* out) {
        unroll<8>([&](auto g) INLINE { store(out + 64 * g.value, unit.template codes<g.value>(j)); });
        const Scales s = unit.scales(j);
        float* f = reinterpret_cast<float*>(out + factors);
        unroll<groups>([&](auto i) INLINE {
            store(f + 16 * i.value, s.scale[i.value]);
            if constexpr (HAS_MIN) store(f + 16 * (groups + i.value), s.min[i.value]);
        });
    }
};

// Whole bytes are open as they are. A set that is quicker with their signs apart says so by `Dots::Signed`; `start` is
// then what a sum begins with.
template <class P> concept Bytes = P::QUANTISED && P::MAX_CODE == 255;
template <Bytes P> struct Unpacked<P> {
    using Sum = Dots<P::MAX_CODE, 8>;
    static constexpr int blocks = 1, groups = 1, MAX_CODE = P::MAX_CODE, ZERO_POINT = P::ZERO_POINT, PREFETCH_ROWS = 1 << 30;
    static constexpr bool QUANTISED = true, HAS_MIN = false;
    static constexpr int signs = 512, starts = 1024, factors = starts + 64, nbytes = factors + 64;
    const uint8_t* p;
    LANE explicit Unpacked(const uint8_t* unit) : p(unit) {}
    LANE Scales scales(int) const {
        Scales s;
        s.scale[0] = load(reinterpret_cast<const float*>(p + factors));
        return s;
    }
    LANE i32x16 start() const { return Sum::kept(p + starts); }
    template <int G> LANE auto codes(int) const { return typename Sum::Signed{load(p + 64 * G), load(p + signs + 64 * G)}; }
    static LANE void write(const P& unit, int j, uint8_t* out) {
        constexpr int8_t ones[4] = {1, 1, 1, 1};
        Sum negative;
        negative.start(zero());
        unroll<8>([&](auto g) INLINE {
            const auto w = Sum::apart(unit.template codes<g.value>(j));
            store(out + 64 * g.value, w.size);
            store(out + signs + 64 * g.value, w.sign);
            negative.template take<g.value>(typename Sum::Signed{Sum::negative(w), {}}, ones);
        });
        store(reinterpret_cast<int32_t*>(out + starts), negative.total());
        store(reinterpret_cast<float*>(out + factors), unit.scales(j).scale[0]);
    }
};

template <class P> constexpr bool packs_scales() {
    if constexpr (P::QUANTISED) return P::blocks > 1;
    else return false;
}

template <class P> constexpr bool unpacks() {
    if constexpr (Bytes<P>) return UNPACK_ROWS && requires { typename Dots<P::MAX_CODE, 8>::Signed; };
    else return UNPACK_ROWS && P::QUANTISED;
}

template <class P> __attribute__((noinline)) void unpack_panel(const uint8_t* p, int64_t columns, uint8_t* out) noexcept {
    for (int64_t b0 = 0; b0 < columns / 32; b0 += P::blocks, p += P::nbytes) {
        const P unit(p);
        for (int j = 0; j < P::blocks; j++, out += Unpacked<P>::nbytes) Unpacked<P>::write(unit, j, out);
    }
}
constexpr int MAX_UNPACKED_BYTES = 1152;      // bytes of an open block of any type

static_assert(PanelQ4_0::nbytes == LAYOUT[Q4_0].nbytes && PanelQ4_1::nbytes == LAYOUT[Q4_1].nbytes);
static_assert(PanelQ5_0::nbytes == LAYOUT[Q5_0].nbytes && PanelQ5_1::nbytes == LAYOUT[Q5_1].nbytes);
static_assert(PanelQ8_0::nbytes == LAYOUT[Q8_0].nbytes && PanelQ2_K::nbytes == LAYOUT[Q2_K].nbytes);
static_assert(PanelQ3_K::nbytes == LAYOUT[Q3_K].nbytes && PanelQ4_K::nbytes == LAYOUT[Q4_K].nbytes);
static_assert(PanelQ5_K::nbytes == LAYOUT[Q5_K].nbytes && PanelQ6_K::nbytes == LAYOUT[Q6_K].nbytes);

// Calls the body with the panel type of a layout.
template <class Panel> struct Type { using panel = Panel; };
template <class Body> LANE void with_panel(int32_t layout, const Body& body) {
    switch (layout) {
        case Q4_0: body(Type<PanelQ4_0>{}); break;
        case Q4_1: body(Type<PanelQ4_1>{}); break;
        case Q5_0: body(Type<PanelQ5_0>{}); break;
        case Q5_1: body(Type<PanelQ5_1>{}); break;
        case Q8_0: body(Type<PanelQ8_0>{}); break;
        case Q2_K: body(Type<PanelQ2_K>{}); break;
        case Q3_K: body(Type<PanelQ3_K>{}); break;
        case Q4_K: body(Type<PanelQ4_K>{}); break;
        case Q5_K: body(Type<PanelQ5_K>{}); break;
        case Q6_K: body(Type<PanelQ6_K>{}); break;
        case F32: body(Type<PanelF32>{}); break;
        case F16: body(Type<PanelF16>{}); break;
        case BF16: body(Type<PanelBF16>{}); break;
        default: __builtin_trap();      // a layout without a case: the checks at load let no other one through
    }
}

}  // namespace
