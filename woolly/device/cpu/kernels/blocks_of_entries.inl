// blocks_of_entries.inl: the types whose codes name entries of four or eight values. tensor_types/layouts.py is the definition of
// the bytes.
//
// A unit is opened when it is read: entries are looked up row by row, which takes as long as all that is done with them. The
// values of IQ2 and IQ3 have signs: a line of bits in each block. Even ones come in two lines for two blocks (layouts.py);
// `even_lines` makes lines of bits of them. Small scales s are factors 2 s + 1.

namespace {

#define OUT_OF_LINE __attribute__((noinline))      // as long as a product, and the same for any number of rows

// What a unit becomes.
struct OpenedUnit {
    Opened codes;
    float factor[2 * 8 * PANEL];
    LANE void put_factor(int group, i32x16 scale) { store(factor + PANEL * group, to_f32(add(shifted<1>(scale), splat(int32_t{1})))); }
};

// A byte of each row and one above it: codes of 16 bits.
using Bytes16 = uint8_t __attribute__((vector_size(16)));
#if defined(__clang__)
#define BESIDE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define BESIDE(a, b, ...) __builtin_shuffle(a, b, Bytes16{__VA_ARGS__})
#endif
struct Joined {
    uint16_t code[PANEL];
    LANE Joined(const uint8_t* low, Words upper) {
        const Bytes16 a = reinterpret_cast<Bytes16>(get(low)), b = reinterpret_cast<Bytes16>(upper);
        const Bytes16 first = BESIDE(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
        const Bytes16 second = BESIDE(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
        memcpy(code, &first, 16);
        memcpy(code + 8, &second, 16);
    }
    // else gcc takes them out of the vectors again, one by one
    LANE const uint16_t* read() const { return anew(code); }
};
#undef BESIDE

// Block j from the codes of its entries: `codes(h)` points to those of 16 rows.
template <class Type, class Codes> LANE void open_block(Opened& to, int j, const uint8_t* signs, const Codes& codes) {
    const u8x64 sign = load(signs);
    if constexpr (sizeof(Type::BOOK.entry[0]) == 8)
        unroll<4>([&](auto h) INLINE {
            const u8x128 x = look_up(Type::BOOK.entry, codes(h));
            store(to.line(j, 2 * h.value), signed_codes<2 * h.value>(Type::ZERO_POINT, x.low, sign));
            store(to.line(j, 2 * h.value + 1), signed_codes<2 * h.value + 1>(Type::ZERO_POINT, x.high, sign));
        });
    else
        unroll<8>([&](auto g) INLINE { store(to.line(j, g.value), signed_codes<g.value>(Type::ZERO_POINT, look_up(Type::BOOK.entry, codes(g)), sign)); });
}

// Lines of bits of two blocks, from their two lines of even signs. Gives what stands in place of the eighth column.
LANE i32x16 even_lines(const uint8_t* two, uint8_t* first, uint8_t* second) {
    int32_t kept[PANEL];
    for (int row = 0; row < PANEL; row += 8) {
        TwoRows a, b;
        memcpy(&a, two + 4 * row, 32);
        memcpy(&b, two + LINE + 4 * row, 32);
        TwoRows last = a ^ (b & 0x00ffffffu);      // the eighth is set where the other seven are an odd number
        last ^= last << 16;
        last ^= last << 8;
        const TwoRows whole = (b & 0x00ffffffu) | (last & 0xff000000u), eighth = b >> 24;
        const TwoRows even = (a & in_each_byte(0x55)) | (whole & in_each_byte(0x55)) << 1, odd = (a >> 1 & in_each_byte(0x55)) | (whole & in_each_byte(0xaa));
        memcpy(first + 4 * row, &even, 32);
        memcpy(second + 4 * row, &odd, 32);
        memcpy(kept + row, &eighth, 32);
    }
    return load(kept);
}

// `kept(k, r)` is the byte that takes the place of the eighth column of blocks 2 k and 2 k + 1, `seven(j, h, r)` the signs.
template <class Seven, class Kept> LANE void pack_even_signs(uint8_t* lines, const Seven& seven, const Kept& kept) {
    for (int k = 0; k < 4; k++)
        for (int r = 0; r < PANEL; r++) {
            uint64_t x = 0;
            for (int h = 0; h < 4; h++) x |= static_cast<uint64_t>(seven(2 * k, h, r) | seven(2 * k + 1, h, r) << 8) << 16 * h;
            const auto change = [&](int shift, uint64_t mask) INLINE {      // bit c of byte b changes places with bit b of byte c
                const uint64_t changed = (x ^ x >> shift) & mask;
                x ^= changed ^ changed << shift;
            };
            change(7, 0x00aa00aa00aa00aau);
            change(14, 0x0000cccc0000ccccu);
            change(28, 0x00000000f0f0f0f0u);
            x = (x & 0x00ffffffffffffffu) | static_cast<uint64_t>(kept(k, r)) << 56;
            memcpy(lines + LINE * 2 * k + 4 * r, &x, 4);
            const uint32_t upper = static_cast<uint32_t>(x >> 32);
            memcpy(lines + LINE * (2 * k + 1) + 4 * r, &upper, 4);
        }
}

template <class Type> struct PanelOfEntries {
    using Bytes = Type;
    static constexpr int blocks = 8, groups = Type::groups, MAX_CODE = 2 * Type::ZERO_POINT, ZERO_POINT = Type::ZERO_POINT, nbytes = Type::end, PREFETCH_ROWS = 1;
    static constexpr bool QUANTISED = true, HAS_MIN = false;
    f32x16 d;
    OpenedUnit opened;
    LANE explicit PanelOfEntries(const uint8_t* unit) : d(mul(Type::d_of(unit), splat(Type::UNIT))) { Type::open(unit, opened); }
    LANE Scales scales(int j) const {
        Scales s;
        unroll<groups>([&](auto i) INLINE { s.scale[i.value] = mul(load(opened.factor + PANEL * (groups * j + i.value)), d); });
        return s;
    }
    template <int G> LANE u8x64 codes(int j) const { return opened.codes.codes<G>(j); }
};

// IQ2_XXS, IQ3_XXS: codes of 8 bits, even signs, a scale for each 32 columns, kept with the signs.
//   file     IQ2_XXS: | f16 d | 8 x (4 codes, word) |      IQ3_XXS: | f16 d | 64 codes | 8 words |     word: 4 x 7 signs, scale
//   packed   | d | 32 or 64 numbers: codes | 4 x 2 lines of even signs |
template <const auto& BOOK_, int ENTRIES, int ZERO_POINT_, int EIGHTHS_> struct Xxs {
    static constexpr const auto& BOOK = BOOK_;
    static constexpr int columns = 256, groups = 1, ZERO_POINT = ZERO_POINT_, per = ENTRIES / 8;
    static constexpr float UNIT = EIGHTHS_ / 8.0f;
    static constexpr int d = 0, codes = d + HALVES, signs = codes + ENTRIES * NUMBER, end = signs + 8 * LINE;
    struct File {
        static constexpr int d = 0, codes = 2, end = codes + ENTRIES + 32;
        static constexpr int code(int j) { return ENTRIES == 32 ? codes + 8 * j : codes + per * j; }      // of block j
        static constexpr int word(int j) { return ENTRIES == 32 ? codes + 8 * j + 4 : codes + ENTRIES + 4 * j; }
    };
    static LANE f32x16 d_of(const uint8_t* p) { return halves(p + d); }
    static OUT_OF_LINE void open(const uint8_t* p, OpenedUnit& to) noexcept {
        for (int k = 0; k < 4; k++) {
            alignas(64) uint8_t sign[2 * LINE];
            const i32x16 scales = even_lines(p + signs + LINE * 2 * k, sign, sign + LINE);
            to.put_factor(2 * k, field<0, 15>(scales));
            to.put_factor(2 * k + 1, field<4, 15>(scales));
            for (int j = 2 * k; j < 2 * k + 2; j++)
                open_block<Xxs>(to.codes, j, sign + j % 2 * LINE, [&](auto h) INLINE { return p + codes + NUMBER * (per * j + h.value); });
        }
    }
};
using IQ2_XXS = Xxs<BOOK_IQ2_XXS, 32, 43, 1>;
using IQ3_XXS = Xxs<BOOK_IQ3_XXS, 64, 62, 2>;

template <class Type> bool pack_xxs(const uint8_t* const rows[PANEL], int64_t columns, uint8_t* out) {
    using File = typename Type::File;
    return each_block<Type>(rows, columns, out, [](const uint8_t* const* block, uint8_t* to) INLINE {
        for (int j = 0; j < 8; j++) copy_numbers<Type::per>(to + Type::codes + Type::per * NUMBER * j, block, File::code(j));
        const auto scale = [&](int j, int r) INLINE { return word(block[r] + File::word(j)) >> 28; };
        pack_even_signs(to + Type::signs, [&](int j, int h, int r) INLINE { return word(block[r] + File::word(j)) >> 7 * h & 127; },
                        [&](int k, int r) INLINE { return scale(2 * k, r) | scale(2 * k + 1, r) << 4; });
        return copy_halves(to + Type::d, block, File::d);
    });
}

// IQ2_XS: codes of 9 bits, the ninth kept with even signs; a scale for each 16 columns.
//   file     | f16 d | 32 x 2 bytes: code, 7 signs | 8 bytes: 16 scales |
//   packed   | d | 32 numbers: codes | 4 x 2 lines of even signs | 8 numbers: scales |
struct IQ2_XS {
    static constexpr const auto& BOOK = BOOK_IQ2_XS;
    static constexpr int columns = 256, groups = 2, ZERO_POINT = 43;
    static constexpr float UNIT = 1 / 8.0f;
    static constexpr int d = 0, codes = d + HALVES, signs = codes + 32 * NUMBER, scales = signs + 8 * LINE, end = scales + 8 * NUMBER;
    struct File { static constexpr int d = 0, codes = 2, scales = codes + 64, end = scales + 8; };
    static LANE f32x16 d_of(const uint8_t* p) { return halves(p + d); }
    static OUT_OF_LINE void open(const uint8_t* p, OpenedUnit& to) noexcept {
        for (int k = 0; k < 4; k++) {
            alignas(64) uint8_t sign[2 * LINE];
            const i32x16 ninth = even_lines(p + signs + LINE * 2 * k, sign, sign + LINE);
            unroll<2>([&](auto odd) INLINE {
                const int j = 2 * k + odd.value;
                const i32x16 both = load_u8(p + scales + NUMBER * j);
                to.put_factor(2 * j, field<0, 15>(both));
                to.put_factor(2 * j + 1, field<4, 15>(both));
                int32_t code[4][PANEL];
                unroll<4>([&](auto h) INLINE {
                    store(code[h.value], add(load_u8(p + codes + NUMBER * (4 * j + h.value)), shifted<8>(field<2 * h.value + odd.value, 1>(ninth))));
                });
                open_block<IQ2_XS>(to.codes, j, sign + LINE * odd.value, [&](auto h) INLINE { return reinterpret_cast<const uint32_t*>(anew(code[h.value])); });
            });
        }
    }
};

bool pack_iq2_xs(const uint8_t* const rows[PANEL], int64_t columns, uint8_t* out) {
    using Type = IQ2_XS;
    return each_block<Type>(rows, columns, out, [](const uint8_t* const* block, uint8_t* to) INLINE {
        const auto both = [&](int j, int h, int r) INLINE {
            const uint8_t* p = block[r] + Type::File::codes + 2 * (4 * j + h);
            return uint32_t{p[0]} | uint32_t{p[1]} << 8;
        };
        for (int e = 0; e < 32; e++)
            for (int r = 0; r < PANEL; r++) to[Type::codes + NUMBER * e + r] = static_cast<uint8_t>(both(0, e, r));
        pack_even_signs(to + Type::signs, [&](int j, int h, int r) INLINE { return both(j, h, r) >> 9; },
                        [&](int k, int r) INLINE {
                            uint32_t ninth = 0;
                            for (int b = 0; b < 8; b++) ninth |= (both(2 * k + b % 2, b / 2, r) >> 8 & 1) << b;
                            return ninth;
                        });
        copy_numbers<8>(to + Type::scales, block, Type::File::scales);
        return copy_halves(to + Type::d, block, Type::File::d);
    });
}

// IQ2_S, IQ3_S: codes of 10 or 9 bits, a sign each; a scale for each 16 or 32 columns.
//   file     IQ2_S: | f16 d | 32 codes | 32 bytes: signs | 8 bytes: upper bits | 8 bytes: 16 scales |
//            IQ3_S: | f16 d | 64 codes | 8 bytes: upper bits | 32 bytes: signs | 4 bytes: 8 scales |
//   packed   | d | 32 or 64 numbers: codes | 8 numbers: upper bits | 8 or 4 numbers: scales | 8 lines of bits: signs |
template <const auto& BOOK_, int GROUPS, int ENTRIES, int ZERO_POINT_, int EIGHTHS_> struct WithSigns {
    static constexpr const auto& BOOK = BOOK_;
    static constexpr int columns = 256, groups = GROUPS, ZERO_POINT = ZERO_POINT_, per = ENTRIES / 8;
    static constexpr float UNIT = EIGHTHS_ / 8.0f;
    static constexpr int d = 0, codes = d + HALVES, upper = codes + ENTRIES * NUMBER, scales = upper + 8 * NUMBER, signs = scales + 4 * groups * NUMBER, end = signs + 8 * LINE;
    struct File {
        static constexpr int d = 0, codes = 2, first = codes + ENTRIES, signs = ENTRIES == 32 ? first : first + 8, upper = ENTRIES == 32 ? first + 32 : first;
        static constexpr int scales = first + 40, end = scales + 4 * groups;
    };
    static LANE f32x16 d_of(const uint8_t* p) { return halves(p + d); }
    static OUT_OF_LINE void open(const uint8_t* p, OpenedUnit& to) noexcept {
        for (int j = 0; j < 8; j++) {
            const auto scale = [&](int group) INLINE { return load_u8(p + scales + NUMBER * (group / 2)); };
            if constexpr (groups == 2) {
                to.put_factor(2 * j, field<0, 15>(scale(2 * j)));
                to.put_factor(2 * j + 1, field<4, 15>(scale(2 * j)));
            } else
                to.put_factor(j, j % 2 ? field<4, 15>(scale(j)) : field<0, 15>(scale(j)));
            constexpr int bits = 8 / per;
            const Words above = get(p + upper + NUMBER * j);
            const auto codes_of = [&](int h) INLINE { return Joined(p + codes + NUMBER * (per * j + h), above >> (bits * h) & in_each_byte((1 << bits) - 1)); };
            const Joined first[4] = {codes_of(0), codes_of(1), codes_of(2), codes_of(3)};
            if constexpr (per == 4)
                open_block<WithSigns>(to.codes, j, p + signs + LINE * j, [&](auto h) INLINE { return first[h.value].read(); });
            else {
                const Joined second[4] = {codes_of(4), codes_of(5), codes_of(6), codes_of(7)};
                open_block<WithSigns>(to.codes, j, p + signs + LINE * j, [&](auto h) INLINE { return (h.value < 4 ? first : second)[h.value % 4].read(); });
            }
        }
    }
};
using IQ2_S = WithSigns<BOOK_IQ2_S, 2, 32, 43, 1>;
using IQ3_S = WithSigns<BOOK_IQ3_S, 1, 64, 15, 8>;

template <class Type> bool pack_with_signs(const uint8_t* const rows[PANEL], int64_t columns, uint8_t* out) {
    using File = typename Type::File;
    return each_block<Type>(rows, columns, out, [](const uint8_t* const* block, uint8_t* to) INLINE {
        copy_numbers<8 * Type::per>(to + Type::codes, block, File::codes);
        copy_numbers<8>(to + Type::upper, block, File::upper);
        copy_numbers<4 * Type::groups>(to + Type::scales, block, File::scales);
        by_fours(block, [&](const uint8_t* const* four, int lane) INLINE {
            for (int j = 0; j < 8; j++) put(to + Type::signs + LINE * j + lane, line_of_bits(words(four, File::signs + 4 * j)));
        });
        return copy_halves(to + Type::d, block, File::d);
    });
}

// IQ1_S, IQ1_M: codes of 11 bits, entries of -1, 0 and 1, and an eighth up or down; all in eighths. Codes lean together in each 32
// columns, or each alone; a scale of 3 bits for each 32 or 16 columns.
//   file     IQ1_S: | f16 d | 32 codes | 8 words: 4 x 3 upper bits, scale, leans down |
//            IQ1_M: | 32 codes | 32 nibbles: 3 upper bits, leans down | 4 words: 4 x 3 bits of scales, 4 bits of d |
//   packed   IQ1_S: | d | 32 numbers: codes | 16 numbers: words |      IQ1_M: | 32 numbers | 16 numbers | 8 numbers |
// Block j: `upper(h)` are upper bits of codes, a byte a row, `down(h)` are 1 for those that lean down, else 0.
template <class Upper, class Down> LANE void open_leaning(Opened& to, int j, const uint8_t* low, const Upper& upper, const Down& down) {
    const auto codes_of = [&](auto h) INLINE { return Joined(low + NUMBER * (4 * j + h.value), upper(h) & in_each_byte(7)); };
    const Joined codes[4] = {codes_of(Index<0>{}), codes_of(Index<1>{}), codes_of(Index<2>{}), codes_of(Index<3>{})};
    unroll<4>([&](auto h) INLINE {
        int32_t up[PANEL];
        store(up, field<0, 0x02020202>(sub(down(h), splat(int32_t{1}))));
        const u8x64 lean = load(reinterpret_cast<const uint8_t*>(up));
        const u8x128 x = look_up(BOOK_IQ1.entry, codes[h.value].read());
        store(to.line(j, 2 * h.value), either(x.low, lean));
        store(to.line(j, 2 * h.value + 1), either(x.high, lean));
    });
}

struct IQ1_S {
    static constexpr int columns = 256, groups = 1, ZERO_POINT = 9;
    static constexpr float UNIT = 1 / 8.0f;
    static constexpr int d = 0, codes = d + HALVES, upper = codes + 32 * NUMBER, end = upper + 16 * NUMBER;
    struct File { static constexpr int d = 0, codes = 2, end = codes + 48; };
    static LANE f32x16 d_of(const uint8_t* p) { return halves(p + d); }
    static OUT_OF_LINE void open(const uint8_t* p, OpenedUnit& to) noexcept {
        for (int j = 0; j < 8; j++) {
            const uint8_t* word = p + upper + NUMBER * 2 * j;
            const Words low = get(word), high = get(word + NUMBER);      // three bits each, one of them in both
            const i32x16 rest = load_u8(word + NUMBER);
            to.put_factor(j, field<4, 7>(rest));
            const Words bits[4] = {low, low >> 3 & in_each_byte(7), (low >> 6 & in_each_byte(3)) | (high & in_each_byte(1)) << 2, high >> 1 & in_each_byte(7)};
            open_leaning(to.codes, j, p + codes, [&](auto h) INLINE { return bits[h.value]; }, [&](auto) INLINE { return field<7, 1>(rest); });
        }
    }
};

bool pack_iq1_s(const uint8_t* const rows[PANEL], int64_t columns, uint8_t* out) {
    return each_block<IQ1_S>(rows, columns, out, [](const uint8_t* const* block, uint8_t* to) INLINE {
        copy_numbers<48>(to + IQ1_S::codes, block, IQ1_S::File::codes);
        return copy_halves(to + IQ1_S::d, block, IQ1_S::File::d);
    });
}

struct IQ1_M {
    static constexpr int columns = 256, groups = 2, ZERO_POINT = 9;
    static constexpr float UNIT = 1 / 8.0f;
    static constexpr int codes = 0, upper = codes + 32 * NUMBER, scales = upper + 16 * NUMBER, end = scales + 8 * NUMBER;
    struct File { static constexpr int codes = 0, scales = 48, end = scales + 8; };
    static LANE f32x16 d_of(const uint8_t* p) {
        uint16_t d[PANEL];
        for (int r = 0; r < PANEL; r++) {
            uint32_t bits = 0;
            for (int k = 0; k < 4; k++) bits |= uint32_t{p[scales + NUMBER * (2 * k + 1) + r]} >> 4 << 4 * k;
            d[r] = static_cast<uint16_t>(bits);
        }
        return load_f16(d);
    }
    static OUT_OF_LINE void open(const uint8_t* p, OpenedUnit& to) noexcept {
        for (int k = 0; k < 4; k++) {
            const uint8_t* word = p + scales + NUMBER * 2 * k;
            const i32x16 four = add(load_u8(word), shifted<8>(load_u8(word + NUMBER)));
            to.put_factor(4 * k, field<0, 7>(four));
            to.put_factor(4 * k + 1, field<3, 7>(four));
            to.put_factor(4 * k + 2, field<6, 7>(four));
            to.put_factor(4 * k + 3, field<9, 7>(four));
        }
        for (int j = 0; j < 8; j++) {
            const auto nibbles = [&](auto h) INLINE { return p + upper + NUMBER * (2 * j + h.value / 2); };
            open_leaning(to.codes, j, p + codes, [&](auto h) INLINE { return get(nibbles(h)) >> (h.value % 2 * 4); },
                         [&](auto h) INLINE { return field<h.value % 2 * 4 + 3, 1>(load_u8(nibbles(h))); });
        }
    }
};

bool pack_iq1_m(const uint8_t* const rows[PANEL], int64_t columns, uint8_t* out) {
    return each_block<IQ1_M>(rows, columns, out, [](const uint8_t* const* block, uint8_t* to) INLINE {
        copy_numbers<56>(to, block, 0);
        bool good = true;
        for (int r = 0; r < PANEL; r++) good &= (word(block[r] + IQ1_M::File::scales + 4) & 0x7000c000u) != 0x7000c000u;      // the exponent of d
        return good;
    });
}

#undef OUT_OF_LINE
}  // namespace
