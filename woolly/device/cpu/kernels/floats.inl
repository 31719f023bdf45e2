// floats.inl: weights that are floats. A column of 16 rows, then the next: | 16 rows |. tensor_types/layouts.py is the definition.

namespace {

template <class Bits> struct BytesFloat {
    static constexpr int columns = 1, end = PANEL * static_cast<int>(sizeof(Bits));
    struct File { static constexpr int end = sizeof(Bits); };
};

// EXPONENT is the mask of the type's exponent bits: all set is no number.
struct PanelF32 {
    using Bits = uint32_t;
    using Bytes = BytesFloat<Bits>;
    static constexpr bool QUANTISED = false;
    static constexpr Bits EXPONENT = 0x7f800000u;
    static LANE f32x16 row(const uint8_t* panel, int64_t k) { return load(reinterpret_cast<const float*>(panel) + 16 * k); }
};
struct PanelF16 {
    using Bits = uint16_t;
    using Bytes = BytesFloat<Bits>;
    static constexpr bool QUANTISED = false;
    static constexpr Bits EXPONENT = 0x7c00;
    static LANE f32x16 row(const uint8_t* panel, int64_t k) { return load_f16(reinterpret_cast<const uint16_t*>(panel) + 16 * k); }
};
struct PanelBF16 {
    using Bits = uint16_t;
    using Bytes = BytesFloat<Bits>;
    static constexpr bool QUANTISED = false;
    static constexpr Bits EXPONENT = 0x7f80;
    static LANE f32x16 row(const uint8_t* panel, int64_t k) { return load_bf16(reinterpret_cast<const uint16_t*>(panel) + 16 * k); }
};

template <class T, T EXPONENT> bool all_finite(const uint8_t* p, int64_t count) {
    T bad = 0;
    for (int64_t i = 0; i < count; i++) {
        T v;
        memcpy(&v, p + i * static_cast<int64_t>(sizeof v), sizeof v);
        bad = static_cast<T>(bad | ((v & EXPONENT) == EXPONENT));
    }
    return !bad;
}

// As many columns as are packed at a time: 16 bytes of a row.
template <class P> struct SomeFloats {
    static constexpr int columns = 16 / P::Bytes::File::end, end = columns * P::Bytes::end;
    struct File { static constexpr int end = 16; };
};

template <class P> bool pack_floats(const uint8_t* const rows[PANEL], int64_t columns, uint8_t* out) {
    using Some = SomeFloats<P>;
    constexpr int size = P::Bytes::File::end, line = P::Bytes::end;
    const int64_t whole = columns / Some::columns * Some::columns;
    each_block<Some>(rows, whole, out, [](const uint8_t* const* block, uint8_t* to) INLINE {
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
        good &= all_finite<typename P::Bits, P::EXPONENT>(rows[r], columns);
        for (int64_t k = whole; k < columns; k++) memcpy(out + k * line + size * r, rows[r] + k * size, size);
    }
    return good;
}

}  // namespace
