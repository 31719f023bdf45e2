// weights_b.cpp: packing, products and rows of weights, for one half of their layouts: blocks of 256 columns, entries.
#include "pieces.h"
#define OWN_LAYOUTS WEIGHT_LAYOUTS_B

namespace woolly {
#include "math.inl"
#include "panels.inl"
#include "pack.inl"
#include "blocks_256.inl"
#include "books.inl"
#include "blocks_of_entries.inl"
#include "unpacked.inl"
#include "passes.inl"
#include "layouts.inl"

const WeightTable OF_SET(weights_b_) = own_weights();
}  // namespace woolly
