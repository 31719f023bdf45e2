#include "packing.h"

#include <atomic>

#include "error.h"
#include "pool.h"
#include "program.h"

namespace woolly {

namespace {

struct Packing {
    PackPanel       pack;
    const uint8_t** rows;          // [panels * PANEL]
    int64_t         panels, columns, panel_bytes;
    uint8_t*        out;
    std::atomic<int64_t> next{0};
    std::atomic<bool>    good{true};

    static void work(void* context, int) noexcept {
        auto& p = *static_cast<Packing*>(context);
        for (int64_t i; (i = p.next.fetch_add(1, std::memory_order_relaxed)) < p.panels;)
            if (!p.pack(p.rows + i * PANEL, p.columns, p.out + i * p.panel_bytes)) p.good.store(false, std::memory_order_relaxed);
    }
};

}  // namespace

bool pack(std::span<uint8_t> out, const std::string& layout, int64_t packed_rows, int64_t columns, int64_t row_bytes,
          std::span<const Run> runs, const std::vector<std::span<const uint8_t>>& files, int threads, const Set& set) {
    if (threads < 1 || threads > 1024) throw Error("native_error", "threads must be 1 to 1024");
    const int32_t number = find_layout(layout);
    const PackPanel pack_panel = set.pack(number);
    if (!pack_panel) throw Error("native_error", "layout '" + layout + "' cannot be packed");
    if (packed_rows < 1 || packed_rows > INT32_MAX || columns < 1 || columns > INT32_MAX || columns % LAYOUT[number].block || packed_rows % PANEL)
        throw Error("native_error", "a weight's shape does not fit its layout");
    const int64_t panel = panel_bytes(number, columns), panels = packed_rows / PANEL;
    if (row_bytes * PANEL != panel) throw Error("native_error", "a weight's rows have another size than its layout says");
    if (panels * panel > static_cast<int64_t>(out.size())) throw Error("native_error", "a weight lies outside its region");
    std::vector<const uint8_t*> rows(static_cast<size_t>(packed_rows), nullptr);
    for (const Run& run : runs) {
        if (run.first < 0 || run.count < 1 || run.first > packed_rows - run.count) throw Error("native_error", "a run of rows lies outside its weight");
        if (run.file < 0 || run.file >= static_cast<int64_t>(files.size())) throw Error("native_error", "a run of rows names no file");
        const std::span<const uint8_t> file = files[static_cast<size_t>(run.file)];
        if (run.offset < 0 || run.count * row_bytes > static_cast<int64_t>(file.size()) - run.offset)
            throw Error("native_error", "a run of rows lies outside the file");
        for (int64_t r = 0; r < run.count; r++) rows[static_cast<size_t>(run.first + r)] = file.data() + run.offset + r * row_bytes;
    }
    Packing work{pack_panel, rows.data(), panels, columns, panel, out.data()};
    run_together(threads, Packing::work, &work);
    return work.good.load();
}

}  // namespace woolly
