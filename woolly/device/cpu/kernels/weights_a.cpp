// weights_a.cpp: packing, products and rows of weights, for one half of their layouts: blocks of 32 columns, lists of 16 values, few bits, floats.
#include "pieces.h"
#define OWN_LAYOUTS WEIGHT_LAYOUTS_A

namespace woolly {
#include "math.inl"
#include "panels.inl"
#include "pack.inl"
#include "blocks_32.inl"
#include "blocks_of_nibbles.inl"
#include "blocks_of_few_bits.inl"
#include "floats.inl"
#include "unpacked.inl"
#include "passes.inl"
#include "layouts.inl"

const WeightTable OF_SET(weights_a_) = own_weights();
}  // namespace woolly
