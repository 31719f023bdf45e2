// pieces.h: the pieces that a set is compiled in, and the names by which they know each other's tables. Each is compiled once
// for each set, after its lanes (CMakeLists.txt): WOOLLY_SET is its name.
#include "../kernels.h"

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define OF_SET(name) JOIN(name, WOOLLY_SET)

namespace woolly {
extern const WeightTable OF_SET(weights_a_), OF_SET(weights_b_);
extern const KernelTable OF_SET(attention_);
}  // namespace woolly
