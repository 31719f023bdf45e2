// cpu.h: which instruction sets this machine offers, with the operating system's consent.
#pragma once
#include <string>
#include <vector>

#include "kernels.h"

namespace woolly {

// The build with the sanitizers has the kernels of AVX-VNNI and AVX-512 without their instructions (tests/native/emulated).
#if defined(WOOLLY_EMULATED)
constexpr bool EMULATED = true;
#else
constexpr bool EMULATED = false;
#endif

std::vector<const Set*> available_sets();          // the best last
const Set& set_by_name(const std::string& name);   // throws Error when it is unknown or not available here

}  // namespace woolly
