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
constexpr int MAX_FEW_ROWS = 16;   // of what a program calls a step of few rows
constexpr int MAX_OPERANDS = 6;    // inputs of an instruction
constexpr int MAX_ATTRS = 6;

// How the bytes of an operand are to be read. Weight layouts are those of formats/layouts.py.
enum Layout : int32_t {
    NO_LAYOUT, PLAIN, RECORD, WIDE,                                      // f32 rows; activation records of 8 and 16 bits
    Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K,          // panels of quantised blocks
    F32, F16, BF16,                                                      // panels of floats
    KV_F32, KV_F16, KV_Q8,                                               // cache pages
    LAYOUTS
};

// A weight layout in numbers: `block` columns of PANEL rows take `nbytes`.
struct LayoutInfo { const char* name; int block; int nbytes; };
constexpr LayoutInfo LAYOUT[LAYOUTS] = {
    {"none", 0, 0}, {"plain", 1, 4}, {"record", 32, 48}, {"wide", 32, 80},
    {"q4_0", 32, 288}, {"q4_1", 32, 320}, {"q5_0", 32, 352}, {"q5_1", 32, 384}, {"q8_0", 32, 544},
    {"q2_k", 256, 1344}, {"q3_k", 256, 1760}, {"q4_k", 256, 2304}, {"q5_k", 256, 2816}, {"q6_k", 256, 3360},
    {"f32", 1, 64}, {"f16", 1, 32}, {"bf16", 1, 32},
    {"kv_f32", 0, 0}, {"kv_f16", 0, 0}, {"kv_q8", 0, 0},
};
static_assert(LAYOUT[LAYOUTS - 1].name != nullptr, "a row of LAYOUT is missing");
constexpr bool quantised(int32_t layout) { return layout >= Q4_0 && layout <= Q6_K; }
constexpr bool floating(int32_t layout) { return layout >= F32 && layout <= BF16; }

// Where an operand lies. Activations: row r of a step is at base + r * stride. Weights: panels from base on.
// Tables: row p belongs to position p. States: one layer's piece of every cache page, `stride` bytes from its start.
struct Operand {
    uint8_t* base = nullptr;   // nullptr: an optional operand left out
    int64_t  stride = 0;       // bytes between rows; for a weight between panels; for a state its place in a page
    int32_t  layout = NO_LAYOUT;
    int32_t  width = 0;        // elements of a row; for a weight its columns; for a state the size of a head
    int32_t  height = 0;       // for a weight its rows; for a state its heads
    int64_t  nbytes = 0;       // all that belongs to it

    template <class T> T* row(int64_t r) const { return reinterpret_cast<T*>(base + r * stride); }
};

// One step: a ragged batch. Arrays are the caller's and stay valid for the step.
struct Span { int32_t first, count, position; };    // rows of one sequence, and the position of the first
struct Step {
    const int32_t* tokens = nullptr;      // [rows]
    const int32_t* want = nullptr;        // [wants] rows whose logits are asked for
    const int32_t* pages = nullptr;       // [spans, pages_per_sequence]
    int32_t        pages_per_sequence = 0;
    const int32_t* position = nullptr;    // [rows]
    const int32_t* span_of = nullptr;     // [rows]
    const Span*    spans = nullptr;
    uint8_t*       pool = nullptr;        // cache pages
    int64_t        page_bytes = 0;

    uint8_t* page(int span_index, int pos) const {
        return pool + pages[static_cast<int64_t>(span_index) * pages_per_sequence + pos / PAGE] * page_bytes;
    }
};

struct Args {
    const Step* step;
    Operand     out;
    Operand     in[MAX_OPERANDS];
    double      attr[MAX_ATTRS];
    int32_t     rows;                     // rows of this instruction in this step (all, or the wanted ones)
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

// Sampling of one row of logits: the filters, the temperature and the draw (engine/sampling.py is the definition).
// A row as native/pick.py writes it.
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
static_assert(sizeof(PickRow) == 48, "native/pick.py has another row");

struct PickArgs {
    const float*    logits;
    const uint32_t* mask;         // bit i of word w allows token 32 w + i; nullptr: all are allowed
    int32_t         vocab;
    const PickRow*  how;
    double          u;            // the drawn number, in [0, 1)
    uint8_t*        scratch;      // pick_scratch(vocab) bytes, aligned to 8
};

struct Set {
    const char*   name;
    const Kernel* kernels;
    int           count;
    PackPanel     pack[LAYOUTS];       // nullptr where a layout is not packed
    int (*pick)(const PickArgs&) noexcept;     // a token; -1 when the logits are not finite, or none is allowed
};

constexpr int PICK_SLACK = 64;
constexpr size_t pick_scratch(int32_t vocab) { return (static_cast<size_t>(vocab) + PICK_SLACK) * 32; }   // eight words a token

extern const Set set_scalar;
#if defined(__x86_64__)
extern const Set set_avx2, set_avxvnni, set_avx512;      // the second where the assembler knows it
#elif defined(__aarch64__)
extern const Set set_neon;
#endif

}  // namespace woolly
