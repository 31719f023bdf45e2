// program.h: a Program as C++ sees it. Linked by name and checked here, once; the executor trusts it afterwards.
#pragma once
#include <string>
#include <vector>

#include "kernels.h"

namespace woolly {

// The rows of Program.code, exactly as plan/lower.py writes them.
struct CodeOperand { int64_t kind, place, stride, layout, width, height, nbytes; };
struct CodeRow {
    int64_t     op, wanted, barrier;
    CodeOperand out, in[MOST_OPERANDS];
    double      attr[MOST_ATTRS];
};
enum Kind : int64_t { NOTHING, WORK, WEIGHT, TABLE, STATE, BATCH };

struct OpName { std::string name; int inputs; std::vector<std::string> attrs; };
struct ProgramView {
    std::vector<OpName>      ops;
    std::vector<std::string> layouts;
    const CodeRow*           code;
    size_t                   length;
    int64_t weight_bytes, work_bytes, table_bytes, page_bytes;
    int32_t rows, wants, sequences, context, vocab, pages;
    int64_t logits;                                  // place of the logits in the work area
};

struct Regions { uint8_t *weight, *work, *table, *pool; };

struct Instruction {
    const Kernel* kernel;
    Args          args;
    bool          wanted, barrier;
};

// Throws Error when a name, an operand or a bound is wrong.
std::vector<Instruction> link(const ProgramView& program, const Set& set, const Regions& regions);

}  // namespace woolly
