// The text is a linked list of symbols, one per character at first. Neighbours whose joined text is a word wait in a heap,
// the best score on top, of equal ones the leftmost. The top pair is joined if both sides are still what they were when
// it was pushed; the joined symbol then forms new pairs with its neighbours. Each join removes a symbol and pushes at most
// two pairs, so a text of n characters costs O(n log n), whatever it holds.
//
// A joined text is looked up without reading it: the hash is a polynomial in the bytes, so hash(ab) follows from hash(a),
// hash(b) and the length of b. Only a hit compares bytes.
#include "spm.h"

#include <algorithm>
#include <cstring>
#include <random>

namespace woolly {

namespace {

// Odd, so that no byte is lost when hashes are shifted; random, so that no file can hold words that all meet in one slot.
uint64_t random_base() {
    std::random_device device;
    return (uint64_t{device()} << 32 | device()) | 1;
}

uint64_t hash_of(std::string_view text, uint64_t base) noexcept {
    uint64_t hash = 0;
    for (const char c : text) hash = hash * base + static_cast<uint8_t>(c) + 1;
    return hash;
}

// The low bits of a polynomial depend on the last bytes alone; a slot needs all of them.
size_t slot_of(uint64_t hash, size_t mask) noexcept {
    hash ^= hash >> 32;
    hash *= 0xD6E8FEB86659FD93u;
    return static_cast<size_t>(hash ^ hash >> 32) & mask;
}

uint32_t character_size(std::string_view text, size_t at) noexcept {
    const uint8_t c = static_cast<uint8_t>(text[at]);
    const uint32_t size = c < 0xC0 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
    return static_cast<uint32_t>(std::min<size_t>(size, text.size() - at));
}

struct Symbol {
    uint64_t hash;
    uint32_t begin, length;  // length 0: joined to the symbol before it
    int32_t before, after;   // -1 at the ends
    int32_t word;            // place in words_, or -1
};

struct Pair {
    float score;
    int32_t left;
    uint32_t length;  // of both sides; if it still fits, both are as they were
    int32_t word;

    bool operator<(const Pair& other) const noexcept {
        return score != other.score ? score < other.score : left > other.left;
    }
};

}  // namespace

Spm::Spm(std::span<const std::string_view> words, std::span<const int32_t> ids, std::span<const float> scores,
         const std::array<int32_t, 256>& bytes, int32_t unknown)
    : base_(random_base()), bytes_(bytes), unknown_(unknown) {
    size_t total = 0, slots = 2;
    for (const std::string_view word : words) total += word.size();
    while (slots < 2 * words.size()) slots *= 2;
    text_.reserve(total);
    words_.reserve(words.size());
    slots_.assign(slots, -1);
    for (size_t i = 0; i < words.size(); ++i) {
        const uint64_t hash = hash_of(words[i], base_);
        const uint32_t length = static_cast<uint32_t>(words[i].size());
        size_t slot = slot_of(hash, slots - 1);
        while (slots_[slot] >= 0) slot = (slot + 1) & (slots - 1);
        slots_[slot] = static_cast<int32_t>(i);
        words_.push_back({hash, static_cast<uint32_t>(text_.size()), length, ids[i], scores[i]});
        text_ += words[i];
        longest_ = std::max(longest_, length);
    }
    power_.assign(size_t{longest_} + 1, 1);
    for (size_t i = 1; i < power_.size(); ++i) power_[i] = power_[i - 1] * base_;
}

int32_t Spm::find(const char* text, uint32_t length, uint64_t hash) const noexcept {
    const size_t mask = slots_.size() - 1;
    for (size_t slot = slot_of(hash, mask);; slot = (slot + 1) & mask) {
        const int32_t i = slots_[slot];
        if (i < 0) return -1;
        const Word& word = words_[static_cast<size_t>(i)];
        if (word.hash == hash && word.length == length && std::memcmp(text_.data() + word.begin, text, length) == 0)
            return i;
    }
}

std::vector<int32_t> Spm::encode(std::string_view text) const {
    std::vector<Symbol> symbols;
    symbols.reserve(text.size());
    for (size_t at = 0; at < text.size();) {
        const uint32_t length = character_size(text, at);
        const uint64_t hash = hash_of(text.substr(at, length), base_);
        const int32_t place = static_cast<int32_t>(symbols.size());
        symbols.push_back({hash, static_cast<uint32_t>(at), length, place - 1, place + 1,
                           find(text.data() + at, length, hash)});
        at += length;
    }
    if (symbols.empty()) return {};
    symbols.back().after = -1;

    std::vector<Pair> heap;
    const auto offer = [&](int32_t left) {
        const Symbol& a = symbols[static_cast<size_t>(left)];
        if (a.after < 0) return false;
        const Symbol& b = symbols[static_cast<size_t>(a.after)];
        const uint32_t length = a.length + b.length;
        if (length > longest_) return false;
        const int32_t word = find(text.data() + a.begin, length, a.hash * power_[b.length] + b.hash);
        if (word < 0) return false;
        heap.push_back({words_[static_cast<size_t>(word)].score, left, length, word});
        return true;
    };
    for (size_t i = 0; i < symbols.size(); ++i) offer(static_cast<int32_t>(i));
    std::make_heap(heap.begin(), heap.end());

    while (!heap.empty()) {
        std::pop_heap(heap.begin(), heap.end());
        const Pair pair = heap.back();
        heap.pop_back();
        Symbol& a = symbols[static_cast<size_t>(pair.left)];
        if (a.length == 0 || a.after < 0) continue;
        Symbol& b = symbols[static_cast<size_t>(a.after)];
        if (a.length + b.length != pair.length) continue;

        a.hash = words_[static_cast<size_t>(pair.word)].hash;
        a.length = pair.length;
        a.word = pair.word;
        a.after = b.after;
        b.length = 0;
        if (a.after >= 0) symbols[static_cast<size_t>(a.after)].before = pair.left;
        if (a.before >= 0 && offer(a.before)) std::push_heap(heap.begin(), heap.end());
        if (offer(pair.left)) std::push_heap(heap.begin(), heap.end());
    }

    std::vector<int32_t> ids;
    for (int32_t i = 0; i >= 0; i = symbols[static_cast<size_t>(i)].after) {
        const Symbol& s = symbols[static_cast<size_t>(i)];
        if (s.word >= 0)
            ids.push_back(words_[static_cast<size_t>(s.word)].id);
        else
            spell(text.substr(s.begin, s.length), ids);
    }
    return ids;
}

void Spm::spell(std::string_view character, std::vector<int32_t>& out) const {
    const bool known = std::all_of(character.begin(), character.end(),
                                   [&](char c) { return bytes_[static_cast<uint8_t>(c)] >= 0; });
    if (known)
        for (const char c : character) out.push_back(bytes_[static_cast<uint8_t>(c)]);
    else if (unknown_ >= 0)
        out.push_back(unknown_);
}

}  // namespace woolly
