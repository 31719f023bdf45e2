// roofline.cpp: the loops are assembly: a compiler could merge equal accumulators, keep them in memory or drop the loop,
// and the limit would be another. tests/native/test_roofline.py counts their instructions in the object file.
#include "roofline.h"

#include <sys/mman.h>

#include <atomic>
#include <chrono>

#include "cpu.h"
#include "error.h"
#include "pool.h"

namespace woolly {

namespace {

double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Seconds of work(thread) on all threads at once.
template <class F> double together(int threads, const F& work) {
    if (threads < 1 || threads > 1024) throw Error("native_error", "threads must be 1 to 1024");
    const double begin = now();
    run_together(threads, [](void* f, int thread) noexcept { (*static_cast<const F*>(f))(thread); }, const_cast<F*>(&work));
    return now() - begin;
}

constexpr size_t PAGE_BYTES = 4096;

// What was read goes here: a read whose value nobody uses could be left out.
std::atomic<uint64_t> seen{0};

void read_plain(const uint8_t* p, const uint8_t* end) noexcept {
    uint64_t sum[8] = {};
    for (; p < end; p += 64)
        for (int i = 0; i < 8; i++) sum[i] ^= reinterpret_cast<const uint64_t*>(p)[i];
    for (const uint64_t s : sum) seen.fetch_xor(s, std::memory_order_relaxed);
}

#if defined(__x86_64__)
// Four independent sums, so that no addition waits for the one before.
void read_avx2(const uint8_t* p, const uint8_t* end) noexcept {
    asm volatile(
        "1:\n\t"
        "vpxor   (%0), %%ymm0, %%ymm0\n\t"
        "vpxor 32(%0), %%ymm1, %%ymm1\n\t"
        "vpxor 64(%0), %%ymm2, %%ymm2\n\t"
        "vpxor 96(%0), %%ymm3, %%ymm3\n\t"
        "add $128, %0\n\t"
        "cmp %1, %0\n\t"
        "jb 1b\n\t"
        "vzeroupper"
        : "+r"(p) : "r"(end) : "xmm0", "xmm1", "xmm2", "xmm3", "cc", "memory");
}
void read_avx512(const uint8_t* p, const uint8_t* end) noexcept {
    asm volatile(
        "1:\n\t"
        "vpxorq    (%0), %%zmm0, %%zmm0\n\t"
        "vpxorq  64(%0), %%zmm1, %%zmm1\n\t"
        "vpxorq 128(%0), %%zmm2, %%zmm2\n\t"
        "vpxorq 192(%0), %%zmm3, %%zmm3\n\t"
        "add $256, %0\n\t"
        "cmp %1, %0\n\t"
        "jb 1b\n\t"
        "vzeroupper"
        : "+r"(p) : "r"(end) : "xmm0", "xmm1", "xmm2", "xmm3", "cc", "memory");
}
#elif defined(__aarch64__)
void read_neon(const uint8_t* p, const uint8_t* end) noexcept {
    asm volatile(
        "1:\n\t"
        "ldp q4, q5, [%0]\n\t"
        "ldp q6, q7, [%0, #32]\n\t"
        "eor v0.16b, v0.16b, v4.16b\n\t"
        "eor v1.16b, v1.16b, v5.16b\n\t"
        "eor v2.16b, v2.16b, v6.16b\n\t"
        "eor v3.16b, v3.16b, v7.16b\n\t"
        "add %0, %0, #64\n\t"
        "cmp %0, %1\n\t"
        "b.lo 1b"
        : "+r"(p) : "r"(end) : "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "cc", "memory");
}
#endif

using Read = void (*)(const uint8_t*, const uint8_t*) noexcept;

Read widest() {
#if defined(__x86_64__)
    const auto sets = available_sets();
    if (sets.back()->name == std::string_view("avx512")) return read_avx512;
    if (sets.size() > 1) return read_avx2;      // what is not plain has AVX2 at least
#elif defined(__aarch64__)
    return read_neon;      // every processor of this architecture has its registers
#endif
    return read_plain;
}

#if defined(__x86_64__)
// Twelve accumulators are more than the latency of any of these needs, and nothing touches memory.
// Registers 14 and 15 are the factors.
#define TWELVE(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
#define CLEAR(i) "vpxor %%xmm" #i ", %%xmm" #i ", %%xmm" #i "\n\t"
#define DOT512(i) "vpdpbusd %%zmm14, %%zmm15, %%zmm" #i "\n\t"
#define DOT256(i) "%{vex%} vpdpbusd %%ymm14, %%ymm15, %%ymm" #i "\n\t"
#define FMA512(i) "vfmadd231ps %%zmm14, %%zmm15, %%zmm" #i "\n\t"
#define FMA256(i) "vfmadd231ps %%ymm14, %%ymm15, %%ymm" #i "\n\t"
// sums of 16 bits in ymm0..3, products in ymm10..13
#define PAIR256(i) "vpmaddubsw %%ymm14, %%ymm15, %%ymm1" #i "\n\tvpaddw %%ymm1" #i ", %%ymm" #i ", %%ymm" #i "\n\t"
#define PAIRS256 PAIR256(0) PAIR256(1) PAIR256(2) PAIR256(3)

#define LOOP(NAME, BODY)                                                                                              \
    [[gnu::noinline]] void NAME(int64_t times) noexcept {                                                             \
        asm volatile(TWELVE(CLEAR) CLEAR(12) CLEAR(13) CLEAR(14) CLEAR(15)                                            \
                     ".p2align 6\n\t1:\n\t" BODY "dec %0\n\tjnz 1b\n\tvzeroupper"                                     \
                     : "+r"(times) : : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8",        \
                       "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15", "cc");                           \
    }
LOOP(peak_dot_avx512, TWELVE(DOT512))
LOOP(peak_fma_avx512, TWELVE(FMA512))
#if defined(WOOLLY_AVXVNNI)
LOOP(peak_dot_avxvnni, TWELVE(DOT256))
#endif
LOOP(peak_dot_avx2, PAIRS256)
LOOP(peak_fma_avx2, TWELVE(FMA256))
#elif defined(__aarch64__)
// Twenty-four accumulators: the widest of these processors begin four such instructions a cycle, and more.
// Registers 30 and 31 are the factors. `sdot` is written as a number, because assemblers disagree on how to allow it.
#define TWENTY_FOUR(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15) X(16) X(17) X(18) X(19) X(20) X(21) X(22) X(23)
#define CLEAR(i) "movi v" #i ".4s, #0\n\t"
#define DOT128(i) ".inst 0x4e9f97c0 + " #i "\n\t" /* sdot vi.4s, v30.16b, v31.16b */
#define FMA128(i) "fmla v" #i ".4s, v30.4s, v31.4s\n\t"

#define LOOP(NAME, BODY)                                                                                              \
    [[gnu::noinline]] void NAME(int64_t times) noexcept {                                                             \
        asm volatile(TWENTY_FOUR(CLEAR) CLEAR(30) CLEAR(31)                                                           \
                     ".p2align 6\n\t1:\n\t" BODY "subs %0, %0, #1\n\tb.ne 1b"                                       \
                     : "+r"(times) : : "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11",      \
                       "v12", "v13", "v14", "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v30",     \
                       "v31", "cc");                                                                                  \
    }
LOOP(peak_dot_neon, TWENTY_FOUR(DOT128))
LOOP(peak_fma_neon, TWENTY_FOUR(FMA128))
#endif

struct Loop {
    std::string_view set;
    const char* what;
    bool        integer;
    void (*run)(int64_t) noexcept;
    int         macs;                 // of one pass
};
const std::vector<Loop> LOOPS = {
#if defined(__x86_64__)
    {"avx2", "vpmaddubsw + vpaddw ymm", true, peak_dot_avx2, 4 * 32},
    {"avx2", "vfmadd231ps ymm", false, peak_fma_avx2, 12 * 8},
#if defined(WOOLLY_AVXVNNI)
    {"avxvnni", "vpdpbusd ymm", true, peak_dot_avxvnni, 12 * 32},
    {"avxvnni", "vfmadd231ps ymm", false, peak_fma_avx2, 12 * 8},
#endif
    {"avx512", "vpdpbusd zmm", true, peak_dot_avx512, 12 * 64},
    {"avx512", "vfmadd231ps zmm", false, peak_fma_avx512, 12 * 16},
#elif defined(__aarch64__)
    {"neon", "sdot 4s", true, peak_dot_neon, 24 * 16},
    {"neon", "fmla 4s", false, peak_fma_neon, 24 * 4},
#endif
};

}  // namespace

Buffer::Buffer(size_t nbytes, bool huge) : memory_(nbytes, huge) {
#if defined(MADV_NOHUGEPAGE)
    if (!huge && nbytes > 0) madvise(memory_.data(), nbytes, MADV_NOHUGEPAGE);
#endif
}

double Buffer::touch(int threads) {
    return together(threads, [&](int t) {
        const size_t count = memory_.size() / PAGE_BYTES, team = static_cast<size_t>(threads), at = static_cast<size_t>(t);
        for (size_t i = count * at / team; i < count * (at + 1) / team; i++) memory_.data()[i * PAGE_BYTES] = 1;
    });
}

double Buffer::read(int threads) const { return read_seconds(memory_.data(), memory_.size(), threads); }

double read_seconds(const uint8_t* data, size_t size, int threads) {
    const Read read = widest();
    const size_t lines = size / 256, team = static_cast<size_t>(threads);
    return together(threads, [&](int t) {
        const size_t first = lines * static_cast<size_t>(t) / team, last = lines * (static_cast<size_t>(t) + 1) / team;
        if (first < last) read(data + first * 256, data + last * 256);
    });
}

double barrier_seconds(int threads, int64_t times) {
    Barrier barrier;
    return together(threads, [&](int) {
        for (int64_t i = 0; i < times; i++) barrier.meet(threads, [] { return true; });
    });
}

double clock_hz() {
    constexpr int64_t TIMES = 50'000;      // short: whoever was put aside in between counts for nothing
    double best = 0;
    for (int repetition = 0; repetition < 50; repetition++) {
        uint64_t x = 0, step = 1;
        const double begin = now();
        for (int64_t i = 0; i < TIMES; i++) {
            // the barrier for the compiler makes a chain of them; a register, because some processors add constants for nothing
            for (int k = 0; k < 16; k++) {
                x += step;
                asm volatile("" : "+r"(x), "+r"(step));
            }
        }
        const double rate = 16 * TIMES / (now() - begin);
        best = rate > best ? rate : best;
    }
    return best;
}

std::vector<Peak> peaks(int threads) {
    std::vector<Peak> found;
    constexpr int64_t TIMES = 500'000;
    const auto sets = available_sets();
    for (const Loop& loop : LOOPS) {
        bool here = false;
        for (const Set* set : sets) here = here || set->name == loop.set;
        if (!here || (EMULATED && loop.set == "avx512")) continue;
        const double seconds = together(threads, [&](int) { loop.run(TIMES); });
        found.push_back({std::string(loop.set), loop.what, loop.integer, threads * TIMES * static_cast<double>(loop.macs) / seconds});
    }
    return found;
}

}  // namespace woolly
