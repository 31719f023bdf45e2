// panels.inl: what panels share: 16 rows of weights, in lines. tensor_types/layouts.py is the definition of the bytes.
//
// A panel is a run of units along k; a unit has `blocks` blocks of 32 columns. A line is 64 bytes: 4 columns (a
// group) of 16 rows, byte 4 * row + i. A block has 8 groups:
//   nibbles  4 lines: line j has group j in the low halves and group j+4 in the high ones
//   crumbs   2 lines of 2-bit fields: line h, bits 2j..2j+1 is group 4h+j
//   bits     1 line: bit g is group g
//   bytes    8 lines, one a group
//   sixes    6 lines, three for four groups: line 3h+j has group 4h+j, and above it two bits of group 4h+3
// `codes<G>(j)` gives the unsigned codes of group G in block j, MAX_CODE at the most; the value is code - ZERO_POINT.
// `scales(j)` gives the factors. PREFETCH_ROWS is the rows of activations from which prefetching the weights pays: one row
// leaves that to the hardware, which follows one stream well, but not the two of Q5_K, nor one that is read in fits: units that
// are opened, and Q6_K where six bits take long to put together.

namespace {

constexpr int LINE = 64, HALVES = 2 * PANEL, NUMBER = PANEL;      // bytes of a line, of an f16 of each row, and of a small number of each

template <int G> LANE u8x64 nibbles(const uint8_t* lines) { return field<G / 4 * 4, 15>(load(lines + LINE * (G % 4))); }
template <int G> LANE u8x64 crumbs(const uint8_t* lines) { return field<2 * (G % 4), 3>(load(lines + LINE * (G / 4))); }
// shifted by AT, to where they are wanted
template <int G, int AT> LANE u8x64 bits(const uint8_t* line) { return field<G - AT, 1 << AT>(load(line)); }
template <int G> LANE u8x64 sixes(const uint8_t* lines) {
    const uint8_t* three = lines + 3 * LINE * (G / 4);
    if constexpr (G % 4 < 3) return field<0, 63>(load(three + LINE * (G % 4)));
    else return either(either(field<6, 3>(load(three)), field<4, 12>(load(three + LINE))), field<2, 48>(load(three + 2 * LINE)));
}
LANE f32x16 halves(const uint8_t* p) { return load_f16(reinterpret_cast<const uint16_t*>(p)); }

// A panel whose codes take long to find opens a whole unit of 8 blocks when it is made: a byte a code.
struct Opened {
    alignas(64) uint8_t code[8 * 8 * LINE];
    LANE uint8_t* line(int j, int group) { return code + LINE * (8 * j + group); }
    template <int G> LANE u8x64 codes(int j) const { return load(code + LINE * (8 * j + G)); }
};
template <class P> concept OpensUnits = requires(const P& unit) { unit.opened; };
constexpr int OPENED_UNPACK_ROWS = 2;      // rows from which what was opened is kept for all of them, in every set

using TwoRows = uint32_t __attribute__((vector_size(32)));      // of small numbers, a byte for each of 16 lanes

struct Scales {                 // of one block of 32 columns: one group of 32, or two of 16
    f32x16 scale[2], min[2];
};

}  // namespace
