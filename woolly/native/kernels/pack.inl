// pack.inl: 16 rows of a file become one panel. Once a load; formats/layouts.py is the definition of the bytes.
//
// Each format's `read` takes one file block of one row apart: codes, one byte a value, and the small numbers beside
// them. Planes are then written 4 codes (a 32-bit word) at a time: word (row, group) of a line is codes 4g .. 4g+3.

namespace {

LANE bool finite_f16(const uint8_t* p) { return (p[1] & 0x7c) != 0x7c; }
LANE uint32_t word(const uint8_t* p) {
    uint32_t w;
    memcpy(&w, p, 4);
    return w;
}
LANE void put_word(uint8_t* p, uint32_t w) { memcpy(p, &w, 4); }

// Planes of one block of 32 columns, for row r; `codes` has 32 bytes, and the plane takes the bits from `shift` on.
LANE void put_nibbles(uint8_t* lines, int r, const uint8_t* codes) {
    for (int j = 0; j < 4; j++)
        put_word(lines + 64 * j + 4 * r, (word(codes + 4 * j) & 0x0f0f0f0fu) | (word(codes + 4 * j + 16) & 0x0f0f0f0fu) << 4);
}
LANE void put_crumbs(uint8_t* lines, int r, const uint8_t* codes, int shift) {
    for (int h = 0; h < 2; h++) {
        uint32_t w = 0;
        for (int j = 0; j < 4; j++) w |= (word(codes + 16 * h + 4 * j) >> shift & 0x03030303u) << (2 * j);
        put_word(lines + 64 * h + 4 * r, w);
    }
}
LANE void put_bits(uint8_t* line, int r, const uint8_t* codes, int shift) {
    uint32_t w = 0;
    for (int g = 0; g < 8; g++) w |= (word(codes + 4 * g) >> shift & 0x01010101u) << g;
    put_word(line + 4 * r, w);
}

// 32 bits in the order of the values to the word of a bit plane: bit g of byte i is value 4g + i.
LANE uint32_t bits_of_groups(uint32_t bits) {
    uint32_t w = 0;
    for (int g = 0; g < 8; g++) w |= ((bits >> (4 * g) & 15) * 0x00204081u & 0x01010101u) << g;  // a bit to each byte
    return w;
}

// Q4_0, Q4_1, Q5_0, Q5_1: | f16 d | f16 m | 32 high bits | 16 bytes: value i low, value i+16 high |
template <bool LEAST, int BITS> bool pack_small(const uint8_t* const rows[PANEL], int64_t columns, uint8_t* out) {
    constexpr int header = LEAST ? 4 : 2, file = header + (BITS == 5 ? 4 : 0) + 16;
    constexpr int top = LEAST ? 64 : 32, unit = top + 256 + (BITS == 5 ? 64 : 0);
    bool good = true;
    for (int64_t b = 0; b < columns / 32; b++, out += unit) {
        memset(out, 0, unit);
        for (int r = 0; r < PANEL; r++) {
            if (!rows[r]) continue;
            const uint8_t* p = rows[r] + b * file;
            good &= finite_f16(p) && (!LEAST || finite_f16(p + 2));
            memcpy(out + 2 * r, p, 2);
            if (LEAST) memcpy(out + 32 + 2 * r, p + 2, 2);
            for (int j = 0; j < 4; j++) put_word(out + top + 64 * j + 4 * r, word(p + file - 16 + 4 * j));  // as in the file
            if constexpr (BITS == 5) put_word(out + top + 256 + 4 * r, bits_of_groups(word(p + header)));
        }
    }
    return good;
}

// Q8_0: | f16 d | 32 int8 |
bool pack_q8_0(const uint8_t* const rows[PANEL], int64_t columns, uint8_t* out) {
    bool good = true;
    for (int64_t b = 0; b < columns / 32; b++, out += 544) {
        memset(out, 0, 32);
        memset(out + 32, 0x80, 512);
        for (int r = 0; r < PANEL; r++) {
            if (!rows[r]) continue;
            const uint8_t* p = rows[r] + b * 34;
            good &= finite_f16(p);
            memcpy(out + 2 * r, p, 2);
            for (int g = 0; g < 8; g++) put_word(out + 32 + 64 * g + 4 * r, word(p + 2 + 4 * g) ^ 0x80808080u);
        }
    }
    return good;
}

// Q4_K, Q5_K: | f16 d | f16 dmin | 12 bytes of 6-bit scales and minimums | Q5_K: 32 bytes of high bits | 128 bytes |
template <int BITS> bool pack_k(const uint8_t* const rows[PANEL], int64_t columns, uint8_t* out) {
    constexpr int file = BITS == 4 ? 144 : 176, unit = BITS == 4 ? 2304 : 2816;
    bool good = true;
    for (int64_t b = 0; b < columns / 256; b++, out += unit) {
        memset(out, 0, unit);
        for (int r = 0; r < PANEL; r++) {
            if (!rows[r]) continue;
            const uint8_t* p = rows[r] + b * file;
            good &= finite_f16(p) && finite_f16(p + 2);
            memcpy(out + 2 * r, p, 2);
            out[32 + 2 * r] = p[2];
            out[32 + 2 * r + 1] = p[3] ^ 0x80;      // the minimum is kept negated, so that it is only ever added
            const uint8_t* s = p + 4;
            for (int j = 0; j < 8; j++) {
                const int scale = j < 4 ? s[j] & 63 : (s[j + 4] & 15) | (s[j - 4] >> 6) << 4;
                const int least = j < 4 ? s[j + 4] & 63 : (s[j + 4] >> 4) | (s[j] >> 6) << 4;
                out[64 + 16 * j + r] = static_cast<uint8_t>((scale & 15) | (least & 15) << 4);
                out[192 + 16 * (j / 2) + r] |= static_cast<uint8_t>((scale >> 4 | (least >> 4) << 2) << (j % 2 * 4));
            }
            const uint8_t *high = p + 16, *low = p + file - 128;
            for (int j = 0; j < 8; j++) {
                uint8_t codes[32];
                for (int i = 0; i < 32; i++) codes[i] = low[32 * (j / 2) + i] >> (j % 2 * 4) & 15;
                put_nibbles(out + 256 + 256 * j, r, codes);
                if constexpr (BITS == 5) put_bits(out + 2304 + 64 * j, r, high, j);
            }
        }
    }
    return good;
}

// Q6_K: | 128 bytes low nibbles | 64 bytes high pairs | 16 int8 scales | f16 d |
bool pack_q6_k(const uint8_t* const rows[PANEL], int64_t columns, uint8_t* out) {
    bool good = true;
    for (int64_t b = 0; b < columns / 256; b++, out += 3360) {
        memset(out, 0, 3360);
        for (int r = 0; r < PANEL; r++) {
            if (!rows[r]) continue;
            const uint8_t* p = rows[r] + b * 210;
            good &= finite_f16(p + 208);
            memcpy(out + 2 * r, p + 208, 2);
            for (int s = 0; s < 16; s++) out[32 + 16 * s + r] = p[192 + s];
            for (int j = 0; j < 8; j++) {       // block j: half j/4 of the 256, quarter j%4 of that half
                const uint8_t *low = p + 64 * (j / 4) + 32 * (j % 2), *high = p + 128 + 32 * (j / 4);
                uint8_t codes[32];
                for (int i = 0; i < 32; i++)
                    codes[i] = static_cast<uint8_t>((low[i] >> (j % 4 / 2 * 4) & 15) | (high[i] >> (j % 4 * 2) & 3) << 4);
                put_nibbles(out + 288 + 384 * j, r, codes);
                put_crumbs(out + 288 + 384 * j + 256, r, codes, 4);
            }
        }
    }
    return good;
}

// Q3_K: | 32 bytes of high bits | 64 bytes of low pairs | 12 bytes of 6-bit scales | f16 d |
bool pack_q3_k(const uint8_t* const rows[PANEL], int64_t columns, uint8_t* out) {
    bool good = true;
    for (int64_t b = 0; b < columns / 256; b++, out += 1760) {
        memset(out, 0, 1760);
        for (int r = 0; r < PANEL; r++) {
            if (!rows[r]) continue;
            const uint8_t *p = rows[r] + b * 110, *s = p + 96;
            good &= finite_f16(p + 108);
            memcpy(out + 2 * r, p + 108, 2);
            for (int i = 0; i < 8; i++) out[32 + 16 * i + r] = s[i];      // scale i low, scale i+8 high: as in the file
            for (int i = 0; i < 4; i++) out[160 + 16 * i + r] = s[8 + i];
            for (int j = 0; j < 8; j++) {
                uint8_t codes[32];
                for (int i = 0; i < 32; i++) codes[i] = p[32 + 32 * (j / 4) + i] >> (j % 4 * 2) & 3;
                put_crumbs(out + 224 + 192 * j, r, codes, 0);
                put_bits(out + 224 + 192 * j + 128, r, p, j);
            }
        }
    }
    return good;
}

// Q2_K: | 16 bytes: scale low, minimum high | 64 bytes of pairs | f16 d | f16 dmin |
bool pack_q2_k(const uint8_t* const rows[PANEL], int64_t columns, uint8_t* out) {
    bool good = true;
    for (int64_t b = 0; b < columns / 256; b++, out += 1344) {
        memset(out, 0, 1344);
        for (int r = 0; r < PANEL; r++) {
            if (!rows[r]) continue;
            const uint8_t* p = rows[r] + b * 84;
            good &= finite_f16(p + 80) && finite_f16(p + 82);
            memcpy(out + 2 * r, p + 80, 2);
            out[32 + 2 * r] = p[82];
            out[32 + 2 * r + 1] = p[83] ^ 0x80;
            for (int s = 0; s < 16; s++) out[64 + 16 * s + r] = p[s];
            for (int j = 0; j < 8; j++) {
                uint8_t codes[32];
                for (int i = 0; i < 32; i++) codes[i] = p[16 + 32 * (j / 4) + i] >> (j % 4 * 2) & 3;
                put_crumbs(out + 320 + 128 * j, r, codes, 0);
            }
        }
    }
    return good;
}

// F32, F16, BF16: [column][16 rows]. EXPONENT is the mask of the type's exponent bits: all set is no number.
template <class T, T EXPONENT> bool pack_floats(const uint8_t* const rows[PANEL], int64_t columns, uint8_t* out) {
    bool good = true;
    for (int r = 0; r < PANEL; r++)
        for (int64_t k = 0; k < columns; k++) {
            T v = 0;
            if (rows[r]) memcpy(&v, rows[r] + k * static_cast<int64_t>(sizeof v), sizeof v);
            good &= (v & EXPONENT) != EXPONENT;
            memcpy(out + (k * PANEL + r) * static_cast<int64_t>(sizeof v), &v, sizeof v);
        }
    return good;
}

}  // namespace
