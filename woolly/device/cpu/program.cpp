#include "program.h"

#include <algorithm>
#include <cstring>

#include "cpu.h"
#include "error.h"

namespace woolly {

namespace {

[[noreturn]] void refuse(size_t at, const std::string& what) {
    throw Error("native_error", "instruction " + std::to_string(at) + ": " + what);
}

const Kernel& find(const Set& set, const OpName& op) {
    const Kernel* kernel = kernel_of(set, op.name);
    if (!kernel) throw Error("native_error", "operation '" + op.name + "' is not known here");
    size_t attrs = 0;
    while (attrs < MAX_ATTRS && kernel->attrs[attrs]) attrs++;
    bool same = kernel->inputs == op.inputs && attrs == op.attrs.size();
    for (size_t j = 0; same && j < attrs; j++) same = op.attrs[j] == kernel->attrs[j];
    if (!same) throw Error("native_error", "operation '" + op.name + "' has other operands or attributes here");
    return *kernel;
}

// Bytes from the first row to the end of the last, or -1 when a number is out of bounds.
int64_t extent(const CodeOperand& o, int32_t layout, int64_t rows) {
    constexpr int64_t most = int64_t{1} << 40;
    if (o.width < 1 || o.width > INT32_MAX || o.stride < 0 || o.stride > most || rows < 1) return -1;
    const int64_t row = layout == RECORD ? o.width * 3 / 2 : layout == WIDE ? o.width * 5 / 2 : o.width * 4;
    if (o.stride % 4 || (rows > 1 && o.stride < row)) return -1;
    return (rows - 1) * o.stride + row;
}

Operand resolve(const CodeOperand& o, const ProgramView& p, const std::vector<int32_t>& layouts, const Regions& r, int64_t rows, size_t at) {
    Operand out;
    if (o.kind == NOTHING || o.kind == BATCH) return out;
    if (o.layout < 0 || o.layout >= static_cast<int64_t>(layouts.size())) refuse(at, "unknown layout");
    out.layout = layouts[static_cast<size_t>(o.layout)];
    if (o.place < 0 || o.place % 4 || o.nbytes < 0 || o.width < 1 || o.width > INT32_MAX || o.height < 0 || o.height > INT32_MAX)
        refuse(at, "an operand's numbers are out of bounds");
    int64_t region = 0, need = 0;
    switch (o.kind) {
        case WORK:
        case OWN: {
            const bool own = o.kind == OWN;
            if (own && !r.own) refuse(at, "a step of many rows has no memory of single threads");
            out.base = own ? r.own : r.work, region = own ? p.per_thread_bytes : p.work_bytes;
            need = extent(o, out.layout, own ? p.small_step_rows : rows);
            if (out.layout != PLAIN && out.layout != RECORD && out.layout != WIDE && out.layout != IDS)
                refuse(at, "activations are rows of floats, records or ids");
            break;
        }
        case TABLE:
            out.base = r.table, region = p.table_bytes, need = extent(o, out.layout, p.context);
            if (out.layout != PLAIN) refuse(at, "tables are rows of floats");
            break;
        case WEIGHT:
            out.base = r.weight, region = p.weight_bytes, need = out.layout == PLAIN ? o.width * 4 : 0;
            break;
        case PAGES:
            if (o.group < 0 || o.group >= static_cast<int64_t>(p.groups.size())) refuse(at, "there is no such group of pages");
            out.group = static_cast<int32_t>(o.group);
            out.base = r.groups[o.group].pool, region = r.groups[o.group].page_bytes;
            break;
        case SLOTS:
            out.base = r.slots, region = p.slot_bytes, need = o.width * 4;
            if (out.layout != PLAIN) refuse(at, "slots hold floats");
            break;
        default: refuse(at, "unknown kind of operand");
    }
    if (need < 0 || need > o.nbytes || o.nbytes > region || o.place > region - o.nbytes) refuse(at, "an operand lies outside its region");
    if (o.kind == PAGES || o.kind == SLOTS) out.stride = o.place;
    else {
        out.base += o.place;
        out.stride = o.stride;
    }
    out.width = static_cast<int32_t>(o.width);
    out.height = static_cast<int32_t>(o.height);
    out.nbytes = o.nbytes;
    return out;
}

}  // namespace

int32_t find_layout(const std::string& name) {
    for (int32_t i = 0; i < LAYOUTS; i++)
        if (name == LAYOUT[i].name) return i;
    throw Error("native_error", "layout '" + name + "' is not known here");
}

std::vector<Instruction> link(const ProgramView& p, std::span<const CodeRow> code, const Set& set, const Regions& regions) {
    if (p.page != PAGE || p.panel != PANEL)
        throw Error("native_error", "the program is for pages of " + std::to_string(p.page) + " positions and panels of " + std::to_string(p.panel) +
                    " rows; this core has " + std::to_string(PAGE) + " and " + std::to_string(PANEL));
    if (p.rows < 1 || p.small_step_rows < 0 || p.small_step_rows > MAX_SMALL_STEP_ROWS || p.wants < 1 || p.sequences < 1 || p.context < 1 || p.vocab < 1 || p.slots < 0 ||
        p.adapters < 0 || p.adapters > 1024)
        throw Error("native_error", "the program's bounds must be positive, and few rows at most " + std::to_string(MAX_SMALL_STEP_ROWS));
    for (const OutputView& o : p.outputs)
        if (o.place < 0 || o.place % 64 || o.rows <= BY_ROW || o.rows >= COUNTS || o.width < 1 || o.width > INT32_MAX ||
            o.place > p.work_bytes - 4 * p.most(o.rows) * o.width)
            throw Error("native_error", "an output lies outside the work area");
    std::vector<const Kernel*> kernels;
    for (const OpName& op : p.ops) kernels.push_back(&find(set, op));
    std::vector<int32_t> layouts;
    for (const std::string& name : p.layouts) layouts.push_back(find_layout(name));

    std::vector<Instruction> linked;
    for (size_t at = 0; at < code.size(); at++) {
        const CodeRow& row = code[at];
        if (row.op < 0 || row.op >= static_cast<int64_t>(kernels.size())) refuse(at, "unknown operation");
        Instruction in{};
        in.kernel = kernels[static_cast<size_t>(row.op)];
        if (row.rows < 0 || row.rows >= COUNTS) refuse(at, "its rows are counted by nothing that is known here");
        in.rows = static_cast<Count>(row.rows);
        in.args.wanted = in.rows == BY_WANT;
        in.barrier = row.barrier != 0;
        in.own = row.out.kind == OWN;
        const int64_t rows = p.most(in.rows);
        const auto is = [&](const char* name) { return std::strcmp(in.kernel->name, name) == 0; };
        const bool gathers = is("take") || is("mean_pool") || is("first_row");      // the input has all rows, the result one per wanted row or span
        in.args.out = resolve(row.out, p, layouts, regions, rows, at);
        for (int i = 0; i < MAX_OPERANDS; i++)
            in.args.in[i] = resolve(row.in[i], p, layouts, regions, gathers ? p.rows : rows, at);
        std::memcpy(in.args.attr, row.attr, sizeof row.attr);
        if (is("embed") && in.args.in[1].height < p.vocab) refuse(at, "the embedding has fewer rows than words");
        if (is("embed_positions") && in.args.in[1].height < p.context) refuse(at, "the embedding has fewer rows than positions");
        if (is("store_attend") && !regions.own) refuse(at, "a step of many rows stores before it attends");
        // where a row sees later ones too, all that it sees is of its own step, and nothing is let go
        if ((is("attend") || is("store_attend")) &&
            (in.args.attr[4] != 0.0 ? in.args.attr[2] : 0.0) != p.groups[static_cast<size_t>(in.args.in[1].group)].window)
            refuse(at, "the window is another one than that of the pages");
        if (const char* wrong = in.kernel->check(in.args)) refuse(at, std::string(in.kernel->name) + ": " + wrong);
        linked.push_back(in);
    }
    for (const OutputView& o : p.outputs) {
        const auto gives = [&](const Instruction& in) {
            return in.rows == o.rows && in.args.out.base == regions.work + o.place && in.args.out.layout == PLAIN && in.args.out.width == o.width &&
                   in.args.out.stride == 4 * o.width;
        };
        if (std::none_of(linked.begin(), linked.end(), gives)) throw Error("native_error", "the program does not compute one of its outputs");
    }
    if (p.outputs.empty()) throw Error("native_error", "the program has no output");
    return linked;
}

}  // namespace woolly
