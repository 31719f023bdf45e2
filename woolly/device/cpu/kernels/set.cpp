// set.cpp: a set: all its kernels but those of attention, and what the other pieces have. Only it is visible outside.
#include "pieces.h"

namespace woolly {
#include "math.inl"
#include "norm.inl"
#include "panels.inl"
#include "pack.inl"
#include "floats.inl"
#include "unpacked.inl"
#include "passes.inl"
#include "linear.inl"
#include "delta.inl"
#include "pointwise.inl"
#include "rope.inl"
#include "sequence.inl"
#include "experts.inl"
#include "pick.inl"
#include "table.inl"

#define NAME_(a) #a
#define NAME(a) NAME_(a)
namespace {
constexpr KernelTable ALL = {KERNELS, sizeof KERNELS / sizeof *KERNELS};
}
extern const Set OF_SET(set_) = {NAME(WOOLLY_SET), {&ALL, &OF_SET(attention_)}, packing_of, pick};
}  // namespace woolly
