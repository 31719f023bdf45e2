// blocks_256.inl: the types whose blocks have 256 columns, 8 of 32. tensor_types/layouts.py is the definition of the bytes.
//
// For each kind of type: where its bytes lie, in the file (one row) and packed (16 rows); the panel that reads them; what
// packs them.  A minimum is negated when packed, so that it is only ever added.

namespace {

// Q4_K, Q5_K: codes of 4 or 5 bits; for each 32 columns a scale and a minimum of 6 bits.
//   file     | f16 d    | f16 dmin | 12 bytes: 8 scales and 8 minimums | Q5_K: 32 bytes: the fifth bits | 128 bytes: nibbles |
//   packed   | d        | -dmin    | 8 numbers: low nibbles of scale and minimum | 4: their high bits | 8 x 4 lines of nibbles | Q5_K: 8 lines of bits |
template <int BITS> struct BytesK {
    static constexpr int columns = 256;
    static constexpr int d = 0, min = d + HALVES, low = min + HALVES, high = low + 8 * NUMBER, nibbles = high + 4 * NUMBER, block = 4 * LINE;
    static constexpr int bits = nibbles + 8 * block, end = BITS == 5 ? bits + 8 * LINE : bits;
    struct File {
        static constexpr int d = 0, min = 2, scales = 4, bits = scales + 12, nibbles = BITS == 5 ? bits + 32 : bits, end = nibbles + 128;
    };
};

// The scales of a unit are put together as bytes, two blocks at a time, before they become floats: block by block that would
// be a third of the work for a single row of activations.
template <int BITS> struct PanelK {
    using Bytes = BytesK<BITS>;
    static constexpr int blocks = 8, groups = 1, MAX_CODE = (1 << BITS) - 1, ZERO_POINT = 0, nbytes = Bytes::end, PREFETCH_ROWS = BITS == 5 ? 1 : 2;
    static constexpr bool QUANTISED = true, HAS_MIN = true;
    const uint8_t* p;
    f32x16 d, min;
    uint8_t scale[8 * NUMBER], minimum[8 * NUMBER];
    LANE explicit PanelK(const uint8_t* unit) : p(unit), d(halves(unit + Bytes::d)), min(halves(unit + Bytes::min)) {
        unroll<4>([&](auto i) INLINE {
            TwoRows low;
            memcpy(&low, p + Bytes::low + 2 * NUMBER * i.value, 2 * NUMBER);
            const Words h = get(p + Bytes::high + NUMBER * i.value);
            const TwoRows high = TwoRows{h[0], h[1], h[2], h[3], h[0], h[1], h[2], h[3]} >> TwoRows{0, 0, 0, 0, 4, 4, 4, 4};
            const TwoRows scales = (low & in_each_byte(15)) | (high << 4 & in_each_byte(0x30));
            const TwoRows minimums = (low >> 4 & in_each_byte(15)) | (high << 2 & in_each_byte(0x30));
            memcpy(scale + 2 * NUMBER * i.value, &scales, 2 * NUMBER);
            memcpy(minimum + 2 * NUMBER * i.value, &minimums, 2 * NUMBER);
        });
    }
    LANE Scales scales(int j) const {
        Scales s;
        s.scale[0] = mul(to_f32(load_u8(scale + NUMBER * j)), d);
        s.min[0] = mul(to_f32(load_u8(minimum + NUMBER * j)), min);
        return s;
    }
    template <int G> LANE u8x64 codes(int j) const {
        const u8x64 low = nibbles<G>(p + Bytes::nibbles + Bytes::block * j);
        if constexpr (BITS == 5) return either(low, bits<G, 4>(p + Bytes::bits + LINE * j));
        else return low;
    }
};

template <int BITS> bool pack_k(const uint8_t* const rows[PANEL], int64_t columns, uint8_t* out) {
    using Bytes = BytesK<BITS>;
    using File = typename Bytes::File;
    return each_block<Bytes>(rows, columns, out, [](const uint8_t* const* block, uint8_t* to) INLINE {
        Words low[2][4], high[4];
        for (int q = 0; q < 4; q++) {      // scale, minimum j: 6 bits of a and b for j < 4; else nibbles of c with the two bits left
            const Words a = words(block + 4 * q, File::scales), b = words(block + 4 * q, File::scales + 4), c = words(block + 4 * q, File::scales + 8);
            low[0][q] = (a & in_each_byte(15)) | (b & in_each_byte(15)) << 4;
            low[1][q] = c;
            const auto pairs = [&](int shift) INLINE {      // the upper two bits of both, of numbers j and j+1 in a byte
                const Words both = (a >> shift & in_each_byte(3)) | (b >> shift & in_each_byte(3)) << 2, joined = both | both >> 4;
                return (joined & 0xff) | (joined >> 8 & 0xff00);
            };
            high[q] = pairs(4) | pairs(6) << 16;
        }
        put_numbers(to + Bytes::low, low[0]);
        put_numbers(to + Bytes::low + 4 * NUMBER, low[1]);
        put_numbers(to + Bytes::high, high);
        by_fours(block, [&](const uint8_t* const* four, int lane) INLINE {
            Words x[8];
            for (int c = 0; c < 4; c++) {      // two blocks of 32 columns in 32 bytes
                read_groups(four, File::nibbles + 32 * c, x);
                put_nibbles(to + Bytes::nibbles + 2 * Bytes::block * c + lane, to + Bytes::nibbles + Bytes::block + 2 * Bytes::block * c + lane, x);
            }
            if constexpr (BITS == 5) {
                read_groups(four, File::bits, x);
                put_bits<LINE>(to + Bytes::bits + lane, x);
            }
        });
        return copy_halves(to + Bytes::d, block, File::d) & copy_halves<0x80>(to + Bytes::min, block, File::min);
    });
}

// Q6_K: codes of 6 bits around 32; for each 16 columns a scale of 8 bits.
//   file     | 128 bytes: low nibbles | 64 bytes: high pairs | 16 int8 scales | f16 d |
//   packed   | d | 16 numbers: scales | 8 x 6 lines of six bits |
struct BytesQ6_K {
    static constexpr int columns = 256, d = 0, scales = d + HALVES, codes = scales + 16 * NUMBER, block = 6 * LINE, end = codes + 8 * block;
    struct File { static constexpr int low = 0, high = 128, scales = high + 64, d = scales + 16, end = d + 2; };
};

struct PanelQ6_K {
    using Bytes = BytesQ6_K;
    static constexpr int blocks = 8, groups = 2, MAX_CODE = 63, ZERO_POINT = 32, nbytes = Bytes::end, PREFETCH_ROWS = PREFETCH_ROWS_6BIT;
    static constexpr bool QUANTISED = true, HAS_MIN = false;
    const uint8_t* p;
    f32x16 d;
    LANE explicit PanelQ6_K(const uint8_t* unit) : p(unit), d(halves(unit + Bytes::d)) {}
    LANE Scales scales(int j) const {
        Scales s;
        for (int i = 0; i < 2; i++)
            s.scale[i] = mul(to_f32(load_i8(reinterpret_cast<const int8_t*>(p + Bytes::scales + NUMBER * (2 * j + i)))), d);
        return s;
    }
    template <int G> LANE u8x64 codes(int j) const { return sixes<G>(p + Bytes::codes + Bytes::block * j); }
};

bool pack_q6_k(const uint8_t* const rows[PANEL], int64_t columns, uint8_t* out) {
    using Bytes = BytesQ6_K;
    using File = Bytes::File;
    return each_block<Bytes>(rows, columns, out, [](const uint8_t* const* block, uint8_t* to) INLINE {
        copy_numbers<16>(to + Bytes::scales, block, File::scales);
        by_fours(block, [&](const uint8_t* const* four, int lane) INLINE {
            for (int h = 0; h < 2; h++) {      // four blocks in each half
                Words low[2][8], high[8];
                for (int c = 0; c < 2; c++) read_groups(four, File::low + 64 * h + 32 * c, low[c]);
                read_groups(four, File::high + 32 * h, high);
                for (int n = 0; n < 4; n++) {
                    Words x[8];
                    for (int g = 0; g < 8; g++) x[g] = (low[n % 2][g] >> (n / 2 * 4) & in_each_byte(15)) | (high[g] >> (2 * n) & in_each_byte(3)) << 4;
                    put_sixes(to + Bytes::codes + Bytes::block * (4 * h + n) + lane, x);
                }
            }
        });
        return copy_halves(to + Bytes::d, block, File::d);
    });
}

// Q3_K: codes of 3 bits around 4; for each 16 columns a scale of 6 bits around 32: scale s has its low nibble in number
// s mod 8, its high bits in number s mod 4.
//   file     | 32 bytes: high bits | 64 bytes: low pairs | 12 bytes: scales | f16 d |
//   packed   | d | 8 numbers: low nibbles of scales | 4: their high bits | 8 x (2 lines of pairs, 1 line of bits) |
struct BytesQ3_K {
    static constexpr int columns = 256, d = 0, low = d + HALVES, high = low + 8 * NUMBER, pairs = high + 4 * NUMBER, bits = pairs + 2 * LINE;
    static constexpr int block = 3 * LINE, end = pairs + 8 * block;
    struct File { static constexpr int bits = 0, pairs = 32, scales = pairs + 64, d = scales + 12, end = d + 2; };
};

// The scales are put together as those of Q4_K.
struct PanelQ3_K {
    using Bytes = BytesQ3_K;
    static constexpr int blocks = 8, groups = 2, MAX_CODE = 7, ZERO_POINT = 4, nbytes = Bytes::end, PREFETCH_ROWS = 2;
    static constexpr bool QUANTISED = true, HAS_MIN = false;
    const uint8_t* p;
    f32x16 d;
    int8_t scale[16 * NUMBER];
    LANE explicit PanelQ3_K(const uint8_t* unit) : p(unit), d(halves(unit + Bytes::d)) {
        using Bytes32 = uint8_t __attribute__((vector_size(32)));
        unroll<8>([&](auto i) INLINE {
            constexpr int s = 2 * i.value;
            TwoRows nibble, crumb;
            memcpy(&nibble, p + Bytes::low + NUMBER * (s % 8), 2 * NUMBER);
            memcpy(&crumb, p + Bytes::high + NUMBER * (s % 4), 2 * NUMBER);
            const TwoRows both = (nibble >> (s / 8 * 4) & in_each_byte(15)) | (crumb >> (s / 4 * 2) & in_each_byte(3)) << 4;
            const Bytes32 scales = reinterpret_cast<Bytes32>(both) - 32;
            memcpy(scale + NUMBER * s, &scales, 2 * NUMBER);
        });
    }
    LANE Scales scales(int j) const {
        Scales s;
        for (int i = 0; i < 2; i++) s.scale[i] = mul(to_f32(load_i8(scale + NUMBER * (2 * j + i))), d);
        return s;
    }
    template <int G> LANE u8x64 codes(int j) const {
        return either(crumbs<G>(p + Bytes::pairs + Bytes::block * j), bits<G, 2>(p + Bytes::bits + Bytes::block * j));
    }
};

bool pack_q3_k(const uint8_t* const rows[PANEL], int64_t columns, uint8_t* out) {
    using Bytes = BytesQ3_K;
    using File = Bytes::File;
    return each_block<Bytes>(rows, columns, out, [](const uint8_t* const* block, uint8_t* to) INLINE {
        copy_numbers<12>(to + Bytes::low, block, File::scales);      // scale i low, scale i+8 high, and their upper bits: as in the file
        by_fours(block, [&](const uint8_t* const* four, int lane) INLINE {
            Words x[8];
            for (int h = 0; h < 2; h++) {
                read_groups(four, File::pairs + 32 * h, x);
                put_crumbs<Bytes::block>(to + Bytes::pairs + 4 * Bytes::block * h + lane, x);
            }
            read_groups(four, File::bits, x);
            put_bits<Bytes::block>(to + Bytes::bits + lane, x);
        });
        return copy_halves(to + Bytes::d, block, File::d);
    });
}

// Q2_K: codes of 2 bits; for each 16 columns a scale and a minimum of 4 bits.
//   file     | 16 bytes: scale low, minimum high | 64 bytes: pairs | f16 d | f16 dmin |
//   packed   | d | -dmin | 16 numbers: scale low, minimum high | 8 x 2 lines of pairs |
struct BytesQ2_K {
    static constexpr int columns = 256, d = 0, min = d + HALVES, scales = min + HALVES, pairs = scales + 16 * NUMBER, block = 2 * LINE, end = pairs + 8 * block;
    struct File { static constexpr int scales = 0, pairs = 16, d = pairs + 64, min = d + 2, end = min + 2; };
};

struct PanelQ2_K {
    using Bytes = BytesQ2_K;
    static constexpr int blocks = 8, groups = 2, MAX_CODE = 3, ZERO_POINT = 0, nbytes = Bytes::end, PREFETCH_ROWS = 2;
    static constexpr bool QUANTISED = true, HAS_MIN = true;
    const uint8_t* p;
    f32x16 d, min;
    LANE explicit PanelQ2_K(const uint8_t* unit) : p(unit), d(halves(unit + Bytes::d)), min(halves(unit + Bytes::min)) {}
    LANE Scales scales(int j) const {
        Scales s;
        for (int i = 0; i < 2; i++) {
            const i32x16 both = load_u8(p + Bytes::scales + NUMBER * (2 * j + i));
            s.scale[i] = mul(to_f32(field<0, 15>(both)), d);
            s.min[i] = mul(to_f32(field<4, 15>(both)), min);
        }
        return s;
    }
    template <int G> LANE u8x64 codes(int j) const { return crumbs<G>(p + Bytes::pairs + Bytes::block * j); }
};

bool pack_q2_k(const uint8_t* const rows[PANEL], int64_t columns, uint8_t* out) {
    using Bytes = BytesQ2_K;
    using File = Bytes::File;
    return each_block<Bytes>(rows, columns, out, [](const uint8_t* const* block, uint8_t* to) INLINE {
        copy_numbers<16>(to + Bytes::scales, block, File::scales);
        by_fours(block, [&](const uint8_t* const* four, int lane) INLINE {
            Words x[8];
            for (int h = 0; h < 2; h++) {
                read_groups(four, File::pairs + 32 * h, x);
                put_crumbs<Bytes::block>(to + Bytes::pairs + 4 * Bytes::block * h + lane, x);
            }
        });
        return copy_halves(to + Bytes::d, block, File::d) & copy_halves<0x80>(to + Bytes::min, block, File::min);
    });
}

}  // namespace
