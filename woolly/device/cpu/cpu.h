// cpu.h: the instruction sets that were compiled, and those of them that this machine can run.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "kernels.h"

namespace woolly {

// The build with the sanitizers has the kernels of AVX-VNNI and AVX-512 without their instructions (tests/native/emulated).
#if defined(WOOLLY_EMULATED)
constexpr bool EMULATED = true;
#else
constexpr bool EMULATED = false;
#endif

std::vector<std::string_view> sets_of_machine();   // those that it can run, whether compiled or not; the best last
std::vector<const Set*> available_sets();          // those of them that were compiled
const Set& set_by_name(const std::string& name);   // throws Error when it is unknown or not available here

// The kernels of a set, in one order for all sets, and the one of a name, or nullptr.
std::vector<const Kernel*> kernels_of(const Set& set);
const Kernel* kernel_of(const Set& set, std::string_view name);

}  // namespace woolly
