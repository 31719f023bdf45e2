// philox.h: Philox-4x32-10, a counter turned into random numbers (Salmon, Moraes, Dror, Shaw, 2011).
#pragma once
#include <cstdint>

namespace woolly {

// The number in [0, 1) that a token is drawn with: a pure function of the seed and the token's position.
// The counter is (position, 0, 0, 0), the key (low half, high half of the seed); 24 bits of the first word are used.
inline double uniform(uint64_t seed, uint32_t position) {
    uint32_t a = position, b = 0, c = 0, d = 0;
    uint32_t k = static_cast<uint32_t>(seed), l = static_cast<uint32_t>(seed >> 32);
    for (int round = 0; round < 10; round++, k += 0x9E3779B9u, l += 0xBB67AE85u) {
        const uint64_t low = uint64_t{a} * 0xD2511F53u, high = uint64_t{c} * 0xCD9E8D57u;
        a = static_cast<uint32_t>(high >> 32) ^ b ^ k;
        b = static_cast<uint32_t>(high);
        c = static_cast<uint32_t>(low >> 32) ^ d ^ l;
        d = static_cast<uint32_t>(low);
    }
    return (a >> 8) * 0x1p-24;
}

}  // namespace woolly
