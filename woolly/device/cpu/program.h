// program.h: a Program as C++ sees it. Linked by name and checked here, once; the executor trusts it afterwards.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "kernels.h"

namespace woolly {

// The rows of Program.code and Program.small_step, exactly as plan/lower.py writes them.
struct CodeOperand { int64_t kind, place, stride, layout, width, height, nbytes, group; };
struct CodeRow {
    int64_t     op, rows, barrier;
    CodeOperand out, in[MAX_OPERANDS];
    double      attr[MAX_ATTRS];
};
enum Kind : int64_t { NOTHING, WORK, WEIGHT, TABLE, PAGES, BATCH, OWN, SLOTS };
enum Count : int64_t { BY_ROW, BY_WANT, BY_SPAN, COUNTS };      // what the rows of an instruction are counted by

struct OpName { std::string name; int inputs; std::vector<std::string> attrs; };
struct GroupView { int32_t window; int64_t page_bytes; int32_t pages; };      // cache pages of one window
struct OutputView { int64_t place, rows, width; };                            // a Count's rows of floats in the work area
struct ProgramView {
    std::vector<OpName>      ops = {};
    std::vector<std::string> layouts;
    std::span<const CodeRow> code, small_step;              // for any step; for one of at most small_step_rows
    std::span<const CodeRow> adapted, adapted_small_step;   // the same for steps in which a row has an adapter; none without adapters
    int64_t weight_bytes, work_bytes, per_thread_bytes, table_bytes, slot_bytes;
    std::vector<GroupView>   groups;
    std::vector<OutputView>  outputs;
    int32_t page, panel;                             // what it was planned for: positions of a page, rows of a panel
    int32_t rows, small_step_rows, wants, sequences, context, vocab, slots, adapters;

    int64_t most(int64_t count) const { return count == BY_ROW ? rows : count == BY_WANT ? wants : sequences; }
};

struct Regions { uint8_t *weight, *work, *table, *slots; const PageGroup* groups; uint8_t* own; };      // own: of the thread that will walk these instructions

struct Instruction {
    const Kernel* kernel;
    Args          args;
    Count         rows;           // what its rows are counted by
    bool          barrier;
    bool          own;            // every thread does all of it, into memory of its own
};

// The number of a layout by its name; throws Error when there is none.
int32_t find_layout(const std::string& name);

// Throws Error when a name, an operand or a bound is wrong.
std::vector<Instruction> link(const ProgramView& program, std::span<const CodeRow> code, const Set& set, const Regions& regions);

}  // namespace woolly
