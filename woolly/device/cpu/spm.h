// spm.h: joining characters to scored words, the tokenizer that GGUF files call `llama`. Once per text.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace woolly {

// The words of one vocabulary. Never changes after it is made, so any number of threads may encode at once.
class Spm {
public:
    // words[i] is the token ids[i] and has scores[i]; no word twice, none empty, all scores finite. bytes[b] is the token
    // of byte b, -1 where there is none; a character without word and bytes becomes `unknown`, or nothing if that is -1.
    Spm(std::span<const std::string_view> words, std::span<const int32_t> ids, std::span<const float> scores,
        const std::array<int32_t, 256>& bytes, int32_t unknown);

    // text.size() < 2^31. Any bytes are taken; what is not UTF-8 becomes byte tokens.
    std::vector<int32_t> encode(std::string_view text) const;

private:
    struct Word {
        uint64_t hash;
        uint32_t begin, length;  // in text_
        int32_t id;
        float score;
    };

    int32_t find(const char* text, uint32_t length, uint64_t hash) const noexcept;  // place in words_, or -1
    void spell(std::string_view character, std::vector<int32_t>& out) const;

    std::string text_;             // all words, one after the other
    std::vector<Word> words_;
    std::vector<int32_t> slots_;   // open addressing: place in words_, or -1
    std::vector<uint64_t> power_;  // power_[n] shifts a hash by n bytes
    uint64_t base_;                // of the polynomial that hashes are
    uint32_t longest_ = 0;
    std::array<int32_t, 256> bytes_;
    int32_t unknown_;
};

}  // namespace woolly
