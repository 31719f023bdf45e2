#include "runner.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "cpu.h"
#include "error.h"
#include "roofline.h"

namespace woolly {

namespace {

[[noreturn]] void unsound(const std::string& what) { throw Error("native_error", "the batch is not sound: " + what); }

size_t checked(int64_t n) {
    if (n < 0 || n > (int64_t{1} << 46)) throw Error("native_error", "a size of the program is out of bounds");
    return static_cast<size_t>(n);
}

size_t checked(int64_t each, int64_t count) {
    if (count > 0 && each > (int64_t{1} << 46) / count) throw Error("native_error", "a size of the program is out of bounds");
    return checked(each) * checked(count);
}

}  // namespace

Runner::Runner(const ProgramView& p, const Set& set, int threads)
    : set_(&set), threads_(threads), rows_(p.rows), small_step_rows_(p.small_step_rows), wants_(p.wants), sequences_(p.sequences), context_(p.context),
      vocab_(p.vocab), slot_count_(p.slots), outputs_(p.outputs),
      weights_(checked(p.weight_bytes), true), work_(checked(p.work_bytes), true), tables_(checked(p.table_bytes), false),
      slots_(checked(p.slot_bytes, p.slots), true) {
    if (threads < 1 || threads > 1024) throw Error("native_error", "threads must be 1 to 1024");
    step_.pages_per_sequence = (context_ + PAGE - 1) / PAGE;
    pages.resize(std::max<size_t>(1, checked(step_.pages_per_sequence, static_cast<int64_t>(p.groups.size()) * sequences_)));      // never none: a view of it has an address
    for (size_t g = 0; g < p.groups.size(); g++) {
        const GroupView& group = p.groups[g];
        if (group.window < 0 || group.pages < 1) throw Error("native_error", "a group of pages has a window and at least one page");
        pools_.emplace_back(checked(group.page_bytes, group.pages), true);
        const int32_t* table = pages.data() + g * static_cast<size_t>(sequences_) * static_cast<size_t>(step_.pages_per_sequence);
        groups_.push_back({group.window, group.pages, group.page_bytes, pools_.back().data(), table});
    }
    const auto regions = [&](uint8_t* own) { return Regions{weights_.data(), work_.data(), tables_.data(), slots_.data(), groups_.data(), own}; };
    const size_t own = checked(p.per_thread_bytes) / 4096 * 4096 + 4096;      // never none: it is how a list of few rows is known
    own_ = Memory(own * static_cast<size_t>(threads), false);
    const auto linked = [&](std::span<const CodeRow> code, std::span<const CodeRow> small_step) {
        Lists lists{link(p, code, set, regions(nullptr)), {}};
        for (int t = 0; t < threads; t++) lists.small_step.push_back(link(p, small_step, set, regions(own_.data() + own * static_cast<size_t>(t))));
        return lists;
    };
    plain_ = linked(p.code, p.small_step);
    if (p.adapters) adapted_ = linked(p.adapted, p.adapted_small_step);
    take_scratch();
    counters_ = std::make_unique<Counter[]>(longest() * static_cast<size_t>(threads));

    const auto sized = [](int64_t n) { return std::vector<int32_t>(checked(n)); };
    tokens = sized(rows_);
    want = sized(wants_);
    spans.resize(checked(sequences_));
    copies.resize(checked(2 * int64_t{sequences_}));
    scales.resize(std::max<size_t>(1, checked(int64_t{sequences_} * p.adapters)));      // never none, as pages
    position_ = sized(rows_);
    span_of_ = sized(rows_);
    step_.tokens = tokens.data();
    step_.want = want.data();
    step_.position = position_.data();
    step_.span_of = span_of_.data();
    step_.spans = spans.data();
    step_.groups = groups_.data();
    step_.slots = slots_.data();
    step_.slot_bytes = p.slot_bytes;
    step_.scales = scales.data();
    step_.adapters = p.adapters;
    each_instruction([&](Instruction& in) { in.args.step = &step_; });
}

Runner::Rows Runner::output(size_t index) const {
    const OutputView& o = outputs_.at(index);
    return {reinterpret_cast<float*>(work_.data() + o.place), o.rows == BY_WANT ? wants_ : sequences_, o.width};
}

template <class Body> void Runner::each_instruction(const Body& body) {
    for (Lists* lists : {&plain_, &adapted_}) {
        for (Instruction& in : lists->many) body(in);
        for (std::vector<Instruction>& list : lists->small_step)
            for (Instruction& in : list) body(in);
    }
}

void Runner::take_scratch() {
    size_t most = 0, shared = 0;
    each_instruction([&](const Instruction& in) {
        most = std::max(most, in.kernel->scratch(in.args));
        shared = std::max(shared, in.kernel->shared(in.args));
    });
    most = (most + 4095) / 4096 * 4096;
    if (most > scratch_bytes_) {
        scratch_ = Memory(most * static_cast<size_t>(threads_), false);
        scratch_bytes_ = most;
    }
    if (shared > shared_.size()) shared_ = Memory(shared, false);
    each_instruction([&](Instruction& in) { in.args.shared = shared_.data(); });
}

void Runner::use(const Set& set) {
    each_instruction([&](Instruction& in) { in.kernel = kernel_of(set, in.kernel->name); });      // all sets have the same names
    set_ = &set;
    take_scratch();
}

void Runner::write_tables(int64_t place, const uint8_t* data, size_t size) {
    if (place < 0 || size > tables_.size() || static_cast<size_t>(place) > tables_.size() - size) throw Error("native_error", "a write lies outside its region");
    std::memcpy(tables_.data() + place, data, size);
}

// ------------------------------------------------------------------------------------------------ one step

void Runner::check_batch(int32_t rows, int32_t count, int32_t wants, int32_t copy_count) {
    if (rows < 1 || rows > rows_ || count < 1 || count > sequences_ || wants < 0 || wants > wants_) unsound("too many rows, sequences or wanted rows");
    if (copy_count < 0 || copy_count > static_cast<int32_t>(copies.size())) unsound("too many copies");
    for (int32_t i = 0; i < copy_count; i++) {
        const Copy& copy = copies[static_cast<size_t>(i)];
        state(copy.group, copy.from), state(copy.group, copy.to);
    }
    int32_t next = 0;
    walked_ = &plain_;
    for (int32_t s = 0; s < count; s++) {
        const Span& span = spans[static_cast<size_t>(s)];
        if (span.first != next || span.count < 1 || span.count > rows - next) unsound("spans do not follow each other");
        if (span.position < 0 || span.position > context_ - span.count) unsound("a position lies beyond the context");
        if (slot_count_ ? span.slot < 0 || span.slot >= slot_count_ : span.slot != -1) unsound("a slot does not exist");
        if (span.adapter != 0) {
            if (span.adapter != 1 || !step_.adapters) unsound("an adapter does not exist");
            walked_ = &adapted_;
        }
        for (const PageGroup& group : groups_) {
            const int32_t* table = group.pages + int64_t{s} * step_.pages_per_sequence;
            const int32_t seen = group.window && span.position >= group.window ? span.position - group.window + 1 : 0;
            for (int32_t p = seen / PAGE; p <= (span.position + span.count - 1) / PAGE; p++)
                if (table[p] < 0 || table[p] >= group.page_count) unsound("a page does not exist");
        }
        for (int32_t i = 0; i < span.count; i++) {
            position_[static_cast<size_t>(next + i)] = span.position + i;
            span_of_[static_cast<size_t>(next + i)] = s;
        }
        next += span.count;
    }
    if (next != rows) unsound("rows without a span");
    for (int32_t r = 0; r < rows; r++)
        if (tokens[static_cast<size_t>(r)] < 0 || tokens[static_cast<size_t>(r)] >= vocab_) unsound("a token is not in the vocabulary");
    for (int32_t w = 0; w < wants; w++)
        if (want[static_cast<size_t>(w)] < 0 || want[static_cast<size_t>(w)] >= rows) unsound("a wanted row does not exist");
}

std::span<uint8_t> Runner::state(int32_t group, int32_t index) const {
    if (group < -1 || group >= static_cast<int32_t>(groups_.size())) unsound("a state is of no group");
    const bool slot = group < 0;
    const PageGroup* pages = slot ? nullptr : &groups_[static_cast<size_t>(group)];
    if (index < 0 || index >= (slot ? slot_count_ : pages->page_count)) unsound("a page or slot does not exist");
    const size_t nbytes = static_cast<size_t>(slot ? step_.slot_bytes : pages->page_bytes);
    return {(slot ? slots_.data() : pages->pool) + static_cast<size_t>(index) * nbytes, nbytes};
}

void Runner::copy_states(int32_t count) {
    for (int32_t i = 0; i < count; i++) {
        const Copy& copy = copies[static_cast<size_t>(i)];
        const std::span<uint8_t> from = state(copy.group, copy.from);
        std::memmove(state(copy.group, copy.to).data(), from.data(), from.size());
    }
}

bool Runner::step(int32_t rows, int32_t count, int32_t wants, int32_t copy_count, bool timed) {
    check_batch(rows, count, wants, copy_count);
    copy_states(copy_count);
    timed_ = timed;
    step_rows_ = rows;
    step_wants_ = wants;
    step_spans_ = count;
    for (Instruction& in : walked_->many) in.args.rows = counted(in);
    run_++;
    run_together(threads_, [](void* self, int thread) noexcept { static_cast<Runner*>(self)->walk(thread); }, this);
    return !stop_.exchange(false, std::memory_order_relaxed);
}

std::vector<int64_t> Runner::times(int32_t rows, int32_t count, int32_t wants, int32_t copy_count) {
    stamps_.resize(2 * longest() + 1);
    if (!step(rows, count, wants, copy_count, true)) return {};
    const size_t walked = is_small_step() ? walked_->small_step.front().size() : walked_->many.size();
    stamp(2 * walked);
    stamps_.resize(2 * walked + 1);
    return stamps_;
}

void Runner::stamp(size_t at) noexcept {
    using namespace std::chrono;
    stamps_[at] = duration_cast<nanoseconds>(steady_clock::now().time_since_epoch()).count();
}

double Runner::repeat(int32_t instruction, int32_t times) {
    if (instruction < 0 || static_cast<size_t>(instruction) >= plain_.many.size() || times < 1)
        throw Error("native_error", "there is no such instruction");
    const size_t at = static_cast<size_t>(instruction);
    plain_.many[at].args.rows = 1;
    struct Alone { Runner* runner; size_t at; } alone{this, at};
    const auto begin = std::chrono::steady_clock::now();
    for (int32_t i = 0; i < times; i++) {
        run_++;
        run_together(threads_, [](void* context, int thread) noexcept {
            auto& [runner, index] = *static_cast<Alone*>(context);
            runner->work_on(runner->plain_.many[index], runner->counters_.get() + index * static_cast<size_t>(runner->threads_), thread);
        }, &alone);
        if (stop_.exchange(false, std::memory_order_relaxed)) return -1.0;
    }
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double Runner::read_weights() const { return read_seconds(weights_.data(), weights_.size(), threads_); }

void Runner::walk(int thread) noexcept {
    const bool timed = timed_ && thread == 0, small = is_small_step();
    std::vector<Instruction>& list = small ? walked_->small_step[static_cast<size_t>(thread)] : walked_->many;
    for (size_t i = 0; i < list.size(); i++) {
        Instruction& in = list[i];
        if (small) in.args.rows = counted(in);
        const auto go_on = [&] {
            if (timed_) stamp(2 * i);      // by whoever came last: a thread that is put aside here must not hide the work of others
            return !stop_.load(std::memory_order_relaxed);
        };
        if (in.barrier && !barrier_.meet(threads_, go_on)) return;
        if (timed && !in.barrier) stamp(2 * i);
        if (in.args.rows > 0) work_on(in, counters_.get() + i * static_cast<size_t>(threads_), thread);
        if (timed) stamp(2 * i + 1);
    }
}

// Own range first, one contiguous stream; then the others' are helped.
void Runner::work_on(const Instruction& in, Counter* counters, int thread) noexcept {
    const Tiles tiles = in.kernel->tiles(in.args);
    uint8_t* scratch = scratch_.data() + scratch_bytes_ * static_cast<size_t>(thread);
    if (in.own) return in.kernel->run(in.args, 0, tiles.count, scratch);
    for (int k = 0; k < threads_; k++) {
        const int owner = (thread + k) % threads_;
        const int64_t low = tiles.count * owner / threads_, high = tiles.count * (owner + 1) / threads_;
        std::atomic<uint64_t>& taken = counters[owner].taken;
        uint64_t seen = taken.load(std::memory_order_relaxed);
        for (;;) {
            // a counter of an earlier run counts as 0: nobody has to reset it
            const int64_t next = low + (seen >> 32 == run_ ? static_cast<int64_t>(seen & 0xffffffffu) : 0);
            if (next >= high) break;
            const int64_t end = next + tiles.chunk < high ? next + tiles.chunk : high;
            if (!taken.compare_exchange_weak(seen, uint64_t{run_} << 32 | static_cast<uint64_t>(end - low), std::memory_order_relaxed)) continue;
            in.kernel->run(in.args, next, end, scratch);
            seen = taken.load(std::memory_order_relaxed);
        }
    }
}

}  // namespace woolly
