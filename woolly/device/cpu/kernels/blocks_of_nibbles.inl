// blocks_of_nibbles.inl: the types whose codes name one of 16 values. tensor_types/layouts.py is the definition of the bytes.
//
// A value of the list is a code as all others here: unsigned, and so much above the zero point.

namespace {

// of IQ4_NL and IQ4_XS
struct ListNL {
    static constexpr int MAX_CODE = 255, ZERO_POINT = 128;
    static constexpr uint8_t codes[16] = {1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241};
};
// E2M1, doubled: 0, 1/2, 1, 3/2, 2, 3, 4, 6 and their negatives
struct ListE2M1 {
    static constexpr int MAX_CODE = 24, ZERO_POINT = 12;
    static constexpr uint8_t codes[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};
};

// IQ4_NL: the bytes of Q4_0.
struct PanelIQ4_NL {
    using Bytes = Q4_0;
    static constexpr int blocks = 1, groups = 1, MAX_CODE = ListNL::MAX_CODE, ZERO_POINT = ListNL::ZERO_POINT, nbytes = Bytes::end, PREFETCH_ROWS = 2;
    static constexpr bool QUANTISED = true, HAS_MIN = false;
    const uint8_t* p;
    LANE explicit PanelIQ4_NL(const uint8_t* unit) : p(unit) {}
    LANE Scales scales(int) const {
        Scales s;
        s.scale[0] = halves(p + Bytes::d);
        return s;
    }
    template <int G> LANE u8x64 codes(int) const { return chosen(ListNL::codes, nibbles<G>(p + Bytes::nibbles)); }
};

// IQ4_XS: for each 32 columns a scale of 6 bits around 32.
//   file     | f16 d | 2 bytes: high bits of 8 scales | 4 bytes: their low nibbles | 8 x 16 bytes: nibbles |
//   packed   | d     | 2 numbers                      | 4 numbers                  | 8 x 4 lines of nibbles |
struct BytesIQ4_XS {
    static constexpr int columns = 256, d = 0, high = d + HALVES, low = high + 2 * NUMBER, nibbles = low + 4 * NUMBER, block = 4 * LINE, end = nibbles + 8 * block;
    struct File { static constexpr int d = 0, high = 2, low = 4, nibbles = 8, end = nibbles + 128; };
};

struct PanelIQ4_XS {
    using Bytes = BytesIQ4_XS;
    static constexpr int blocks = 8, groups = 1, MAX_CODE = ListNL::MAX_CODE, ZERO_POINT = ListNL::ZERO_POINT, nbytes = Bytes::end, PREFETCH_ROWS = 2;
    static constexpr bool QUANTISED = true, HAS_MIN = false;
    const uint8_t* p;
    f32x16 d;
    int8_t scale[8 * NUMBER];
    LANE explicit PanelIQ4_XS(const uint8_t* unit) : p(unit), d(halves(unit + Bytes::d)) {
        using Signed16 = int8_t __attribute__((vector_size(16)));
        unroll<8>([&](auto i) INLINE {
            constexpr int s = i.value;
            const Words low = get(p + Bytes::low + NUMBER * (s / 2)) >> (s % 2 * 4) & in_each_byte(15);
            const Words high = (get(p + Bytes::high + NUMBER * (s / 4)) >> (s % 4 * 2) & in_each_byte(3)) << 4;
            const Signed16 around = reinterpret_cast<Signed16>(low | high) - 32;
            memcpy(scale + NUMBER * s, &around, NUMBER);
        });
    }
    LANE Scales scales(int j) const {
        Scales s;
        s.scale[0] = mul(to_f32(load_i8(scale + NUMBER * j)), d);
        return s;
    }
    template <int G> LANE u8x64 codes(int j) const { return chosen(ListNL::codes, nibbles<G>(p + Bytes::nibbles + Bytes::block * j)); }
};

bool pack_iq4_xs(const uint8_t* const rows[PANEL], int64_t columns, uint8_t* out) {
    using Bytes = BytesIQ4_XS;
    using File = Bytes::File;
    return each_block<Bytes>(rows, columns, out, [](const uint8_t* const* block, uint8_t* to) INLINE {
        copy_numbers<4>(to + Bytes::high, block, File::high);      // two of them are low ones, which follow
        copy_numbers<4>(to + Bytes::low, block, File::low);
        by_fours(block, [&](const uint8_t* const* four, int lane) INLINE {
            for (int b = 0; b < 8; b++) {
                Words x[4];
                read_words(four, File::nibbles + 16 * b, x);
                for (int j = 0; j < 4; j++) put(to + Bytes::nibbles + Bytes::block * b + LINE * j + lane, x[j]);
            }
        });
        return copy_halves(to + Bytes::d, block, File::d);
    });
}

// MXFP4: the scale is a power of two, 2^(e - 128) where E2M1 is doubled; 255 is no number.
//   file     | byte e | 16 bytes: nibbles |
//   packed   | e      | 4 lines of nibbles |
struct BytesMXFP4 {
    static constexpr int columns = 32, e = 0, nibbles = e + NUMBER, end = nibbles + 4 * LINE;
    struct File { static constexpr int e = 0, nibbles = 1, end = nibbles + 16; };
};

struct PanelMXFP4 {
    using Bytes = BytesMXFP4;
    static constexpr int blocks = 1, groups = 1, MAX_CODE = ListE2M1::MAX_CODE, ZERO_POINT = ListE2M1::ZERO_POINT, nbytes = Bytes::end, PREFETCH_ROWS = 2;
    static constexpr bool QUANTISED = true, HAS_MIN = false;
    const uint8_t* p;
    LANE explicit PanelMXFP4(const uint8_t* unit) : p(unit) {}
    LANE Scales scales(int) const {
        Scales s;
        const f32x16 power = pow2(sub(load_u8(p + Bytes::e), splat(int32_t{127})));      // 0 gives 0, and not the subnormal it should
        s.scale[0] = max(mul(power, splat(0.5f)), splat(0x1p-128f));
        return s;
    }
    template <int G> LANE u8x64 codes(int) const { return chosen(ListE2M1::codes, nibbles<G>(p + Bytes::nibbles)); }
};

bool pack_mxfp4(const uint8_t* const rows[PANEL], int64_t columns, uint8_t* out) {
    using Bytes = BytesMXFP4;
    using File = Bytes::File;
    return each_block<Bytes>(rows, columns, out, [](const uint8_t* const* block, uint8_t* to) INLINE {
        by_fours(block, [&](const uint8_t* const* four, int lane) INLINE {
            Words x[4];
            read_words(four, File::nibbles, x);
            for (int j = 0; j < 4; j++) put(to + Bytes::nibbles + LINE * j + lane, x[j]);
        });
        bool good = true;
        for (int r = 0; r < PANEL; r++) {
            good &= block[r][File::e] != 255;
            to[Bytes::e + r] = block[r][File::e];
        }
        return good;
    });
}

// NVFP4: for each 16 columns a scale UE4M3, of which 127 is 0.
//   file     | 4 bytes: scales | 4 x 8 bytes: code i low, code i+8 high |
//   packed   | 4 numbers       | 2 x 4 lines of nibbles |
struct BytesNVFP4 {
    static constexpr int columns = 64, scales = 0, nibbles = scales + 4 * NUMBER, block = 4 * LINE, end = nibbles + 2 * block;
    struct File { static constexpr int scales = 0, nibbles = 4, end = nibbles + 32; };
};

struct PanelNVFP4 {
    using Bytes = BytesNVFP4;
    static constexpr int blocks = 2, groups = 2, MAX_CODE = ListE2M1::MAX_CODE, ZERO_POINT = ListE2M1::ZERO_POINT, nbytes = Bytes::end, PREFETCH_ROWS = 2;
    static constexpr bool QUANTISED = true, HAS_MIN = false;
    const uint8_t* p;
    LANE explicit PanelNVFP4(const uint8_t* unit) : p(unit) {}
    LANE Scales scales(int j) const {
        using Bytes16 = uint8_t __attribute__((vector_size(16)));
        using Halves16 = uint16_t __attribute__((vector_size(32)));
        Scales s;
        unroll<2>([&](auto i) INLINE {
            Bytes16 x;
            memcpy(&x, p + Bytes::scales + NUMBER * (2 * j + i.value), NUMBER);
            x = x & 127 & reinterpret_cast<Bytes16>(x != 127);
            const Halves16 h = __builtin_convertvector(x, Halves16) << 7;      // an f16 with a bias of 15, not 7
            uint16_t bits[16];
            memcpy(bits, &h, sizeof bits);
            s.scale[i.value] = mul(load_f16(bits), splat(128.0f));             // and half of it: E2M1 is doubled
        });
        return s;
    }
    template <int G> LANE u8x64 codes(int j) const { return chosen(ListE2M1::codes, nibbles<G>(p + Bytes::nibbles + Bytes::block * j)); }
};

bool pack_nvfp4(const uint8_t* const rows[PANEL], int64_t columns, uint8_t* out) {
    using Bytes = BytesNVFP4;
    using File = Bytes::File;
    return each_block<Bytes>(rows, columns, out, [](const uint8_t* const* block, uint8_t* to) INLINE {
        copy_numbers<4>(to + Bytes::scales, block, File::scales);
        by_fours(block, [&](const uint8_t* const* four, int lane) INLINE {
            for (int b = 0; b < 2; b++) {
                Words x[4];
                read_words(four, File::nibbles + 16 * b, x);      // of groups 0 and 2, 1 and 3, 4 and 6, 5 and 7
                for (int j = 0; j < 2; j++) {
                    uint8_t* line = to + Bytes::nibbles + Bytes::block * b + LINE * j + lane;
                    put(line, (x[j] & in_each_byte(15)) | (x[j + 2] & in_each_byte(15)) << 4);
                    put(line + 2 * LINE, (x[j] >> 4 & in_each_byte(15)) | (x[j + 2] & in_each_byte(0xf0)));
                }
            }
        });
        return true;
    });
}

}  // namespace
