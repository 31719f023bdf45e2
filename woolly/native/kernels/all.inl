// all.inl: the kernels in the order in which they use each other.
#include "../kernels.h"

namespace woolly {
#include "math.inl"
#include "norm.inl"
#include "panels.inl"
#include "pack.inl"
#include "blocks_32.inl"
#include "blocks_256.inl"
#include "floats.inl"
#include "layouts.inl"
#include "unpacked.inl"
#include "linear.inl"
#include "pointwise.inl"
#include "rope.inl"
#include "cache.inl"
#include "attention.inl"
#include "sequence.inl"
#include "experts.inl"
#include "pick.inl"
#include "table.inl"
}  // namespace woolly
