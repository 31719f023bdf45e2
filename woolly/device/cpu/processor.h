// processor.h: which instruction sets this machine can run, with the operating system's consent. CMakeLists.txt asks, too.
#pragma once
#include <vector>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

namespace woolly {

#if defined(__x86_64__)
// Two that not every compiler's builtin has a name for. Their registers are those of AVX2.
inline bool has_f16c() {
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c >> 29 & 1);
}
inline bool has_avxvnni() {
    unsigned parts, a, b, c, d;
    return __get_cpuid_count(7, 0, &parts, &b, &c, &d) && parts >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 4 & 1);
}
#elif defined(__aarch64__)
// The dot product, and the atomics of ARMv8.1: a compiler that may use ARMv8.2 uses them, too.
inline bool has_neon() {
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

// Their names, the best last.
inline std::vector<const char*> runnable_sets() {
    std::vector<const char*> names{"scalar"};
#if defined(__x86_64__)
    __builtin_cpu_init();      // the builtins below ask the processor and whether the system saves its registers
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c()) {
        names.push_back("avx2");
        if (has_avxvnni()) names.push_back("avxvnni");
        if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
            __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vnni"))
            names.push_back("avx512");
    }
#elif defined(__aarch64__)
    if (has_neon()) names.push_back("neon");
#endif
    return names;
}

}  // namespace woolly
