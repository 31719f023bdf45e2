// unpacked.inl: panels that are unpacked once for many rows (UNPACK_ROWS), so that each pass reads bytes.

namespace {

// A byte a code, scales and minimums in f32. One block a unit; `write` makes it of block j of a packed one. What is alike when
// it is unpacked has one type here, whatever it was.
template <int GROUPS, int MOST, int ZERO, bool MIN> struct UnpackedBlock {
    static constexpr int blocks = 1, groups = GROUPS, MAX_CODE = MOST, ZERO_POINT = ZERO;
    static constexpr bool QUANTISED = true, HAS_MIN = MIN;
    static constexpr int PREFETCH_ROWS = 1 << 30;      // it lies near already
    static constexpr int factors = 512, nbytes = factors + 64 * groups * (HAS_MIN ? 2 : 1);
    const uint8_t* p;
    LANE explicit UnpackedBlock(const uint8_t* unit) : p(unit) {}
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
    template <class P> static LANE void write(const P& unit, int j, uint8_t* out) {
        unroll<8>([&](auto g) INLINE { store(out + 64 * g.value, unit.template codes<g.value>(j)); });
        const Scales s = unit.scales(j);
        float* f = reinterpret_cast<float*>(out + factors);
        unroll<groups>([&](auto i) INLINE {
            store(f + 16 * i.value, s.scale[i.value]);
            if constexpr (HAS_MIN) store(f + 16 * (groups + i.value), s.min[i.value]);
        });
    }
};

// A set that is quicker with the signs of whole bytes apart says so by `Dots::Signed`; `start` is then what a sum begins with.
template <int MOST> concept SignsApart = MOST == 255 && requires { typename Dots<MOST, 8>::Signed; };
template <int MOST, int ZERO> requires SignsApart<MOST> struct UnpackedBlock<1, MOST, ZERO, false> {
    using Sum = Dots<MOST, 8>;
    static constexpr int blocks = 1, groups = 1, MAX_CODE = MOST, ZERO_POINT = ZERO, PREFETCH_ROWS = 1 << 30;
    static constexpr bool QUANTISED = true, HAS_MIN = false;
    static constexpr int signs = 512, starts = 1024, factors = starts + 64, nbytes = factors + 64;
    const uint8_t* p;
    LANE explicit UnpackedBlock(const uint8_t* unit) : p(unit) {}
    LANE Scales scales(int) const {
        Scales s;
        s.scale[0] = load(reinterpret_cast<const float*>(p + factors));
        return s;
    }
    LANE i32x16 start() const { return Sum::kept(p + starts); }
    template <int G> LANE auto codes(int) const { return typename Sum::Signed{load(p + 64 * G), load(p + signs + 64 * G)}; }
    template <class P> static LANE void write(const P& unit, int j, uint8_t* out) {
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

template <class P> using Unpacked = UnpackedBlock<P::groups, P::MAX_CODE, P::ZERO_POINT, P::HAS_MIN>;

template <class P> constexpr bool packs_scales() {
    if constexpr (P::QUANTISED) return P::blocks > 1;
    else return false;
}

// Rows from which it pays; 0: never. What lies in bytes already is unpacked only to have its signs apart.
template <class P> constexpr int unpack_rows() {
    if constexpr (!P::QUANTISED) return 0;
    else if constexpr (OpensUnits<P>) return OPENED_UNPACK_ROWS;
    else if constexpr (P::nbytes / P::blocks > 8 * LINE && !SignsApart<P::MAX_CODE>) return 0;
    else return UNPACK_ROWS;
}

template <class P> __attribute__((noinline)) void unpack_panel(const uint8_t* p, int64_t columns, uint8_t* out) noexcept {
    for (int64_t b0 = 0; b0 < columns / 32; b0 += P::blocks, p += P::nbytes) {
        const P unit(p);
        for (int j = 0; j < P::blocks; j++, out += Unpacked<P>::nbytes) Unpacked<P>::write(unit, j, out);
    }
}

}  // namespace
