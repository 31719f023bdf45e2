// pack.inl: what packing shares: 16 rows of a file become one panel. Once a load; tensor_types/layouts.py is the definition of
// the bytes.
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
        put(low + LINE * j, (x[j] & in_each_byte(15)) | (x[j + 4] & in_each_byte(15)) << 4);
        put(high + LINE * j, (x[j] >> 4 & in_each_byte(15)) | (x[j + 4] & in_each_byte(0xf0)));
    }
}
// Groups whose bytes hold four codes, of four blocks that lie STEP bytes apart: two lines in each.
template <int STEP> LANE void put_crumbs(uint8_t* lines, Words (&x)[8]) {
    for (int h = 0; h < 2; h++) {
        transpose_fields<4, 2>(x + 4 * h);
        for (int j = 0; j < 4; j++) put(lines + STEP * j + LINE * h, x[4 * h + j]);
    }
}
// Groups whose bytes hold a bit of each of eight blocks: a line in each.
template <int STEP> LANE void put_bits(uint8_t* line, Words (&x)[8]) {
    transpose_fields<8, 1>(x);
    for (int j = 0; j < 8; j++) put(line + STEP * j, x[j]);
}
// A bit of each column of a block, lowest first: a line.
LANE Words line_of_bits(Words bits) {
    Words line{};
    for (int g = 0; g < 8; g++) line |= ((bits >> (4 * g) & 15) * 0x00204081u & in_each_byte(1)) << g;      // a bit to each byte
    return line;
}
// Groups of six bits: three lines for four of them.
LANE void put_sixes(uint8_t* lines, const Words (&x)[8]) {
    for (int h = 0; h < 2; h++)
        for (int j = 0; j < 3; j++) put(lines + LINE * (3 * h + j), x[4 * h + j] | (x[4 * h + 3] >> (2 * j) & in_each_byte(3)) << 6);
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

// The body gets every block's 16 rows, as they lie in the file, and where its packed bytes go, and says whether they are
// good. Rows that fill up the last panel are zeros.
template <class Bytes, class Body> LANE bool each_block(const uint8_t* const rows[PANEL], int64_t columns, uint8_t* out, const Body& body) {
    constexpr int file = Bytes::File::end;
    static constexpr uint8_t zeros[file] = {};
    bool good = true;
    for (int64_t b = 0; b < columns / Bytes::columns; b++) {
        const uint8_t* block[PANEL];
        for (int r = 0; r < PANEL; r++) block[r] = rows[r] ? rows[r] + b * file : zeros;
        good &= body(block, out + b * Bytes::end);
    }
    return good;
}
// The body gets four of these rows, and how far into a line their words lie.
template <class Body> LANE void by_fours(const uint8_t* const* rows, const Body& body) {
    for (int r = 0; r < PANEL; r += 4) body(rows + r, 4 * r);
}

}  // namespace
