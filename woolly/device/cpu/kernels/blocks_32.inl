// blocks_32.inl: the types whose blocks have 32 columns. tensor_types/layouts.py is the definition of the bytes.
//
// For each kind of type: where its bytes lie, in the file (one row) and packed (16 rows); the panel that reads them; what
// packs them.

namespace {

// Q4_0, Q4_1, Q5_0, Q5_1: codes of 4 or 5 bits, and a minimum or a zero point.
//   file     | f16 d    | f16 m    | 32 bits: the fifth of each code | 16 bytes: code i low, code i+16 high |
//   packed   | d        | m        | 4 lines of nibbles | 1 line of bits |
template <int BITS_, bool HAS_MIN_, int ZERO_POINT_> struct Small {
    static constexpr int BITS = BITS_, ZERO_POINT = ZERO_POINT_, columns = 32;
    static constexpr bool HAS_MIN = HAS_MIN_;
    static constexpr int d = 0, min = d + HALVES, nibbles = HAS_MIN ? min + HALVES : min, bits = nibbles + 4 * LINE, end = BITS == 5 ? bits + LINE : bits;
    struct File {
        static constexpr int d = 0, min = 2, bits = HAS_MIN ? 4 : 2, nibbles = BITS == 5 ? bits + 4 : bits, end = nibbles + 16;
    };
};
using Q4_0 = Small<4, false, 8>;
using Q4_1 = Small<4, true, 0>;
using Q5_0 = Small<5, false, 16>;
using Q5_1 = Small<5, true, 0>;

template <class Type> struct PanelSmall {
    using Bytes = Type;
    static constexpr int blocks = 1, groups = 1, MAX_CODE = (1 << Type::BITS) - 1, ZERO_POINT = Type::ZERO_POINT, nbytes = Type::end, PREFETCH_ROWS = 2;
    static constexpr bool QUANTISED = true, HAS_MIN = Type::HAS_MIN;
    const uint8_t* p;
    LANE explicit PanelSmall(const uint8_t* unit) : p(unit) {}
    LANE Scales scales(int) const {
        Scales s;
        s.scale[0] = halves(p + Type::d);
        if constexpr (HAS_MIN) s.min[0] = halves(p + Type::min);
        return s;
    }
    template <int G> LANE u8x64 codes(int) const {
        const u8x64 low = nibbles<G>(p + Type::nibbles);
        if constexpr (Type::BITS == 5) return either(low, bits<G, 4>(p + Type::bits));
        else return low;
    }
};

template <class Type> bool pack_small(const uint8_t* const rows[PANEL], int64_t columns, uint8_t* out) {
    using File = typename Type::File;
    return each_block<Type>(rows, columns, out, [](const uint8_t* const* block, uint8_t* to) INLINE {
        by_fours(block, [&](const uint8_t* const* four, int lane) INLINE {
            Words x[4];
            read_words(four, File::nibbles, x);      // nibbles lie in the file as in a line
            for (int j = 0; j < 4; j++) put(to + Type::nibbles + LINE * j + lane, x[j]);
            if constexpr (Type::BITS == 5) put(to + Type::bits + lane, line_of_bits(words(four, File::bits)));
        });
        return copy_halves(to + Type::d, block, File::d) & (!Type::HAS_MIN || copy_halves(to + Type::min, block, File::min));
    });
}

// Q8_0: whole bytes, unsigned when packed.
//   file     | f16 d    | 32 int8 |
//   packed   | d        | 8 lines of bytes |
struct BytesQ8_0 {
    static constexpr int columns = 32, d = 0, codes = d + HALVES, end = codes + 8 * LINE;
    struct File { static constexpr int d = 0, codes = 2, end = codes + 32; };
};

struct PanelQ8_0 {
    using Bytes = BytesQ8_0;
    static constexpr int blocks = 1, groups = 1, MAX_CODE = 255, ZERO_POINT = 128, nbytes = Bytes::end, PREFETCH_ROWS = 3;
    static constexpr bool QUANTISED = true, HAS_MIN = false;
    const uint8_t* p;
    LANE explicit PanelQ8_0(const uint8_t* unit) : p(unit) {}
    LANE Scales scales(int) const {
        Scales s;
        s.scale[0] = halves(p + Bytes::d);
        return s;
    }
    template <int G> LANE u8x64 codes(int) const { return load(p + Bytes::codes + LINE * G); }
};

bool pack_q8_0(const uint8_t* const rows[PANEL], int64_t columns, uint8_t* out) {
    using Bytes = BytesQ8_0;
    return each_block<Bytes>(rows, columns, out, [](const uint8_t* const* block, uint8_t* to) INLINE {
        by_fours(block, [&](const uint8_t* const* four, int lane) INLINE {
            Words x[8];
            read_groups(four, Bytes::File::codes, x);
            for (int g = 0; g < 8; g++) put(to + Bytes::codes + LINE * g + lane, x[g] ^ in_each_byte(0x80));
        });
        return copy_halves(to + Bytes::d, block, Bytes::File::d);
    });
}

}  // namespace
