// pool.h: the workers of this process. They enter once per step, all together, and leave together.
//
// Whoever calls `run_together` is the first of the team. Between steps workers spin for a moment and then sleep. One
// caller at a time: two models take turns step by step instead of halving each other's caches.
#pragma once
#include <atomic>
#include <cstdint>

namespace woolly {

// A number that some wait for while others move it on. Waiting is spinning for a moment, then sleeping; waking costs
// nothing while nobody sleeps.
class Turnstile {
public:
    uint32_t now() const noexcept { return value_.load(std::memory_order_acquire); }
    void next() noexcept;                        // one further, and wakes those who sleep
    void wait_beyond(uint32_t old) noexcept;     // until it is no longer `old`

private:
    alignas(64) std::atomic<uint32_t> value_{0};
    std::atomic<int> sleepers_{0};
};

// A meeting point of `team` threads.
class Barrier {
public:
    // The last to arrive calls `decide` once; everybody returns its answer.
    template <class Decide> bool meet(int team, const Decide& decide) noexcept {
        const uint32_t phase = phase_.now();
        if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == team) {
            answer_ = decide();
            arrived_.store(0, std::memory_order_relaxed);
            phase_.next();
        } else {
            phase_.wait_beyond(phase);
        }
        return answer_;
    }

private:
    alignas(64) std::atomic<int> arrived_{0};
    Turnstile phase_;
    bool answer_ = true;
};

using Work = void (*)(void* context, int thread) noexcept;

// Runs work(context, t) for t = 0 .. team - 1 at the same time, t = 0 in the calling thread. Not from inside `work`.
void run_together(int team, Work work, void* context);

}  // namespace woolly
