#include "cpu.h"

#include "error.h"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

namespace woolly {

namespace {
#if defined(__x86_64__)
// Two that not every compiler's builtin has a name for. Their registers are those of AVX2.
bool has_f16c() {
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c >> 29 & 1);
}
[[maybe_unused]] bool has_avxvnni() {
    unsigned parts, a, b, c, d;
    return __get_cpuid_count(7, 0, &parts, &b, &c, &d) && parts >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 4 & 1);
}
#elif defined(__aarch64__)
// The dot product, and the atomics of ARMv8.1: a compiler that may use ARMv8.2 uses them, too.
bool has_neon() {
#if defined(__linux__)
    constexpr unsigned long needed = HWCAP_ASIMDDP | HWCAP_ATOMICS;
    return (getauxval(AT_HWCAP) & needed) == needed;
#elif defined(__APPLE__)
    return true;      // every Mac of this architecture has them
#else
    return false;
#endif
}
#endif
}  // namespace

std::vector<const Set*> available_sets() {
    std::vector<const Set*> sets{&set_scalar};
#if defined(__x86_64__)
    __builtin_cpu_init();      // the builtins below ask the processor and whether the system saves its registers
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c()) {
        if constexpr (EMULATED) return {&set_scalar, &set_avx512, &set_avx2};      // by AVX2, and slower than its own set
        sets.push_back(&set_avx2);
#if defined(WOOLLY_AVXVNNI)
        if (has_avxvnni()) sets.push_back(&set_avxvnni);
#endif
        if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
            __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vnni"))
            sets.push_back(&set_avx512);
    }
#elif defined(__aarch64__)
    if (has_neon()) sets.push_back(&set_neon);
#endif
    return sets;
}

const Set& set_by_name(const std::string& name) {
    static const std::vector<const Set*> sets = available_sets();   // asked for every token: nothing is allocated
    std::string known;
    for (const Set* set : sets) {
        if (set->name == name) return *set;
        known += known.empty() ? set->name : std::string(", ") + set->name;
    }
    throw Error("unsupported", "this machine has no instruction set '" + name + "'; it has " + known);
}

}  // namespace woolly
