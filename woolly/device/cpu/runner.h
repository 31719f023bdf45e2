// runner.h: a loaded model. Owns packed weights, work area, tables, cache pages and slots; runs one step at a time.
#pragma once
#include <algorithm>
#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include "os.h"
#include "pool.h"
#include "program.h"

namespace woolly {

class Runner {
public:
    Runner(const ProgramView& program, const Set& set, int threads);

    std::span<uint8_t> weights() const { return {weights_.data(), weights_.size()}; }      // for the packed weights, which lie where the program says
    void write_tables(int64_t place, const uint8_t* data, size_t size);

    // One step over what stands in the batch arrays. False: stopped before its end, and nothing may be used.
    // Throws Error when the batch is not sound; allocates nothing.
    bool run(int32_t rows, int32_t spans, int32_t wants, int32_t copies) { return step(rows, spans, wants, copies, false); }

    // The same, by the clock, in ns: when each instruction could begin (all had met before it, or the calling thread was
    // done with the one before) and when the calling thread had no more of it to do; at last the end of the step.
    std::vector<int64_t> times(int32_t rows, int32_t spans, int32_t wants, int32_t copies);
    double read_weights() const;           // seconds that all threads need to read the packed weights once, and no more

    // The kernels of another set from now on: packed weights and results are the same for all sets.
    void use(const Set& set);
    // Seconds of one instruction for one row, so many times, over what lies in the work area; negative when stopped.
    double repeat(int32_t instruction, int32_t times);
    void stop() noexcept { stop_.store(true, std::memory_order_relaxed); }

    // A page of a group, or a slot where the group is -1, becomes a copy of another before the first instruction.
    struct Copy { int32_t group, from, to; };
    // The bytes of a page, or of a slot where the group is -1: the state of all layers of the group. Between two steps only.
    std::span<uint8_t> state(int32_t group, int32_t index) const;
    std::vector<int32_t> tokens, want, pages;      // the caller fills these before a run; pages: [groups, spans, pages_per_sequence]
    std::vector<Span>    spans;
    std::vector<Copy>    copies;
    std::vector<float>   scales;                   // [spans, adapters], of spans whose adapter is 1
    struct Rows { float* data; int64_t rows, width; };
    Rows    output(size_t index) const;            // where an output lies, with room for the largest step
    size_t  groups() const { return groups_.size(); }
    int32_t pages_per_sequence() const { return step_.pages_per_sequence; }
    int32_t adapters() const { return step_.adapters; }
    const Set& set() const { return *set_; }

private:
    struct alignas(64) Counter { std::atomic<uint64_t> taken{0}; };     // (number of the run, tiles taken)
    struct Lists {      // the instructions of a step: for many rows, and for few as each thread walks them
        std::vector<Instruction> many;
        std::vector<std::vector<Instruction>> small_step;
        size_t longest() const { return small_step.empty() ? 0 : std::max(many.size(), small_step.front().size()); }
    };

    void check_batch(int32_t rows, int32_t spans, int32_t wants, int32_t copies);
    void copy_states(int32_t count);
    bool step(int32_t rows, int32_t spans, int32_t wants, int32_t copies, bool timed);
    int32_t counted(const Instruction& in) const { return in.rows == BY_ROW ? step_rows_ : in.rows == BY_WANT ? step_wants_ : step_spans_; }
    bool is_small_step() const { return step_rows_ <= small_step_rows_ && step_wants_ <= small_step_rows_; }
    size_t longest() const { return std::max(plain_.longest(), adapted_.longest()); }
    void walk(int thread) noexcept;
    void stamp(size_t at) noexcept;
    void work_on(const Instruction& in, Counter* counters, int thread) noexcept;
    void take_scratch();
    template <class Body> void each_instruction(const Body& body);

    const Set* set_;
    int        threads_;
    int32_t    rows_, small_step_rows_, wants_, sequences_, context_, vocab_, slot_count_;
    std::vector<OutputView> outputs_;
    Memory     weights_, work_, own_, tables_, slots_, scratch_, shared_;
    std::vector<Memory>    pools_;                   // cache pages of each group
    std::vector<PageGroup> groups_;
    size_t     scratch_bytes_ = 0;
    Lists      plain_, adapted_;                     // the second for steps in which a row has an adapter
    Lists*     walked_ = &plain_;                    // those of this step
    std::unique_ptr<Counter[]> counters_;
    std::vector<int32_t> position_, span_of_;
    Step       step_;
    uint32_t   run_ = 0;
    Barrier    barrier_;
    std::atomic<bool> stop_{false};
    std::vector<int64_t> stamps_;
    bool       timed_ = false;
    int32_t    step_rows_ = 0, step_wants_ = 0, step_spans_ = 0;
};

}  // namespace woolly
