// packing.h: rows of files to panels, on all threads. Once a weight.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels.h"

namespace woolly {

// Packed rows that lie together in a file: the first of them, how many, the file, the offset of the first byte.
struct Run { int64_t first, count, file, offset; };

// Packs into `out`, whose panels follow each other; packed rows that no run covers are zero. False: a scale or weight is
// not a finite number.
bool pack(std::span<uint8_t> out, const std::string& layout, int64_t packed_rows, int64_t columns, int64_t row_bytes,
          std::span<const Run> runs, const std::vector<std::span<const uint8_t>>& files, int threads, const Set& set);

}  // namespace woolly
