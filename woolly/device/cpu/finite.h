// finite.h: look for numbers that are none (NaN, infinity) among a tensor's bytes, without decoding it. Once a tensor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace woolly {

// data is blocks of block_bytes each; in every block a float of `width` bytes (1, 2 or 4, little-endian) stands at each of
// `places`. It is no number when all bits of `exponent` are set. Returns the offset of the first such float, or -1.
// The caller has made sure that the places lie inside a block and that data is whole blocks.
int64_t find_not_finite(std::span<const uint8_t> data, size_t block_bytes, std::span<const int32_t> places, int width,
                        uint32_t exponent) noexcept;

}  // namespace woolly
