// mapped_region.h: reading a mapped file that shrinks, or whose disk fails, must not end the process. Once a file.
//
// The system answers a read of a page that is no longer there with a signal. For a page of such a region our handler
// puts zeros in its place, and in place of all that follows in the map, and notes where. The reader goes on with zeros
// and asks `broken_at` before it believes anything it has read. Every other signal goes where it went before.
#pragma once

#include <cstddef>
#include <cstdint>

namespace woolly {

class MappedRegion {
public:
    MappedRegion(const uint8_t* data, size_t size);      // a whole map: data begins at a page. Throws when there are too many
    ~MappedRegion() { close(); }
    MappedRegion(const MappedRegion&) = delete;
    MappedRegion& operator=(const MappedRegion&) = delete;

    void    close() noexcept;      // before the map is closed
    int64_t broken_at() const noexcept;      // the first byte that could not be read, or -1

private:
    int slot_;
    int64_t found_ = -1;
};

}  // namespace woolly
