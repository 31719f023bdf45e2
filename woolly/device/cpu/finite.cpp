#include "finite.h"

#include <cstring>

namespace woolly {

namespace {

template <class T> bool not_finite(const uint8_t* p, T exponent) noexcept {
    T v;
    memcpy(&v, p, sizeof v);
    return (v & exponent) == exponent;
}

// Floats one after the other: a stretch is judged as a whole, so that the loop has no exit and becomes vector code.
template <class T> int64_t find_in_row(std::span<const uint8_t> data, T exponent) noexcept {
    constexpr size_t stretch = 4096;
    const size_t count = data.size() / sizeof(T);
    for (size_t first = 0; first < count; first += stretch) {
        const size_t last = count - first < stretch ? count : first + stretch;
        bool bad = false;
        for (size_t i = first; i < last; i++) bad |= not_finite<T>(data.data() + i * sizeof(T), exponent);
        if (!bad) continue;
        for (size_t i = first; i < last; i++)
            if (not_finite<T>(data.data() + i * sizeof(T), exponent)) return static_cast<int64_t>(i * sizeof(T));
    }
    return -1;
}

template <class T>
int64_t find(std::span<const uint8_t> data, size_t block_bytes, std::span<const int32_t> places, T exponent) noexcept {
    if (block_bytes == sizeof(T)) return find_in_row<T>(data, exponent);
    for (size_t block = 0; block < data.size(); block += block_bytes)
        for (const int32_t place : places)
            if (not_finite<T>(data.data() + block + place, exponent)) return static_cast<int64_t>(block) + place;
    return -1;
}

}  // namespace

int64_t find_not_finite(std::span<const uint8_t> data, size_t block_bytes, std::span<const int32_t> places, int width,
                        uint32_t exponent) noexcept {
    if (width == 4) return find<uint32_t>(data, block_bytes, places, exponent);
    if (width == 1) return find<uint8_t>(data, block_bytes, places, static_cast<uint8_t>(exponent));
    return find<uint16_t>(data, block_bytes, places, static_cast<uint16_t>(exponent));
}

}  // namespace woolly
