#include "skip.h"

namespace woolly {

// Byte by byte: a length stands at any address, and the file is little-endian on every machine.
static uint64_t read_u64(const uint8_t* p) noexcept {
    uint64_t value = 0;
    for (int i = 7; i >= 0; --i) value = value << 8 | p[i];
    return value;
}

// Every comparison is against the bytes left, so no sum can wrap.
Skipped skip_strings(const uint8_t* data, size_t size, size_t offset, uint64_t count, size_t longest) noexcept {
    for (uint64_t i = 0; i < count; ++i) {
        if (size - offset < 8) return {offset, i};
        const uint64_t length = read_u64(data + offset);
        if (length > longest || length > size - offset - 8) return {offset, i};
        offset += 8 + static_cast<size_t>(length);
    }
    return {offset, count};
}

}  // namespace woolly
