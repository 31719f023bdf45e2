// kernels.h: what a kernel sees, and the table of kernels that each instruction set offers.
//
// The executor walks a flat list of instructions. An instruction names a kernel and its operands; all places are
// resolved when the program is loaded. A kernel says how many independent tiles an instruction has in this step,
// and computes a run of them. Tiles never depend on each other, nor on who computes them.
#pragma once
#include <cstddef>
#include <cstdint>

namespace woolly {

constexpr int PANEL = 16;          // rows of a weight panel: a row is a lane in every instruction set
constexpr int PART = 256;          // attention is cut at these absolute positions
constexpr int PAGE = 64;           // positions of a cache page; divides PART, and 16 divides it
constexpr int MAX_SMALL_STEP_ROWS = 16;   // of what a program calls a step of few rows
constexpr int MAX_OPERANDS = 8;    // inputs of an instruction
constexpr int MAX_ATTRS = 6;

// The weight layouts, one row each: name (that of tensor_types/layouts.py), columns of a block, bytes of a block in the file,
// the panel that reads it, and what packs it (blocks_*.inl, floats.inl). Nothing is widened: PANEL rows of
// a block take PANEL times its bytes. A block of one column is a float. No list depends on the order. Their products are most
// of what is compiled, in two halves (kernels/weights_a.cpp and weights_b.cpp), so that two processors share the work.
#define WEIGHT_LAYOUTS_A(X)                                      \
    X(q4_0,   32,  18, PanelSmall<Q4_0>, pack_small<Q4_0>)       \
    X(q4_1,   32,  20, PanelSmall<Q4_1>, pack_small<Q4_1>)       \
    X(q5_0,   32,  22, PanelSmall<Q5_0>, pack_small<Q5_0>)       \
    X(q5_1,   32,  24, PanelSmall<Q5_1>, pack_small<Q5_1>)       \
    X(q8_0,   32,  34, PanelQ8_0,        pack_q8_0)              \
    X(iq4_nl, 32,  18, PanelIQ4_NL,      pack_small<Q4_0>)       \
    X(iq4_xs, 256, 136, PanelIQ4_XS,     pack_iq4_xs)            \
    X(mxfp4,  32,  17, PanelMXFP4,       pack_mxfp4)             \
    X(nvfp4,  64,  36, PanelNVFP4,       pack_nvfp4)             \
    X(q1_0,  128,  18, PanelQ1_0,        pack_q1_0)              \
    X(q2_0,   64,  18, PanelQ2_0,        pack_q2_0)              \
    X(tq1_0, 256,  54, PanelTQ1_0,       pack_tq1_0)             \
    X(tq2_0, 256,  66, PanelTQ2_0,       pack_tq2_0)             \
    X(f32,     1,   4, PanelF32,         pack_floats<PanelF32>)  \
    X(f16,     1,   2, PanelF16,         pack_floats<PanelF16>)  \
    X(bf16,    1,   2, PanelBF16,        pack_floats<PanelBF16>)
#define WEIGHT_LAYOUTS_B(X)                                              \
    X(q2_k,  256,  84, PanelQ2_K,        pack_q2_k)                      \
    X(q3_k,  256, 110, PanelQ3_K,        pack_q3_k)                      \
    X(q4_k,  256, 144, PanelK<4>,        pack_k<4>)                      \
    X(q5_k,  256, 176, PanelK<5>,        pack_k<5>)                      \
    X(q6_k,  256, 210, PanelQ6_K,        pack_q6_k)                      \
    X(iq2_xxs, 256, 66, PanelOfEntries<IQ2_XXS>, pack_xxs<IQ2_XXS>)      \
    X(iq2_xs,  256, 74, PanelOfEntries<IQ2_XS>,  pack_iq2_xs)            \
    X(iq2_s,   256, 82, PanelOfEntries<IQ2_S>,   pack_with_signs<IQ2_S>) \
    X(iq3_xxs, 256, 98, PanelOfEntries<IQ3_XXS>, pack_xxs<IQ3_XXS>)      \
    X(iq3_s,  256, 110, PanelOfEntries<IQ3_S>,   pack_with_signs<IQ3_S>) \
    X(iq1_s,   256, 50, PanelOfEntries<IQ1_S>,   pack_iq1_s)             \
    X(iq1_m,   256, 56, PanelOfEntries<IQ1_M>,   pack_iq1_m)
#define WEIGHT_LAYOUTS(X) WEIGHT_LAYOUTS_A(X) WEIGHT_LAYOUTS_B(X)

// The layouts of everything else: rows of f32, activation records of 8 and 16 bits, rows of i32, cache pages
// of keys and values, and of one row for both.
#define OTHER_LAYOUTS(X) \
    X(NO_LAYOUT, "none") X(PLAIN, "plain") X(RECORD, "record") X(WIDE, "wide") X(IDS, "ids") X(KV_F32, "kv_f32") X(KV_F16, "kv_f16") X(KV_Q8, "kv_q8") \
    X(LATENT_F32, "latent_f32") X(LATENT_F16, "latent_f16") X(LATENT_Q8, "latent_q8")

// How the bytes of an operand are to be read.
enum Layout : int32_t {
#define NUMBER(number, name) number,
    OTHER_LAYOUTS(NUMBER)
#undef NUMBER
#define NUMBER(name, columns, nbytes, panel, pack) LAYOUT_##name,
    WEIGHT_LAYOUTS(NUMBER)
#undef NUMBER
    LAYOUTS
};

struct LayoutInfo { const char* name; int block; int nbytes; };      // of a weight: columns of a block, bytes of PANEL rows of it
constexpr LayoutInfo LAYOUT[LAYOUTS] = {
#define INFO(number, name) {name, 0, 0},
    OTHER_LAYOUTS(INFO)
#undef INFO
#define INFO(name, columns, nbytes, panel, pack) {#name, columns, PANEL * nbytes},
    WEIGHT_LAYOUTS(INFO)
#undef INFO
};
constexpr bool quantised(int32_t layout) { return LAYOUT[layout].block > 1; }
// Bytes of a panel of so many columns; 0 when the layout is not a weight's, or they are no whole blocks.
constexpr int64_t panel_bytes(int32_t layout, int64_t columns) {
    const LayoutInfo& l = LAYOUT[layout];
    return l.block && columns % l.block == 0 ? columns / l.block * l.nbytes : 0;
}

// Where an operand lies. Activations: row r of a step is at base + r * stride. Weights: panels from base on.
// Tables: row p belongs to position p. States: one layer's piece of every cache page of its group, or of every slot,
// `stride` bytes from its start.
struct Operand {
    uint8_t* base = nullptr;   // nullptr: an optional operand left out
    int64_t  stride = 0;       // bytes between rows; for a weight between panels; for a state its place in a page
    int32_t  layout = NO_LAYOUT;
    int32_t  width = 0;        // elements of a row; for a weight its columns; for a state the size of a head
    int32_t  height = 0;       // for a weight its rows; for a state its heads
    int64_t  nbytes = 0;       // all that belongs to it
    int32_t  group = 0;        // of a state in cache pages

