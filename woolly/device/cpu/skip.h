// skip.h: walk over the strings of a GGUF array without decoding them. Once per string array of a file, at open.
#pragma once

#include <cstddef>
#include <cstdint>

namespace woolly {

struct Skipped {
    size_t end;      // where the walk stopped: behind the last string, or at the length field of the first bad one
    uint64_t whole;  // strings passed; less than the count asked for when one is too long or passes the end
};

// data[0, size) is the file; offset <= size. A string is a little-endian u64 length and that many bytes.
Skipped skip_strings(const uint8_t* data, size_t size, size_t offset, uint64_t count, size_t longest) noexcept;

}  // namespace woolly
