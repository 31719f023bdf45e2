// lookups_x86.h: entries of a table for eight rows, for all sets of x86. One load each: the instructions that gather them take
// twice as long on the processor where this was measured.

namespace {

// Eight codes, read a word at a time: a load of each would be half of all loads.
template <class Index> struct Eight {
    size_t of[8];
    LANE explicit Eight(const Index* p) {
        constexpr int per = 8 / static_cast<int>(sizeof(Index));
        for (int i = 0; i < 8; i += per) {
            uint64_t x;
            memcpy(&x, p + i, 8);
            for (int k = 0; k < per; k++) of[i + k] = static_cast<Index>(x >> 8 * sizeof(Index) * static_cast<size_t>(k));
        }
    }
};

template <class Index> LANE __m256i entries(const uint32_t* table, const Index* index) {
    const Eight<Index> i(index);
    const auto four = [&](const size_t* k) INLINE {
        return _mm_set_epi32(static_cast<int>(table[k[3]]), static_cast<int>(table[k[2]]), static_cast<int>(table[k[1]]), static_cast<int>(table[k[0]]));
    };
    return _mm256_inserti128_si256(_mm256_castsi128_si256(four(i.of)), four(i.of + 4), 1);
}

struct Halves { __m256i low, high; };      // of entries of eight bytes: the first four of each row, and the others
template <class Index> LANE Halves entries(const uint64_t* table, const Index* index) {
    const Eight<Index> i(index);
    const auto two = [&](const size_t* k) INLINE { return _mm_set_epi64x(static_cast<int64_t>(table[k[1]]), static_cast<int64_t>(table[k[0]])); };
    const auto four = [&](const size_t* k) INLINE {
        return _mm256_castsi256_ps(_mm256_inserti128_si256(_mm256_castsi128_si256(two(k)), two(k + 4), 1));
    };
    const __m256 a = four(i.of), b = four(i.of + 2);      // rows 0, 1, 4, 5 and 2, 3, 6, 7
    return {_mm256_castps_si256(_mm256_shuffle_ps(a, b, 0x88)), _mm256_castps_si256(_mm256_shuffle_ps(a, b, 0xdd))};
}

}  // namespace
