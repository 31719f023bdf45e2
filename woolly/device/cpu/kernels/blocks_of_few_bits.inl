// blocks_of_few_bits.inl: the types of one or two bits and one scale. tensor_types/layouts.py is the definition of the bytes.

namespace {

// Codes around 1 and one scale for the whole unit. Type: where the bytes lie, and how its codes are read.
template <class Type> struct PanelOfOneScale {
    using Bytes = Type;
    static constexpr int blocks = Type::columns / 32, groups = 1, MAX_CODE = Type::MAX_CODE, ZERO_POINT = 1, nbytes = Type::end, PREFETCH_ROWS = 2;
    static constexpr bool QUANTISED = true, HAS_MIN = false;
    const uint8_t* p;
    f32x16 d;
    LANE explicit PanelOfOneScale(const uint8_t* unit) : p(unit), d(halves(unit + Type::d)) {}
    LANE Scales scales(int) const {
        Scales s;
        s.scale[0] = d;
        return s;
    }
    template <int G> LANE u8x64 codes(int j) const { return Type::template codes<G>(p, j); }
};

// Q1_0: a bit, which is +1 or -1.
//   file     | f16 d | 16 bytes: bits, lowest first |
//   packed   | d     | 4 lines of bits |
struct BytesQ1_0 {
    static constexpr int columns = 128, d = 0, lines = d + HALVES, end = lines + 4 * LINE, MAX_CODE = 2;
    struct File { static constexpr int d = 0, bits = 2, end = bits + 16; };
    template <int G> static LANE u8x64 codes(const uint8_t* p, int j) { return bits<G, 1>(p + lines + LINE * j); }
};
using PanelQ1_0 = PanelOfOneScale<BytesQ1_0>;

bool pack_q1_0(const uint8_t* const rows[PANEL], int64_t columns, uint8_t* out) {
    using Bytes = BytesQ1_0;
    return each_block<Bytes>(rows, columns, out, [](const uint8_t* const* block, uint8_t* to) INLINE {
        by_fours(block, [&](const uint8_t* const* four, int lane) INLINE {
            Words x[4];
            read_words(four, Bytes::File::bits, x);
            for (int b = 0; b < 4; b++) put(to + Bytes::lines + LINE * b + lane, line_of_bits(x[b]));
        });
        return copy_halves(to + Bytes::d, block, Bytes::File::d);
    });
}

// Q2_0 and TQ2_0: two bits, around 1.
//   file     Q2_0:  | f16 d | 16 bytes: pairs, lowest first |      TQ2_0: | 64 bytes: pairs, as Q2_K | f16 d |
//   packed   | d | 2 or 8 x 2 lines of pairs |
template <int COLUMNS, class File_> struct BytesOfPairs {
    static constexpr int columns = COLUMNS, d = 0, pairs = d + HALVES, block = 2 * LINE, end = pairs + COLUMNS / 32 * block, MAX_CODE = 3;
    using File = File_;
    template <int G> static LANE u8x64 codes(const uint8_t* p, int j) { return crumbs<G>(p + pairs + block * j); }
};
struct FileQ2_0 { static constexpr int d = 0, pairs = 2, end = pairs + 16; };
struct FileTQ2_0 { static constexpr int pairs = 0, d = pairs + 64, end = d + 2; };
using BytesQ2_0 = BytesOfPairs<64, FileQ2_0>;
using BytesTQ2_0 = BytesOfPairs<256, FileTQ2_0>;
using PanelQ2_0 = PanelOfOneScale<BytesQ2_0>;
using PanelTQ2_0 = PanelOfOneScale<BytesTQ2_0>;

bool pack_q2_0(const uint8_t* const rows[PANEL], int64_t columns, uint8_t* out) {
    using Bytes = BytesQ2_0;
    return each_block<Bytes>(rows, columns, out, [](const uint8_t* const* block, uint8_t* to) INLINE {
        by_fours(block, [&](const uint8_t* const* four, int lane) INLINE {
            Words x[4];
            read_words(four, Bytes::File::pairs, x);
            for (int h = 0; h < 4; h++) {      // byte j has the four columns of group j: pair i of byte j changes places with pair j of byte i
                Words changed = (x[h] ^ x[h] >> 6) & 0x00cc00ccu;
                x[h] ^= changed ^ changed << 6;
                changed = (x[h] ^ x[h] >> 12) & 0x0000f0f0u;
                x[h] ^= changed ^ changed << 12;
                put(to + Bytes::pairs + LINE * h + lane, x[h]);
            }
        });
        return copy_halves(to + Bytes::d, block, Bytes::File::d);
    });
}

bool pack_tq2_0(const uint8_t* const rows[PANEL], int64_t columns, uint8_t* out) {
    using Bytes = BytesTQ2_0;
    return each_block<Bytes>(rows, columns, out, [](const uint8_t* const* block, uint8_t* to) INLINE {
        by_fours(block, [&](const uint8_t* const* four, int lane) INLINE {
            Words x[8];
            for (int h = 0; h < 2; h++) {
                read_groups(four, Bytes::File::pairs + 32 * h, x);
                put_crumbs<Bytes::block>(to + Bytes::pairs + 4 * Bytes::block * h + lane, x);
            }
        });
        return copy_halves(to + Bytes::d, block, Bytes::File::d);
    });
}

// TQ1_0: digits of base 3, around 1, five in a byte: a byte is the share of 256 that its number is of 243, so that three times
// a byte has the first digit above it, and the rest in it.
//   file     | 32 bytes: columns 32 j + i | 16 bytes: columns 160 + 16 j + i | 4 bytes: columns 240 + 4 j + i | f16 d |   j: the digit
//   packed   | d | 13 lines, four bytes of each row in turn |
struct BytesTQ1_0 {
    static constexpr int columns = 256, d = 0, digits = d + HALVES, end = digits + 13 * LINE;
    struct File { static constexpr int digits = 0, d = digits + 52, end = d + 2; };
};

struct PanelTQ1_0 {
    using Bytes = BytesTQ1_0;
    static constexpr int blocks = 8, groups = 1, MAX_CODE = 2, ZERO_POINT = 1, nbytes = Bytes::end, PREFETCH_ROWS = 2;
    static constexpr bool QUANTISED = true, HAS_MIN = false;
    f32x16 d;
    Opened opened;
    LANE Scales scales(int) const {
        Scales s;
        s.scale[0] = d;
        return s;
    }
    template <int G> LANE u8x64 codes(int j) const { return opened.codes<G>(j); }
    LANE explicit PanelTQ1_0(const uint8_t* unit) : d(halves(unit + Bytes::d)) {
        const auto open = [&](int q, int count, auto to) INLINE {
            using Bytes32 = uint8_t __attribute__((vector_size(32)));
            for (int half = 0; half < LINE; half += 32) {
                Bytes32 x;
                memcpy(&x, unit + Bytes::digits + LINE * q + half, 32);
                for (int j = 0; j < count; j++) {
                    const Bytes32 digit = -reinterpret_cast<Bytes32>(x > 85) - reinterpret_cast<Bytes32>(x > 170);
                    memcpy(to(j) + half, &digit, 32);
                    x += x + x;
                }
            }
        };
        for (int q = 0; q < 8; q++) open(q, 5, [&](int j) INLINE { return opened.line(j, q); });
        for (int q = 0; q < 4; q++) open(8 + q, 5, [&](int j) INLINE { return opened.line(5 + j / 2, j % 2 * 4 + q); });
        open(12, 4, [&](int j) INLINE { return opened.line(7, 4 + j); });
    }
};

bool pack_tq1_0(const uint8_t* const rows[PANEL], int64_t columns, uint8_t* out) {
    using Bytes = BytesTQ1_0;
    return each_block<Bytes>(rows, columns, out, [](const uint8_t* const* block, uint8_t* to) INLINE {
        by_fours(block, [&](const uint8_t* const* four, int lane) INLINE {
            for (int q = 0; q < 13; q++) put(to + Bytes::digits + LINE * q + lane, words(four, Bytes::File::digits + 4 * q));
        });
        return copy_halves(to + Bytes::d, block, Bytes::File::d);
    });
}

}  // namespace
