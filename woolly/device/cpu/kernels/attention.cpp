// attention.cpp: attention, and the cache that it reads.
#include "pieces.h"

namespace woolly {
#include "math.inl"
#include "panels.inl"
#include "pack.inl"
#include "cache.inl"
#include "attention.inl"

namespace {
const Kernel ATTENTION[] = {
    // name, operands, attributes, check, scratch, shared, tiles, run
    {"store", 4, {}, check_store, no_scratch, no_scratch, tiles_by_row, run_store},
    {"attend", 6, {"heads", "scale", "window", "chunked", "causal", "cap"}, check_attend, scratch_attend, shared_attend, tiles_attend, run_attend},
    {"store_attend", 7, {"heads", "scale", "window", "chunked", "causal", "cap"}, check_store_attend, scratch_attend, shared_attend, tiles_attend, run_attend},
};
}  // namespace

const KernelTable OF_SET(attention_) = {ATTENTION, sizeof ATTENTION / sizeof *ATTENTION};
}  // namespace woolly