    template <class T> T* row(int64_t r) const { return reinterpret_cast<T*>(base + r * stride); }
};

// One step: a ragged batch. Arrays are the caller's and stay valid for the step.
struct Span {
    int32_t first, count, position;      // rows of one sequence, and the position of the first
    int32_t slot;                        // of what the sequence carries; -1: nothing
    int32_t adapter;                     // 1: its row of Step::scales counts; 0: it has no adapter
};

// Cache pages of the layers that share a window: positions further behind are not kept. 0: all are.
struct PageGroup {
    int32_t        window, page_count;
    int64_t        page_bytes;
    uint8_t*       pool;
    const int32_t* pages;                // [spans, pages_per_sequence]
};

struct Step {
    const int32_t* tokens = nullptr;      // [rows]
    const int32_t* want = nullptr;        // [wants] rows whose output is asked for
    int32_t        pages_per_sequence = 0;
    const int32_t* position = nullptr;    // [rows]
    const int32_t* span_of = nullptr;     // [rows]
    const Span*    spans = nullptr;
    const PageGroup* groups = nullptr;
    uint8_t*       slots = nullptr;       // what sequences carry
    int64_t        slot_bytes = 0;
    const float*   scales = nullptr;      // [spans, adapters]
    int32_t        adapters = 0;

    int32_t span_count(int32_t rows) const { return span_of[rows - 1] + 1; }      // of a step of so many rows

