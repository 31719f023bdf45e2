"""tokenizer: text to token ids and back, by the rules that a GGUF file states: a codec for each kind of vocabulary."""
