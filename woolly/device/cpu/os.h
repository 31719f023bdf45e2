// os.h: what differs between operating systems, each with a plain fallback.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#if defined(__linux__)
#include <sched.h>
#endif

namespace woolly {

// Zeroed memory that is given by the system page by page when first touched. Huge pages are asked for where that
// helps: a stream of weights over 4 KiB pages is up to a tenth slower.
class Memory {
public:
    Memory() = default;
    Memory(size_t nbytes, bool huge);      // throws Error when there is none
    ~Memory();
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;
    Memory(Memory&& other) noexcept;
    Memory& operator=(Memory&& other) noexcept;

    uint8_t* data() const { return data_; }
    size_t   size() const { return size_; }

private:
    void*    whole_ = nullptr;
    uint8_t* data_ = nullptr;
    size_t   size_ = 0, whole_size_ = 0;
};

void relax() noexcept;         // inside a spinning loop: lets the other hyper-thread work

// The processors this thread may run on, in order; empty where the system does not tell.
std::vector<int> allowed_processors();

// Keeps this thread on one processor as long as the object lives; a negative number leaves it free.
// Without it a scheduler that has a busy neighbour to place may put a whole team on one processor and leave it there.
class Pin {
public:
    explicit Pin(int processor) noexcept;
    ~Pin();
    Pin(const Pin&) = delete;
    Pin& operator=(const Pin&) = delete;

private:
#if defined(__linux__)
    cpu_set_t before_;
    bool pinned_ = false;
#endif
};

// Sleeps until somebody calls wake_all, if `value` is still `old`; may also return for no reason.
void sleep_while(const std::atomic<uint32_t>& value, uint32_t old) noexcept;
void wake_all(const std::atomic<uint32_t>& value) noexcept;

}  // namespace woolly
