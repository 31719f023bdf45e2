// books.inl: the codebooks of the IQ types as tables, made of gguf/tensor_types/codebooks.inc when this is compiled.

namespace {

#define BOOK(name, ...) constexpr char SET_##name[] = __VA_ARGS__;
#include "../../../gguf/tensor_types/codebooks.inc"
#undef BOOK

// The entries of COUNT codes, a byte a value, lowest first.
template <class Entry_, int COUNT> struct Book {
    using Entry = Entry_;
    alignas(64) Entry entry[COUNT];
    int found;
};
template <class Entry, int COUNT, int LEVELS> constexpr Book<Entry, COUNT> book(const char* set, const uint8_t (&level)[LEVELS]) {
    Book<Entry, COUNT> b{};
    for (int n = 0; set[n / 4]; n++) {
        const int digit = set[n / 4] <= '9' ? set[n / 4] - '0' : set[n / 4] - 'a' + 10;
        if (!(digit >> n % 4 & 1)) continue;
        Entry e = 0;
        for (int i = 0, rest = n; i < static_cast<int>(sizeof(Entry)); i++, rest /= LEVELS) e |= static_cast<Entry>(level[rest % LEVELS]) << 8 * i;
        b.entry[b.found++] = e;
    }
    return b;
}

constexpr uint8_t THIRDS[] = {8, 25, 43}, EIGHTHS[] = {0, 8, 16}, UP_TO_62[] = {4, 12, 20, 28, 36, 44, 52, 62}, UP_TO_15[] = {1, 3, 5, 7, 9, 11, 13, 15};
constexpr auto BOOK_IQ2_XXS = book<uint64_t, 256>(SET_IQ2_XXS, THIRDS);
constexpr auto BOOK_IQ2_XS = book<uint64_t, 512>(SET_IQ2_XS, THIRDS);
constexpr auto BOOK_IQ2_S = book<uint64_t, 1024>(SET_IQ2_S, THIRDS);
constexpr auto BOOK_IQ3_XXS = book<uint32_t, 256>(SET_IQ3_XXS, UP_TO_62);
constexpr auto BOOK_IQ3_S = book<uint32_t, 512>(SET_IQ3_S, UP_TO_15);
constexpr auto BOOK_IQ1 = book<uint64_t, 2048>(SET_IQ1, EIGHTHS);
static_assert(BOOK_IQ2_XXS.found == 256 && BOOK_IQ2_XS.found == 512 && BOOK_IQ2_S.found == 1024);
static_assert(BOOK_IQ3_XXS.found == 256 && BOOK_IQ3_S.found == 512 && BOOK_IQ1.found == 2048);

}  // namespace