    uint8_t* page(const Operand& state, int span_index, int pos) const {
        const PageGroup& group = groups[state.group];
        return group.pool + group.pages[static_cast<int64_t>(span_index) * pages_per_sequence + pos / PAGE] * group.page_bytes;
    }
    template <class T> T* carried(const Operand& state, int span_index) const {
        return reinterpret_cast<T*>(slots + spans[span_index].slot * slot_bytes + state.stride);
    }
};

struct Args {
    const Step* step;
    Operand     out;
    Operand     in[MAX_OPERANDS];
    double      attr[MAX_ATTRS];
    int32_t     rows;                     // rows of this instruction in this step: tokens, wanted rows or spans
    bool        wanted;                   // they are the wanted rows
    uint8_t*    shared;                   // what the threads that work on it share, zeros at first
};

struct Tiles { int64_t count; int64_t chunk; };   // how many, and how many a thread should take at a time

struct Kernel {
    const char* name;
    int         inputs;                              // operands, optional ones included
    const char* attrs[MAX_ATTRS];                   // their names, in the order of Args::attr
    const char* (*check)(const Args&);               // at load: what is wrong, or nullptr
    size_t      (*scratch)(const Args&);             // at load: bytes each thread needs at the most
    size_t      (*shared)(const Args&);              // at load: bytes all threads together need at the most
    Tiles       (*tiles)(const Args&) noexcept;
    void        (*run)(const Args&, int64_t first, int64_t last, uint8_t* scratch) noexcept;
};

// Packing: PANEL rows of a file become one panel. A missing row is nullptr and becomes zeros.
// Returns false when a scale (or a float weight) is not finite.
using PackPanel = bool (*)(const uint8_t* const rows[PANEL], int64_t columns, uint8_t* out);

// Sampling of one row of logits: the filters, the temperature and the draw (engine/sampling/stages.py is the definition).
// PICK_ROW of device/runner.py.
struct PickRow {
    int32_t  row;             // of the logits
    int32_t  mask;            // row of the masks, or -1
    uint64_t seed;
    uint32_t position;
    int32_t  top_k;           // 0: off
    double   top_p;           // 1: off
    double   min_p;           // 0: off
    float    temperature;     // 0: the largest, ties to the lowest id
};
static_assert(sizeof(PickRow) == 48, "device/cpu/pick.py has another row");

struct PickArgs {
    const float*    logits;
    const uint32_t* mask;         // bit i of word w allows token 32 w + i; nullptr: all are allowed
    int32_t         vocab;
    const PickRow*  how;
    double          u;            // the drawn number, in [0, 1)
    uint8_t*        scratch;      // pick_scratch(vocab) bytes, aligned to 8
};

// ---------------------------------------------------------------------------------------- a set, and its objects

// A set is compiled in pieces (kernels/*.cpp), which several processors compile at a time. What one piece has for another is
// a table of its own; nothing else of it is visible.

// Rows of activations: those from `base` on, or some that stand anywhere.
struct ActivationRows {
    const uint8_t*        base;
    int64_t               stride, columns;
    const uint8_t* const* chosen;
};

// A pass over one panel: its product with so many rows of activations, from `row` on; 16 sums for each of them. Behind this
// pointer a layout no longer shows, so the kernels that multiply are compiled once and not for each.
struct Pass {
    int rows;
    void (*product)(const uint8_t* panel, const ActivationRows& x, int64_t row, float* sums) noexcept;
};

// The passes of a layout: over panels that were unpacked before, then over packed ones, the widest first of each.
struct Passes {
    Pass all[5];
    int  unpacked;            // how many of them read unpacked panels
    void (*unpack)(const uint8_t* panel, int64_t columns, uint8_t* out) noexcept;
    int  unpacked_bytes;      // of 32 columns
    int  unpack_rows;         // rows from which panels are unpacked; 0: never
};

// What a set does with the weights of one layout.
struct WeightKernels {
    const Passes* passes;      // with activations of 8 bits, or floats
    const Passes* wide;        // with those of 16 bits
    PackPanel     pack;
    void (*read_row)(const uint8_t* panel, int64_t columns, int lane, float* y) noexcept;
};

struct WeightTable { WeightKernels of[LAYOUTS]; };      // nullptrs where another piece has the layout, or it is not a weight's

struct KernelTable { const Kernel* first; int count; };

struct Set {
    const char*        name;
    const KernelTable* tables[2];
    PackPanel (*pack)(int32_t layout);         // nullptr where a layout is not a weight's
    int (*pick)(const PickArgs&) noexcept;     // a token; -1 when the logits are not finite, or none is allowed
};

constexpr int PICK_SLACK = 64;
constexpr size_t pick_scratch(int32_t vocab) { return (static_cast<size_t>(vocab) + PICK_SLACK) * 32; }   // eight words a token

extern const Set set_scalar, set_avx2, set_avxvnni, set_avx512, set_neon;      // those that were compiled (cpu.cpp)

}  // namespace woolly
