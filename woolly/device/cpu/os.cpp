#include "os.h"

#include <sys/mman.h>

#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <climits>
#include <utility>

#include "error.h"

namespace woolly {

namespace {
constexpr size_t HUGE_PAGE = size_t{2} << 20;
}

Memory::Memory(size_t nbytes, bool huge) : size_(nbytes) {
    if (nbytes == 0) return;
    huge = huge && nbytes >= HUGE_PAGE;
    whole_size_ = nbytes + (huge ? HUGE_PAGE : 0);
    whole_ = mmap(nullptr, whole_size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (whole_ == MAP_FAILED) {
        whole_ = nullptr;
        throw Error("not_enough_memory", "the system has no " + std::to_string(nbytes) + " bytes of memory to give");
    }
    auto at = reinterpret_cast<uintptr_t>(whole_);
    if (huge) at = (at + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    data_ = reinterpret_cast<uint8_t*>(at);
#if defined(MADV_HUGEPAGE)
    if (huge) madvise(data_, size_, MADV_HUGEPAGE);
#endif
}

Memory::~Memory() {
    if (whole_) munmap(whole_, whole_size_);
}

Memory::Memory(Memory&& other) noexcept { *this = std::move(other); }

Memory& Memory::operator=(Memory&& other) noexcept {
    std::swap(whole_, other.whole_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(whole_size_, other.whole_size_);
    return *this;
}

void relax() noexcept {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("isb");      // most of these processors take `yield` for nothing, and a spin would be over at once
#endif
}

#if defined(__linux__)
std::vector<int> allowed_processors() {
    std::vector<int> out;
    cpu_set_t mask;
    if (sched_getaffinity(0, sizeof mask, &mask) == 0)
        for (int i = 0; i < CPU_SETSIZE; i++)
            if (CPU_ISSET(i, &mask)) out.push_back(i);
    return out;
}
Pin::Pin(int processor) noexcept {
    if (processor < 0 || sched_getaffinity(0, sizeof before_, &before_) != 0) return;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(processor, &one);
    pinned_ = sched_setaffinity(0, sizeof one, &one) == 0;
}
Pin::~Pin() {
    if (pinned_) sched_setaffinity(0, sizeof before_, &before_);
}

// Not std::atomic::wait: it yields before it sleeps, and who yields to a busy neighbour waits a whole slice of it.
void sleep_while(const std::atomic<uint32_t>& value, uint32_t old) noexcept {
    syscall(SYS_futex, &value, FUTEX_WAIT_PRIVATE, old, nullptr, nullptr, 0);
}
void wake_all(const std::atomic<uint32_t>& value) noexcept {
    syscall(SYS_futex, &value, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}
#else
std::vector<int> allowed_processors() { return {}; }
Pin::Pin(int) noexcept {}
Pin::~Pin() = default;

void sleep_while(const std::atomic<uint32_t>& value, uint32_t old) noexcept { value.wait(old); }
void wake_all(const std::atomic<uint32_t>& value) noexcept { const_cast<std::atomic<uint32_t>&>(value).notify_all(); }
#endif

}  // namespace woolly
