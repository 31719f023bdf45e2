// bind.cpp: the door between Python and C++. Arrays, bytes and names cross it, never objects. All of nanobind is here.
#include <algorithm>
#include <array>
#include <optional>

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "cpu.h"
#include "error.h"
#include "finite.h"
#include "mapped_region.h"
#include "roofline.h"
#include "packing.h"
#include "philox.h"
#include "runner.h"
#include "skip.h"
#include "spm.h"

namespace nb = nanobind;
using namespace nb::literals;
using namespace woolly;

namespace {

using Bytes = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Room = nb::ndarray<uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Ints = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Floats = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Rows = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Masks = nb::ndarray<const uint32_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Runs = nb::ndarray<const int64_t, nb::shape<-1, 4>, nb::c_contig, nb::device::cpu>;
template <class T> using View = nb::ndarray<nb::numpy, T, nb::c_contig>;

// A NumPy view of memory that `owner` keeps alive.
template <class T> View<T> view(T* data, std::initializer_list<size_t> shape, nb::handle owner) {
    return View<T>(data, shape, owner);
}

std::vector<std::string> set_names() {
    std::vector<std::string> names;
    for (const Set* set : available_sets()) names.emplace_back(set->name);
    return names;
}

std::vector<std::string> names_of_machine() {
    const auto names = sets_of_machine();
    return {names.begin(), names.end()};
}

std::vector<std::tuple<std::string, int, std::vector<std::string>>> ops_of(const std::string& isa) {
    std::vector<std::tuple<std::string, int, std::vector<std::string>>> ops;
    for (const Kernel* kernel : kernels_of(set_by_name(isa))) {
        std::vector<std::string> attrs;
        for (const char* name : kernel->attrs)
            if (name) attrs.emplace_back(name);
        ops.emplace_back(kernel->name, kernel->inputs, attrs);
    }
    return ops;
}

}  // namespace

