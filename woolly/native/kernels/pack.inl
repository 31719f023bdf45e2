// pack.inl: 16 rows of a file become one panel. Once a load; formats/layouts.py is the definition of the bytes.
//
// A word is 32 bits, most often 4 codes of a row: a group. Words of four rows are taken apart and joined together, lane r
// of a vector for row r, and lie in a line beside those of the next four rows. Where planes of 4, 2 or 1 bits belong to
// other groups in the file than in a line, fields change places: they are a small matrix, transposed.

namespace {

#if defined(__clang__)
#define WORDS(a, b, i, j, k, l) __builtin_shufflevector(a, b, i, j, k, l)
#else
#define WORDS(a, b, i, j, k, l) __builtin_shuffle(a, b, Words{i, j, k, l})
#endif

LANE uint32_t word(const uint8_t* p) {
    uint32_t w;
    memcpy(&w, p, 4);
    return w;
}
LANE Words words(const uint8_t* const* rows, int at) { return Words{word(rows[0] + at), word(rows[1] + at), word(rows[2] + at), word(rows[3] + at)}; }

// Word i of vector j changes places with word j of vector i.
LANE void transpose(Words (&x)[4]) {
    const Words a = WORDS(x[0], x[1], 0, 4, 1, 5), b = WORDS(x[2], x[3], 0, 4, 1, 5);
    const Words c = WORDS(x[0], x[1], 2, 6, 3, 7), d = WORDS(x[2], x[3], 2, 6, 3, 7);
    x[0] = WORDS(a, b, 0, 1, 4, 5);
    x[1] = WORDS(a, b, 2, 3, 6, 7);
    x[2] = WORDS(c, d, 0, 1, 4, 5);
    x[3] = WORDS(c, d, 2, 3, 6, 7);
}
#undef WORDS

// Of every N fields of BITS bits in N words, field i of word j changes places with field j of word i: halves of the matrix,
// then halves of these.
template <int N, int BITS> LANE void transpose_fields(Words* x) {
    for (int half = N / 2; half > 0; half /= 2) {
        const int shift = half * BITS;
        const uint32_t mask = 0xffffffffu / ((1u << shift) + 1);      // the lower half of every 2 * shift bits
        for (int i = 0; i < N; i++) {
            if (i & half) continue;
            const Words changed = ((x[i] >> shift) ^ x[i + half]) & mask;
            x[i + half] ^= changed;
            x[i] ^= changed << shift;
        }
    }
}

// 16 bytes of each of four rows: word g of row r is lane r of x[g].
LANE void read_words(const uint8_t* const* rows, int at, Words* x) {
    Words y[4] = {get(rows[0] + at), get(rows[1] + at), get(rows[2] + at), get(rows[3] + at)};
    transpose(y);
    for (int g = 0; g < 4; g++) x[g] = y[g];
}
LANE void read_groups(const uint8_t* const* rows, int at, Words (&x)[8]) {
    read_words(rows, at, x);
    read_words(rows, at + 16, x + 4);
}

// Groups whose bytes hold two codes: lines of nibbles of the low ones, and of the high ones.
LANE void put_nibbles(uint8_t* low, uint8_t* high, const Words (&x)[8]) {
    for (int j = 0; j < 4; j++) {
        put(low + 64 * j, (x[j] & in_each_byte(15)) | (x[j + 4] & in_each_byte(15)) << 4);
        put(high + 64 * j, (x[j] >> 4 & in_each_byte(15)) | (x[j + 4] & in_each_byte(0xf0)));
    }
}
// Groups whose bytes hold four codes, of four blocks that lie STEP bytes apart: two lines in each.
template <int STEP> LANE void put_crumbs(uint8_t* lines, Words (&x)[8]) {
    for (int h = 0; h < 2; h++) {
        transpose_fields<4, 2>(x + 4 * h);
        for (int j = 0; j < 4; j++) put(lines + STEP * j + 64 * h, x[4 * h + j]);
    }
}
// Groups whose bytes hold a bit of each of eight blocks: a line in each.
template <int STEP> LANE void put_bits(uint8_t* line, Words (&x)[8]) {
    transpose_fields<8, 1>(x);
    for (int j = 0; j < 8; j++) put(line + STEP * j, x[j]);
}
// Groups of six bits: three lines for four of them.
LANE void put_sixes(uint8_t* lines, const Words (&x)[8]) {
    for (int h = 0; h < 2; h++)
        for (int j = 0; j < 3; j++) put(lines + 192 * h + 64 * j, x[4 * h + j] | (x[4 * h + 3] >> (2 * j) & in_each_byte(3)) << 6);
}
// Four small numbers of all 16 rows, x[q] having those of rows 4q .. 4q+3: number j of row r goes to byte 16 j + r.
LANE void put_numbers(uint8_t* out, Words (&x)[4]) {
    transpose(x);
    transpose_fields<4, 8>(x);
    for (int j = 0; j < 4; j++) put(out + 16 * j, x[j]);
}
template <int COUNT> LANE void copy_numbers(uint8_t* out, const uint8_t* const* rows, int at) {
    for (int j = 0; j < COUNT; j += 4) {
        Words x[4];
        for (int q = 0; q < 4; q++) x[q] = words(rows + 4 * q, at + j);
        put_numbers(out + 16 * j, x);
    }
}
// An f16 of all rows; whether all are finite. FLIP is in the upper byte: 0x80 negates.
template <uint8_t FLIP = 0> LANE bool copy_halves(uint8_t* out, const uint8_t* const* rows, int at) {
    bool good = true;
    for (int r = 0; r < PANEL; r++) {
        const uint8_t* p = rows[r] + at;
        good &= (p[1] & 0x7c) != 0x7c;
        out[2 * r] = p[0];
        out[2 * r + 1] = p[1] ^ FLIP;
    }
    return good;
}

// The body gets every block's 16 rows, FILE bytes each, and where its UNIT bytes go, and says whether they are good. Rows
// that fill up the last panel are zeros.
template <int COLUMNS, int FILE, int UNIT, class Body>
LANE bool each_block(const uint8_t* const rows[PANEL], int64_t columns, uint8_t* out, const Body& body) {
    static constexpr uint8_t zeros[FILE] = {};
    bool good = true;
    for (int64_t b = 0; b < columns / COLUMNS; b++) {
        const uint8_t* block[PANEL];
        for (int r = 0; r < PANEL; r++) block[r] = rows[r] ? rows[r] + b * FILE : zeros;
        good &= body(block, out + b * UNIT);
    }
    return good;
}
// The body gets four of these rows, and how far into a line their words lie.
template <class Body> LANE void by_fours(const uint8_t* const* rows, const Body& body) {
    for (int r = 0; r < PANEL; r += 4) body(rows + r, 4 * r);
}

// Q4_0, Q4_1, Q5_0, Q5_1: | f16 d | f16 m | 32 high bits | 16 bytes: value i low, value i+16 high |
template <bool HAS_MIN, int BITS> bool pack_small(const uint8_t* const rows[PANEL], int64_t columns, uint8_t* out) {
    constexpr int header = HAS_MIN ? 4 : 2, codes = header + (BITS == 5 ? 4 : 0);
    constexpr int top = HAS_MIN ? 64 : 32, unit = top + 256 + (BITS == 5 ? 64 : 0);
    return each_block<32, codes + 16, unit>(rows, columns, out, [](const uint8_t* const* block, uint8_t* to) INLINE {
        by_fours(block, [&](const uint8_t* const* four, int lane) INLINE {
            Words x[4];
            read_words(four, codes, x);      // nibbles lie in the file as in a line
            for (int j = 0; j < 4; j++) put(to + top + 64 * j + lane, x[j]);
            if constexpr (BITS == 5) {
                const Words bits = words(four, header);
                Words line{};
                for (int g = 0; g < 8; g++) line |= ((bits >> (4 * g) & 15) * 0x00204081u & in_each_byte(1)) << g;      // a bit to each byte
                put(to + top + 256 + lane, line);
            }
        });
        return copy_halves(to, block, 0) & (!HAS_MIN || copy_halves(to + 32, block, 2));
    });
}

// Q8_0: | f16 d | 32 int8 |
bool pack_q8_0(const uint8_t* const rows[PANEL], int64_t columns, uint8_t* out) {
    return each_block<32, 34, 544>(rows, columns, out, [](const uint8_t* const* block, uint8_t* to) INLINE {
        by_fours(block, [&](const uint8_t* const* four, int lane) INLINE {
            Words x[8];
            read_groups(four, 2, x);
            for (int g = 0; g < 8; g++) put(to + 32 + 64 * g + lane, x[g] ^ in_each_byte(0x80));
        });
        return copy_halves(to, block, 0);
    });
}

// Q4_K, Q5_K: | f16 d | f16 dmin | 12 bytes of 6-bit scales and minimums | Q5_K: 32 bytes of high bits | 128 bytes |
template <int BITS> bool pack_k(const uint8_t* const rows[PANEL], int64_t columns, uint8_t* out) {
    constexpr int file = BITS == 4 ? 144 : 176, unit = BITS == 4 ? 2304 : 2816;
    return each_block<256, file, unit>(rows, columns, out, [](const uint8_t* const* block, uint8_t* to) INLINE {
        Words low[2][4], high[4];
        for (int q = 0; q < 4; q++) {      // scale, minimum j: 6 bits of a and b for j < 4; else nibbles of c with the two bits left
            const Words a = words(block + 4 * q, 4), b = words(block + 4 * q, 8), c = words(block + 4 * q, 12);
            low[0][q] = (a & in_each_byte(15)) | (b & in_each_byte(15)) << 4;
            low[1][q] = c;
            const auto pairs = [&](int shift) INLINE {      // the upper two bits of both, of numbers j and j+1 in a byte
                const Words both = (a >> shift & in_each_byte(3)) | (b >> shift & in_each_byte(3)) << 2, joined = both | both >> 4;
                return (joined & 0xff) | (joined >> 8 & 0xff00);
            };
            high[q] = pairs(4) | pairs(6) << 16;
        }
        put_numbers(to + 64, low[0]);
        put_numbers(to + 128, low[1]);
        put_numbers(to + 192, high);
        by_fours(block, [&](const uint8_t* const* four, int lane) INLINE {
            Words x[8];
            for (int c = 0; c < 4; c++) {
                read_groups(four, file - 128 + 32 * c, x);
                put_nibbles(to + 256 + 512 * c + lane, to + 512 + 512 * c + lane, x);
            }
            if constexpr (BITS == 5) {
                read_groups(four, 16, x);
                put_bits<64>(to + 2304 + lane, x);
            }
        });
        return copy_halves(to, block, 0) & copy_halves<0x80>(to + 32, block, 2);      // negated, so that it is only ever added
    });
}

// Q6_K: | 128 bytes low nibbles | 64 bytes high pairs | 16 int8 scales | f16 d |
bool pack_q6_k(const uint8_t* const rows[PANEL], int64_t columns, uint8_t* out) {
    return each_block<256, 210, 3360>(rows, columns, out, [](const uint8_t* const* block, uint8_t* to) INLINE {
        copy_numbers<16>(to + 32, block, 192);
        by_fours(block, [&](const uint8_t* const* four, int lane) INLINE {
            for (int h = 0; h < 2; h++) {      // four blocks of 384 bytes in each half
                Words low[2][8], high[8];
                for (int c = 0; c < 2; c++) read_groups(four, 64 * h + 32 * c, low[c]);
                read_groups(four, 128 + 32 * h, high);
                for (int n = 0; n < 4; n++) {
                    Words x[8];
                    for (int g = 0; g < 8; g++) x[g] = (low[n % 2][g] >> (n / 2 * 4) & in_each_byte(15)) | (high[g] >> (2 * n) & in_each_byte(3)) << 4;
                    put_sixes(to + 288 + 384 * (4 * h + n) + lane, x);
                }
            }
        });
        return copy_halves(to, block, 208);
    });
}

// Q3_K: | 32 bytes of high bits | 64 bytes of low pairs | 12 bytes of 6-bit scales | f16 d |
bool pack_q3_k(const uint8_t* const rows[PANEL], int64_t columns, uint8_t* out) {
    return each_block<256, 110, 1760>(rows, columns, out, [](const uint8_t* const* block, uint8_t* to) INLINE {
        copy_numbers<12>(to + 32, block, 96);      // scale i low, scale i+8 high, and their upper bits: as in the file
        by_fours(block, [&](const uint8_t* const* four, int lane) INLINE {
            Words x[8];
            for (int h = 0; h < 2; h++) {
                read_groups(four, 32 + 32 * h, x);
                put_crumbs<192>(to + 224 + 4 * 192 * h + lane, x);
            }
            read_groups(four, 0, x);
            put_bits<192>(to + 224 + 128 + lane, x);
        });
        return copy_halves(to, block, 108);
    });
}

// Q2_K: | 16 bytes: scale low, minimum high | 64 bytes of pairs | f16 d | f16 dmin |
bool pack_q2_k(const uint8_t* const rows[PANEL], int64_t columns, uint8_t* out) {
    return each_block<256, 84, 1344>(rows, columns, out, [](const uint8_t* const* block, uint8_t* to) INLINE {
        copy_numbers<16>(to + 64, block, 0);
        by_fours(block, [&](const uint8_t* const* four, int lane) INLINE {
            Words x[8];
            for (int h = 0; h < 2; h++) {
                read_groups(four, 16 + 32 * h, x);
                put_crumbs<128>(to + 320 + 4 * 128 * h + lane, x);
            }
        });
        return copy_halves(to, block, 80) & copy_halves<0x80>(to + 32, block, 82);
    });
}

// F32, F16, BF16: [column][16 rows]. EXPONENT is the mask of the type's exponent bits: all set is no number.
template <class T, T EXPONENT> bool all_finite(const uint8_t* p, int64_t count) {
    T bad = 0;
    for (int64_t i = 0; i < count; i++) {
        T v;
        memcpy(&v, p + i * static_cast<int64_t>(sizeof v), sizeof v);
        bad = static_cast<T>(bad | ((v & EXPONENT) == EXPONENT));
    }
    return !bad;
}

template <class T, T EXPONENT> bool pack_floats(const uint8_t* const rows[PANEL], int64_t columns, uint8_t* out) {
    constexpr int size = sizeof(T), at_once = 16 / size, line = PANEL * size;
    const int64_t whole = columns / at_once * at_once;
    each_block<at_once, 16, at_once * line>(rows, whole, out, [](const uint8_t* const* block, uint8_t* to) INLINE {
        if constexpr (size == 4)
            by_fours(block, [&](const uint8_t* const* four, int lane) INLINE {
                Words x[4];
                read_words(four, 0, x);
                for (int k = 0; k < 4; k++) put(to + line * k + lane, x[k]);
            });
        else
            for (int r = 0; r < PANEL; r += 8) {      // a word has two columns of a row, and is to have two rows of a column
                const uint8_t *const even[4] = {block[r], block[r + 2], block[r + 4], block[r + 6]}, *const odd[4] = {block[r + 1], block[r + 3], block[r + 5], block[r + 7]};
                Words x[4], y[4];
                read_words(even, 0, x);
                read_words(odd, 0, y);
                for (int k = 0; k < 4; k++) {
                    Words both[2] = {x[k], y[k]};
                    transpose_fields<2, 16>(both);
                    for (int i = 0; i < 2; i++) put(to + line * (2 * k + i) + size * r, both[i]);
                }
            }
        return true;
    });
    memset(out + whole * line, 0, static_cast<size_t>((columns - whole) * line));
    bool good = true;
    for (int r = 0; r < PANEL; r++) {
        if (!rows[r]) continue;
        good &= all_finite<T, EXPONENT>(rows[r], columns);
        for (int64_t k = whole; k < columns; k++) memcpy(out + k * line + size * r, rows[r] + k * size, size);
    }
    return good;
}

}  // namespace
