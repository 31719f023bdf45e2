#include "pool.h"

#include <unistd.h>

#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "os.h"

namespace woolly {

namespace {

constexpr int SPINS = 1200;      // about 20 us: longer than most waits of an undisturbed step

struct Worker {
    Turnstile calls, done;
    Work  work = nullptr;
    void* context = nullptr;
    int   number = 0, processor = -1;

    void live() noexcept {
        const Pin pin(processor);
        for (uint32_t seen = 0;; seen++) {
            calls.wait_beyond(seen);
            work(context, number);
            done.next();
        }
    }
};

struct Pool {
    std::mutex machine;
    std::vector<std::unique_ptr<Worker>> workers;
    std::vector<int> processors = allowed_processors();
    pid_t owner = getpid();

    // Each thread of a team has its own; those beyond the last are left free.
    int processor_of(int number) const {
        return number < static_cast<int>(processors.size()) ? processors[static_cast<size_t>(number)] : -1;
    }

    void grow(int team) {
        while (static_cast<int>(workers.size()) + 1 < team) {
            workers.push_back(std::make_unique<Worker>());
            Worker* worker = workers.back().get();
            worker->number = static_cast<int>(workers.size());
            worker->processor = processor_of(worker->number);
            std::thread([worker] { worker->live(); }).detach();
        }
    }
};

// Never destroyed: workers may still sleep in it while the process ends. A fork has no workers: it starts anew.
Pool& pool() {
    static std::mutex lock;
    static Pool* one = nullptr;
    const std::lock_guard held(lock);
    if (!one || one->owner != getpid()) one = new Pool;
    return *one;
}

}  // namespace

// Sequentially consistent on both sides: either the waiter sees the new value, or the other sees the sleeper.
void Turnstile::next() noexcept {
    value_.fetch_add(1, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) > 0) wake_all(value_);
}

void Turnstile::wait_beyond(uint32_t old) noexcept {
    for (int i = 0; i < SPINS; i++) {
        if (now() != old) return;
        relax();
    }
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    while (value_.load(std::memory_order_seq_cst) == old) sleep_while(value_, old);
    sleepers_.fetch_sub(1, std::memory_order_relaxed);
}

void run_together(int team, Work work, void* context) {
    Pool& p = pool();
    const std::lock_guard turn(p.machine);
    p.grow(team);
    const Pin pin(team > 1 && team <= static_cast<int>(p.processors.size()) ? p.processor_of(0) : -1);
    const auto worker = [&](int t) -> Worker& { return *p.workers[static_cast<size_t>(t) - 1]; };
    for (int t = 1; t < team; t++) {
        worker(t).work = work;
        worker(t).context = context;
        worker(t).calls.next();
    }
    work(context, 0);
    for (int t = 1; t < team; t++) worker(t).done.wait_beyond(worker(t).calls.now() - 1);
}

}  // namespace woolly
