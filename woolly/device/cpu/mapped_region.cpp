#include "mapped_region.h"

#include <atomic>
#include <mutex>

#include "error.h"

#if defined(__unix__) || defined(__APPLE__)
#include <csignal>
#include <sys/mman.h>
#include <unistd.h>
#endif

namespace woolly {

namespace {

constexpr int SLOTS = 4096;

// A slot is written under the lock and read by the handler, which may run at any moment on any thread: so `begin` is
// written last and taken away first, and a slot whose `begin` is 0 holds nothing.
struct Slot {
    std::atomic<uintptr_t> begin{0};
    std::atomic<size_t>    size{0};
    std::atomic<int64_t>   broken{-1};
};
Slot slots[SLOTS];
std::mutex lock;

#if defined(__unix__) || defined(__APPLE__)

struct sigaction before;      // what the signal did before us
uintptr_t page;

bool put_zeros(uintptr_t at) noexcept {
    for (Slot& slot : slots) {
        const uintptr_t begin = slot.begin.load(std::memory_order_acquire);
        const size_t size = slot.size.load(std::memory_order_relaxed);
        if (!begin || at < begin || at - begin >= size) continue;
        const uintptr_t first = at / page * page;
        void* const zeros = mmap(reinterpret_cast<void*>(first), begin + size - first, PROT_READ,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        if (zeros == MAP_FAILED) return false;
        const int64_t offset = static_cast<int64_t>(first - begin);
        int64_t known = slot.broken.load(std::memory_order_relaxed);
        while ((known < 0 || offset < known) && !slot.broken.compare_exchange_weak(known, offset)) {}
        return true;
    }
    return false;
}

void on_bus_error(int number, siginfo_t* info, void* context) {
    if (put_zeros(reinterpret_cast<uintptr_t>(info->si_addr))) return;
    if (before.sa_flags & SA_SIGINFO) return before.sa_sigaction(number, info, context);
    if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) return before.sa_handler(number);
    sigaction(number, &before, nullptr);      // the read happens again and ends the process, as it would have without us
}

void install() {
    page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    struct sigaction ours {};
    ours.sa_sigaction = on_bus_error;
    ours.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigemptyset(&ours.sa_mask);
    sigaction(SIGBUS, &ours, &before);
}

#else
void install() {}
#endif

}  // namespace

MappedRegion::MappedRegion(const uint8_t* data, size_t size) : slot_(-1) {
    const std::lock_guard<std::mutex> held(lock);
    static const bool installed = (install(), true);
    static_cast<void>(installed);
    for (int i = 0; i < SLOTS && slot_ < 0; i++)
        if (!slots[i].begin.load(std::memory_order_relaxed)) slot_ = i;
    if (slot_ < 0) throw Error("native_error", "too many files are open");
    slots[slot_].broken.store(-1);
    slots[slot_].size.store(size);
    slots[slot_].begin.store(reinterpret_cast<uintptr_t>(data), std::memory_order_release);
}

void MappedRegion::close() noexcept {
    const std::lock_guard<std::mutex> held(lock);
    if (slot_ < 0) return;
    found_ = slots[slot_].broken.load();
    slots[slot_].begin.store(0, std::memory_order_release);
    slot_ = -1;
}

int64_t MappedRegion::broken_at() const noexcept { return slot_ < 0 ? found_ : slots[slot_].broken.load(); }

}  // namespace woolly