NB_MODULE(_core, m) {
    nb::set_leak_warnings(false);  // a model that lives until the program ends is no leak worth a message

    static nb::exception<Error> core_error(m, "CoreError");
    nb::register_exception_translator([](const std::exception_ptr& p, void*) {
        try {
            std::rethrow_exception(p);
        } catch (const Error& e) {
            PyErr_SetObject(core_error.ptr(), nb::make_tuple(e.code, e.what()).ptr());
        }
    });

    m.def("sets", &set_names, "Instruction sets that work here, the best last.");
    m.def("sets_of_machine", &names_of_machine, "Instruction sets that would work here if they were compiled, the best last.");
    m.def("ops", &ops_of, "isa"_a, "The native table: (name, operands, attributes).");

    // gguf
    m.def("skip_strings", [](Bytes data, size_t offset, uint64_t count, size_t longest) {
        if (offset > data.size()) throw Error("native_error", "offset beyond the data");
        const Skipped s = skip_strings(data.data(), data.size(), offset, count, longest);
        return std::make_pair(s.end, s.whole);
    }, "data"_a.noconvert(), "offset"_a, "count"_a, "longest"_a, "Walk over strings: (where it ended, strings passed).");
    nb::class_<MappedRegion>(m, "MappedRegion", "A mapped file whose pages may vanish: they read as zeros then, and `broken_at` tells.")
        .def("__init__", [](MappedRegion* self, Bytes data) { new (self) MappedRegion(data.data(), data.size()); }, "data"_a.noconvert())
        .def("close", &MappedRegion::close, "Before the map is closed.")
        .def_prop_ro("broken_at", &MappedRegion::broken_at, "The first byte that could not be read, or -1.");
    m.def("find_not_finite", [](Bytes data, size_t block_bytes, const std::vector<int32_t>& places, int width, uint32_t exponent) {
        bool sound = (width == 1 || width == 2 || width == 4) && block_bytes > 0 && data.size() % block_bytes == 0;
        for (const int32_t place : places) sound = sound && place >= 0 && static_cast<size_t>(place) + static_cast<size_t>(width) <= block_bytes;
        if (!sound) throw Error("native_error", "the floats do not lie inside whole blocks");
        const nb::gil_scoped_release unlocked;
        return find_not_finite({data.data(), data.size()}, block_bytes, places, width, exponent);
    }, "data"_a.noconvert(), "block_bytes"_a, "places"_a, "width"_a, "exponent"_a, "Where the first float stands that is no number, or -1.");

    // text
    nb::class_<Spm>(m, "Spm", "Words with scores: encode(text) joins characters to the best of them.")
        .def("__init__", [](Spm* self, const nb::list& words, Ints ids, Floats scores, Ints bytes, int32_t unknown) {
            if (words.size() != ids.size() || words.size() != scores.size() || bytes.size() != 256)
                throw Error("native_error", "words, ids and scores differ in length, or the bytes are not 256");
            std::vector<std::string_view> texts;
            for (const nb::handle word : words) {
                const auto text = nb::cast<nb::bytes>(word);  // the list keeps it alive
                texts.emplace_back(text.c_str(), text.size());
            }
            std::array<int32_t, 256> table;
            std::copy_n(bytes.data(), 256, table.begin());
            new (self) Spm(texts, {ids.data(), ids.size()}, {scores.data(), scores.size()}, table, unknown);
        }, "words"_a, "ids"_a, "scores"_a, "bytes"_a, "unknown"_a)
        .def("encode", [](const Spm& self, const nb::bytes& text) {
            if (text.size() >= size_t{1} << 31) throw Error("invalid_request", "a text has at most 2^31 - 1 bytes");
            const std::string_view whole(text.c_str(), text.size());
            auto* ids = new std::vector<int32_t>;
            const nb::capsule owner(ids, [](void* p) noexcept { delete static_cast<std::vector<int32_t>*>(p); });
            {
                const nb::gil_scoped_release unlocked;
                *ids = self.encode(whole);
            }
            return view(ids->data(), {ids->size()}, owner);
        }, "text"_a);

    // packing
    m.def("pack", [](Room out, const std::string& layout, int64_t packed_rows, int64_t columns, int64_t row_bytes, Runs runs,
                     const std::vector<Bytes>& sources, int threads, const std::string& isa) {
        std::vector<std::span<const uint8_t>> files;
        for (const Bytes& source : sources) files.emplace_back(source.data(), source.size());
        const Set& set = set_by_name(isa);
        const nb::gil_scoped_release unlocked;
        return pack({out.data(), out.size()}, layout, packed_rows, columns, row_bytes, {reinterpret_cast<const Run*>(runs.data()), runs.shape(0)}, files, threads, set);
    }, "out"_a.noconvert(), "layout"_a, "packed_rows"_a, "columns"_a, "row_bytes"_a, "runs"_a.noconvert(), "sources"_a, "threads"_a, "isa"_a,
    "Rows of files to panels in `out`; False when a weight is not a finite number.");

    // native
    nb::class_<Runner>(m, "Runner")
        .def("__init__", [](Runner* self, const std::vector<std::tuple<std::string, int, std::vector<std::string>>>& ops,
                            const std::vector<std::string>& layouts, Bytes code, Bytes small_step, Bytes adapted, Bytes adapted_small_step,
                            int64_t weight_bytes, int64_t work_bytes, int64_t per_thread_bytes, int64_t table_bytes, int64_t slot_bytes,
                            const std::vector<std::tuple<int32_t, int64_t, int32_t>>& groups,
                            const std::vector<std::tuple<int64_t, int64_t, int64_t>>& outputs,
                            int32_t page, int32_t panel, int32_t rows, int32_t small_step_rows, int32_t wants, int32_t sequences, int32_t context,
                            int32_t vocab, int32_t slots, int32_t adapters, int threads, const std::string& isa) {
            const auto rows_of = [](const Bytes& bytes) { return std::span(reinterpret_cast<const CodeRow*>(bytes.data()), bytes.size() / sizeof(CodeRow)); };
            const auto odd = [](const Bytes& bytes) { return bytes.size() % sizeof(CodeRow) || reinterpret_cast<uintptr_t>(bytes.data()) % alignof(CodeRow); };
            if (odd(code) || odd(small_step) || odd(adapted) || odd(adapted_small_step)) throw Error("native_error", "the program's instructions have another size");
            ProgramView p{
                .layouts = layouts, .code = rows_of(code), .small_step = rows_of(small_step), .adapted = rows_of(adapted), .adapted_small_step = rows_of(adapted_small_step),
                .weight_bytes = weight_bytes, .work_bytes = work_bytes, .per_thread_bytes = per_thread_bytes, .table_bytes = table_bytes, .slot_bytes = slot_bytes,
                .groups = {}, .outputs = {}, .page = page, .panel = panel, .rows = rows, .small_step_rows = small_step_rows, .wants = wants, .sequences = sequences,
                .context = context, .vocab = vocab, .slots = slots, .adapters = adapters,
            };
            for (const auto& [name, inputs, attrs] : ops) p.ops.push_back({name, inputs, attrs});
            for (const auto& [window, page_bytes, pages] : groups) p.groups.push_back({window, page_bytes, pages});
            for (const auto& [place, count, width] : outputs) p.outputs.push_back({place, count, width});
            new (self) Runner(p, set_by_name(isa), threads);
        }, "ops"_a, "layouts"_a, "code"_a.noconvert(), "small_step"_a.noconvert(), "adapted"_a.noconvert(), "adapted_small_step"_a.noconvert(), nb::kw_only(),
           "weight_bytes"_a, "work_bytes"_a, "per_thread_bytes"_a, "table_bytes"_a, "slot_bytes"_a, "groups"_a, "outputs"_a,
           "page"_a, "panel"_a, "rows"_a, "small_step_rows"_a, "wants"_a, "sequences"_a, "context"_a, "vocab"_a, "slots"_a, "adapters"_a, "threads"_a, "isa"_a)
        .def_prop_ro("weights", [](nb::handle_t<Runner> h) {
            const std::span<uint8_t> bytes = nb::cast<Runner&>(h).weights();
            return view(bytes.data(), {bytes.size()}, h);
        }, "Where the packed weights lie; written once, before the first step.")
        .def("write_tables", [](Runner& self, int64_t place, Bytes data) { self.write_tables(place, data.data(), data.size()); },
             "place"_a, "data"_a.noconvert())
        .def("run", &Runner::run, "rows"_a, "spans"_a, "wants"_a, "copies"_a, nb::call_guard<nb::gil_scoped_release>())
        .def("times", &Runner::times, "rows"_a, "spans"_a, "wants"_a, "copies"_a, nb::call_guard<nb::gil_scoped_release>(),
             "A run by the clock: begin and end of each instruction, then the end of the step, in ns; empty when stopped.")
        .def("read_weights", &Runner::read_weights, nb::call_guard<nb::gil_scoped_release>(), "Seconds of a plain read of the weights.")
        .def("use", [](Runner& self, const std::string& isa) { self.use(set_by_name(isa)); }, "isa"_a, "The kernels of another set from now on.")
        .def("repeat", &Runner::repeat, "instruction"_a, "times"_a, nb::call_guard<nb::gil_scoped_release>(),
             "Seconds of one instruction for one row, so many times; negative when stopped.")
        .def("stop", &Runner::stop)
        .def_prop_ro("isa", [](const Runner& self) { return self.set().name; })
        .def_prop_ro("tokens", [](nb::handle_t<Runner> h) { auto& r = nb::cast<Runner&>(h); return view(r.tokens.data(), {r.tokens.size()}, h); })
        .def_prop_ro("want", [](nb::handle_t<Runner> h) { auto& r = nb::cast<Runner&>(h); return view(r.want.data(), {r.want.size()}, h); })
        .def_prop_ro("spans", [](nb::handle_t<Runner> h) {
            auto& r = nb::cast<Runner&>(h);
            return view(reinterpret_cast<int32_t*>(r.spans.data()), {r.spans.size(), sizeof(Span) / sizeof(int32_t)}, h);
        })
        .def_prop_ro("pages", [](nb::handle_t<Runner> h) {
            auto& r = nb::cast<Runner&>(h);
            return view(r.pages.data(), {r.groups(), r.spans.size(), static_cast<size_t>(r.pages_per_sequence())}, h);
        })
        .def_prop_ro("scales", [](nb::handle_t<Runner> h) {
            auto& r = nb::cast<Runner&>(h);
            return view(r.scales.data(), {r.spans.size(), static_cast<size_t>(r.adapters())}, h);
        })
        .def_prop_ro("copies", [](nb::handle_t<Runner> h) {
            auto& r = nb::cast<Runner&>(h);
            return view(reinterpret_cast<int32_t*>(r.copies.data()), {r.copies.size(), sizeof(Runner::Copy) / sizeof(int32_t)}, h);
        })
        .def("state", [](nb::handle_t<Runner> h, int32_t group, int32_t index) {
            const std::span<uint8_t> bytes = nb::cast<Runner&>(h).state(group, index);
            return view(bytes.data(), {bytes.size()}, h);
        }, "group"_a, "index"_a, "The bytes of a page of a group, or of a slot where the group is -1; not while a step runs.")
        .def("output", [](nb::handle_t<Runner> h, size_t index) {
            const Runner::Rows rows = nb::cast<Runner&>(h).output(index);
            return view(rows.data, {static_cast<size_t>(rows.rows), static_cast<size_t>(rows.width)}, h);
        }, "index"_a, "An output as floats, with room for the largest step.");

    // roofline
    nb::class_<Buffer>(m, "Buffer", "Memory to measure with.")
        .def(nb::init<size_t, bool>(), "nbytes"_a, "huge"_a)
        .def("touch", &Buffer::touch, "threads"_a, nb::call_guard<nb::gil_scoped_release>(), "Seconds of its first touch.")
        .def("read", &Buffer::read, "threads"_a, nb::call_guard<nb::gil_scoped_release>(), "Seconds to read it once.");
    m.def("barrier_seconds", &barrier_seconds, "threads"_a, "times"_a, nb::call_guard<nb::gil_scoped_release>(),
          "Seconds of so many meetings of all threads.");
    m.def("clock_hz", &clock_hz, nb::call_guard<nb::gil_scoped_release>(), "Cycles a second.");
    m.def("peaks", [](int threads) {
        std::vector<std::tuple<std::string, std::string, bool, double>> rows;
        const nb::gil_scoped_release unlocked;
        for (const Peak& peak : peaks(threads)) rows.emplace_back(peak.isa, peak.what, peak.integer, peak.rate);
        return rows;
    }, "threads"_a, "Loops of nothing but multiplications: (set, instructions, of integers, multiply-adds a second).");

    // pick
    m.def("pick", [](Rows logits, Bytes how, size_t count, const std::optional<Masks>& masks, const std::string& isa) {
        const size_t vocab = logits.shape(1), words = masks ? masks->shape(1) : 0, masked = masks ? masks->shape(0) : 0;
        if (vocab < 1 || vocab > size_t{1} << 30) throw Error("native_error", "a row of logits has 1 to 2^30 values");
        if (count > how.size() / sizeof(PickRow) || reinterpret_cast<uintptr_t>(how.data()) % alignof(PickRow))
            throw Error("native_error", "the rows to pick have another shape");
        const std::span rows(reinterpret_cast<const PickRow*>(how.data()), count);
        for (const PickRow& r : rows) {
            if (r.row < 0 || static_cast<size_t>(r.row) >= logits.shape(0)) throw Error("native_error", "there is no such row of logits");
            if (r.mask < -1 || (r.mask >= 0 && (static_cast<size_t>(r.mask) >= masked || words * 32 < vocab)))
                throw Error("native_error", "there is no such mask, or it is too short");
            if (!(r.temperature >= 0.0f && r.top_k >= 0 && r.top_p >= 0.0 && r.top_p <= 1.0 && r.min_p >= 0.0 && r.min_p <= 1.0))
                throw Error("native_error", "a sampling value is out of bounds");
        }
        const Set& set = set_by_name(isa);
        std::vector<int> tokens(rows.size());
        const nb::gil_scoped_release unlocked;
        thread_local std::vector<uint64_t> scratch;      // grows once; the engine thread is the one that picks
        const int32_t n = static_cast<int32_t>(vocab);
        if (scratch.size() * 8 < pick_scratch(n)) scratch.resize(pick_scratch(n) / 8 + 1);
        for (size_t i = 0; i < rows.size(); i++) {
            const PickRow& r = rows[i];
            const uint32_t* mask = r.mask < 0 ? nullptr : masks->data() + static_cast<size_t>(r.mask) * words;
            tokens[i] = set.pick({logits.data() + static_cast<size_t>(r.row) * vocab, mask, n, &r, uniform(r.seed, r.position),
                                  reinterpret_cast<uint8_t*>(scratch.data())});
        }
        return tokens;
    }, "logits"_a.noconvert(), "how"_a.noconvert(), "count"_a, "masks"_a.none(), "isa"_a,
    "A token for each of the first rows of `how`; -1 when its logits are not finite or its mask allows none.");
}
