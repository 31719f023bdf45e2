// roofline.h: what this machine can do at the most: read memory, meet, multiply. For `bench` alone; a step calls none of it.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "os.h"

namespace woolly {

// Memory to read from, in huge pages or in small ones.
class Buffer {
public:
    Buffer(size_t nbytes, bool huge);
    double touch(int threads);             // seconds to write a byte of every page for the first time
    double read(int threads) const;        // seconds to read it all once

private:
    Memory memory_;
};

// Seconds to read `size` bytes once, each thread one contiguous part, with the widest loads there are.
double read_seconds(const uint8_t* data, size_t size, int threads);

// Seconds for `times` meetings of a team at the barrier that steps use.
double barrier_seconds(int threads, int64_t times);

double clock_hz();                         // cycles a second, from a chain of additions that each take one

// One loop of nothing but multiplications: its instructions, and multiply-adds a second by all threads together.
struct Peak { std::string isa, what; bool integer; double rate; };
std::vector<Peak> peaks(int threads);      // every loop that this machine can run

}  // namespace woolly
