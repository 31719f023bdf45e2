"""Text to ids and back: the rules that hold for every tokenizer."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.text.small import CONTROL, USER_DEFINED, bert, bpe, spm
from tests.tiny import byte_letters
from woolly.errors import RequestError, UnsupportedError
from woolly.text import TextStream, Tokenizer

BPE = Tokenizer(bpe())
SPM = Tokenizer(spm())
BERT = Tokenizer(bert())
START, END, THINK = (BPE.id_of(text) for text in ("<|im_start|>", "<|im_end|>", "<think>"))
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\u2581"))


def words(tokenizer: Tokenizer, text: str, **options: Any) -> list[str]:
    return [tokenizer.text_of(i) for i in tokenizer.encode(text, **options)]


def gemma() -> dict[str, Any]:
    """Byte pairs over text with U+2581 for spaces."""
    tokens = [
        "<bos>",
        "<eos>",
        *(f"<0x{b:02X}>" for b in range(256)),
        "a",
        "b",
        "\u2581",
        "\u2581a",
        "ab",
        "\n",
        "\n\n",
    ]
    return {
        "tokenizer.ggml.model": "gemma4",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": np.array([3, 3] + [6] * 256 + [1] * 7, np.int32),
        "tokenizer.ggml.merges": ["a b", "\u2581 a", "\n \n"],
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 1,
    }


def test_byte_pairs_are_joined_in_the_order_of_the_merges() -> None:
    assert words(BPE, "hello the other") == ["hello", "Ġthe", "Ġ", "o", "t", "he", "r"]
    assert words(BPE, "aaaaaa") == ["aaaa", "aa"]


def test_digits_are_cut_one_by_one_where_the_pattern_says_so() -> None:
    assert words(BPE, "12") == ["1", "2"]


def test_a_merge_may_begin_with_a_space_of_its_own() -> None:
    spaced = gemma() | {"tokenizer.ggml.tokens": [*gemma()["tokenizer.ggml.tokens"], " ", " b"]}
    spaced["tokenizer.ggml.token_type"] = np.append(spaced["tokenizer.ggml.token_type"], np.array([1, 1], np.int32))
    spaced["tokenizer.ggml.merges"] = ["a b", "  b"]
    assert words(Tokenizer(spaced), "ab") == ["ab"]


def test_text_with_byte_tokens_falls_back_to_them() -> None:
    tokenizer = Tokenizer(gemma())
    assert words(tokenizer, "ab a\n\né") == ["ab", "\u2581a", "\n\n", "<0xC3>", "<0xA9>"]
    assert tokenizer.decode(tokenizer.encode("ab a\n\né")) == "ab a\n\né"
    assert tokenizer.encode("a", bos=None)[0] == 0


def test_word_pieces_take_the_longest_token_from_the_left() -> None:
    assert words(BERT, "Hello, WORLD!") == ["▁hello", "[UNK]", "▁wor", "ld", "▁!"]
    assert words(BERT, "ab [CLS]") == ["▁a", "b", "[UNK]", "[UNK]", "[UNK]"]
    assert words(BERT, "hello", bos=None) == ["[CLS]", "▁hello", "[SEP]"]
    assert BERT.decode(BERT.encode("hello world", bos=None)) == "hello world"


def test_a_control_token_comes_from_text_only_when_asked_for() -> None:
    text = "<|im_start|>user<|im_end|>"
    assert START not in BPE.encode(text)
    assert BPE.encode(text, special=True) == [START, *BPE.encode("user"), END]
    assert BPE.decode(BPE.encode(text)) == text


def test_a_user_defined_token_always_comes_from_text() -> None:
    assert BPE.encode("a<think>b") == [*BPE.encode("a"), THINK, *BPE.encode("b")]


def test_the_longest_of_several_special_tokens_is_taken() -> None:
    tokenizer = Tokenizer(bpe(special={"<a>": CONTROL, "<a>b": CONTROL, "漢": USER_DEFINED}))
    assert words(tokenizer, "<a>b<a>c漢", special=True) == ["<a>b", "<a>", "c", "漢"]
    assert words(tokenizer, "<a>") == ["<", "a", ">"]


def test_a_control_token_never_comes_from_merges() -> None:
    tokenizer = Tokenizer(bpe(merges=["a b", "ab c", "b c"], special={}))
    assert words(tokenizer, "abc") == ["abc"]
    meta = bpe(merges=["a b", "ab c", "b c"], special={})
    meta["tokenizer.ggml.token_type"][meta["tokenizer.ggml.tokens"].index("abc")] = CONTROL
    assert words(Tokenizer(meta), "abc") == ["ab", "c"]


def test_a_whole_word_that_is_a_control_token_stays_text() -> None:
    meta = bpe(merges=["a b"], special={"hello": CONTROL}, pre="llama-bpe")
    assert words(Tokenizer(meta), "hello") == list("hello")


@pytest.mark.parametrize("model", [bpe, spm])
def test_there_is_never_a_second_beginning_token(model: Any) -> None:
    tokenizer = Tokenizer(model(add_bos_token=True))
    begin = tokenizer.text_of(tokenizer.bos or 0)
    plain = tokenizer.encode("hello")
    assert tokenizer.encode("hello", bos=False) == plain
    assert tokenizer.encode("hello", bos=True) == [tokenizer.bos, *plain]
    assert tokenizer.encode("hello", bos=None) == [tokenizer.bos, *plain]
    assert tokenizer.encode(begin + "hello", bos=None, special=True) == [tokenizer.bos, *plain]
    assert tokenizer.encode("", bos=None) == [tokenizer.bos]
    assert tokenizer.encode_chat(begin + "hello", "\ufdd0") == [tokenizer.bos, *plain]


def test_the_rule_for_the_beginning_token_is_the_files() -> None:
    assert Tokenizer(bpe(add_bos_token=False)).encode("a", bos=None) == BPE.encode("a")
    assert Tokenizer(bpe()).encode("a", bos=None) == BPE.encode("a")  # absent: not for this pre-tokenizer
    assert Tokenizer(bpe(pre="llama-bpe")).encode("a", bos=None)[0] == START
    assert Tokenizer(spm()).encode("a", bos=None)[0] == 1  # absent: yes for scored words
    assert Tokenizer(spm(add_bos_token=False)).encode("a", bos=None) == SPM.encode("a")


def test_a_beginning_token_that_the_model_does_not_have_is_refused() -> None:
    tokenizer = Tokenizer(bpe(special={}))
    assert tokenizer.encode("a", bos=None) == tokenizer.encode("a")
    with pytest.raises(RequestError, match="no beginning token"):
        tokenizer.encode("a", bos=True)


def test_what_ends_an_answer_is_read_from_keys_kinds_and_names() -> None:
    def ends(special: dict[str, int], **more: Any) -> set[str]:
        tokenizer = Tokenizer(bpe(special=special, **more))
        return {tokenizer.text_of(i) for i in tokenizer.ends}

    assert ends({"<|im_end|>": CONTROL, "<x>": CONTROL}) == {"<|im_end|>"}
    assert ends({"<x>": CONTROL, "<y>": CONTROL}, eos_token_id=267, eot_token_id=268) == {"<x>", "<y>"}
    assert ends({"<|im_end|>": 1}) == {"<|im_end|>"}  # a wrong kind in the file does not make an answer endless
    assert ends({"</s>": 1}) == set()  # but this is ordinary text somewhere
    assert ends({"</s>": USER_DEFINED}) == {"</s>"}
    assert ends({"<|end|>": 3, "<|return|>": 3, "<|call|>": 3}) == {"<|return|>", "<|call|>"}
    assert ends({"<|eot|>": 3, "<|eom|>": 3}) == {"<|eot|>"}  # the other ends a message of several


def test_a_user_defined_token_that_ends_an_answer_counts_as_control() -> None:
    tokenizer = Tokenizer(bpe(special={"</s>": USER_DEFINED}))
    assert words(tokenizer, "</s>") == list("</s>")
    assert words(tokenizer, "</s>", special=True) == ["</s>"]
    assert tokenizer.decode(tokenizer.encode("a</s>", special=True)) == "a"


def test_the_marks_of_thoughts_have_a_text_as_control_tokens_too_and_no_text_becomes_them() -> None:
    tokenizer = Tokenizer(bpe(special={"<think>": CONTROL, "</think>": CONTROL, "[THINK]": CONTROL, "<x>": CONTROL}))
    marks = [tokenizer.id_of(text) or 0 for text in ("<think>", "</think>", "[THINK]", "<x>")]
    assert tokenizer.decode([marks[0], *tokenizer.encode("hm"), *marks[1:]]) == "<think>hm</think>[THINK]"
    assert not set(marks) & set(tokenizer.encode("<think>hm</think>[THINK]"))
    stream = TextStream(tokenizer, ["</think>"])
    assert [stream.feed(token) for token in (*marks[:2], 97)] == ["<think>", "", ""]
    assert stream.stopped


def test_control_tokens_have_no_text_and_user_defined_ones_are_text() -> None:
    assert BPE.bytes_of(START or 0) == b""
    assert BPE.bytes_of(THINK or 0) == b"<think>"
    assert BPE.decode([START or 0, *BPE.encode("a<think>b"), END or 0]) == "a<think>b"
    assert BPE.id_of("<|im_end|>") == END
    assert BPE.id_of("hello") is None


def test_a_token_whose_letters_stand_for_no_bytes_is_its_own_text() -> None:
    tokens = [*byte_letters(), "漢字", "Ġé"]  # the second is the bytes 20 e9, half a character
    meta = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.merges": []}
    tokenizer = Tokenizer(meta)
    assert tokenizer.bytes_of(256) == "漢字".encode()
    assert tokenizer.bytes_of(257) == b" \xe9"
    assert tokenizer.fewest("x" * 100) == 50


@given(TEXTS)
def test_a_text_comes_back_as_it_was(text: str) -> None:
    assert BPE.decode(BPE.encode(text)) == text
    assert SPM.decode(SPM.encode(text)) == text


@given(TEXTS)
def test_a_text_with_parsed_specials_comes_back_without_the_control_tokens(text: str) -> None:
    with_special = f"{text}<|im_end|>{text}"
    assert BPE.decode(BPE.encode(with_special, special=True)) == text + text


@given(st.lists(st.integers(0, BPE.vocab - 1)))
def test_any_ids_have_a_text(ids: list[int]) -> None:
    text = BPE.decode(ids)
    assert text == b"".join(map(BPE.bytes_of, ids)).decode("utf-8", "replace")


@pytest.mark.parametrize("wrong", [-1, BPE.vocab, 2**31, 1.5, True, "a", None])
def test_an_id_that_is_no_token_is_refused_with_its_place(wrong: Any) -> None:
    with pytest.raises(RequestError, match="token 1 is") as caught:
        BPE.decode([0, wrong])
    assert caught.value.index == 1
    assert BPE.decode(np.array([104, 105], np.int64)) == "hi"


@pytest.mark.parametrize("wrong", [b"bytes", None, 3, ["a"]])
def test_what_is_no_text_is_refused(wrong: Any) -> None:
    with pytest.raises(RequestError, match="str"):
        BPE.encode(wrong)
    with pytest.raises(RequestError, match="str"):
        BPE.encode_chat(wrong, "")


@pytest.mark.parametrize("model", ["plamo2", "rwkv", "abacus", ""])
def test_an_unknown_tokenizer_is_refused_by_name(model: str) -> None:
    with pytest.raises(UnsupportedError, match=f"'{model}'" if model else "no tokenizer"):
        Tokenizer(bpe(model=model))


def test_an_unknown_pre_tokenizer_is_refused_by_name_with_the_nearest_known() -> None:
    with pytest.raises(UnsupportedError, match=r"'smolm'.*'smollm'"):
        Tokenizer(bpe(pre="smolm"))
    with pytest.raises(UnsupportedError, match="'cased'"):
        Tokenizer(bert() | {"tokenizer.ggml.pre": "cased"})


def test_a_panic_inside_the_library_is_a_request_error() -> None:
    class PanicException(BaseException):
        pass

    def panic(*_: object) -> None:
        raise PanicException("retry-limit-in-match over")

    from woolly.text.tokenizer import library

    with pytest.raises(RequestError, match="retry-limit"), library.no_panic():
        panic()
    with pytest.raises(KeyboardInterrupt), library.no_panic():
        raise KeyboardInterrupt


def test_the_librarys_own_threads_are_off() -> None:
    import os

    assert "tokenizers" in sys.modules
    assert os.environ["TOKENIZERS_PARALLELISM"] == "false"


def test_a_gap_is_written_by_the_tokens_of_the_file_or_by_their_known_texts() -> None:
    meta = bpe()
    plain = Tokenizer(meta)
    assert plain.gap == ()
    named = meta | {f"tokenizer.ggml.fim_{name}_token_id": 97 + i for i, name in enumerate(("pre", "suf", "mid"))}
    tokenizer = Tokenizer(named)
    assert tokenizer.gap == (97, 98, 99)
    assert tokenizer.encode_gap("xy", "z", "q<|im_end|>") == [
        *(97, *plain.encode("xy"), 98, *plain.encode("z")),
        *(99, *plain.encode("q<|im_end|>")),
    ]
    words = list(meta["tokenizer.ggml.tokens"])
    words[-3:] = ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"]
    size = len(words)
    assert Tokenizer(meta | {"tokenizer.ggml.tokens": words}).gap == (size - 3, size - 2, size - 1)


def test_files_stand_before_a_gap_by_their_marks_with_their_names_or_as_snippets() -> None:
    files = (("a.py", "one"), ("b<|im_end|>", "two"))
    names = {
        f"tokenizer.ggml.fim_{name}_token_id": 97 + i for i, name in enumerate(("pre", "suf", "mid", "rep", "sep"))
    }
    marked = Tokenizer(bpe() | names)
    repository, first, one, second, two, own, x, y, z = map(
        marked.encode, ("myproject\n", "a.py\n", "one", "b<|im_end|>\n", "two", "filename\n", "x", "y", "z")
    )
    gap = [97, *x, 98, *y, 99, *z]
    before = [100, *repository, 101, *first, *one, 101, *second, *two, 101, *own]
    assert marked.encode_gap("x", "y", "z", files) == [*before, *gap]
    assert marked.encode_gap("x", "y", "z") == gap
    plain = Tokenizer(bpe() | dict(list(names.items())[:3]))
    snippet = plain.encode("\n\n--- snippet ---\n\n")
    assert plain.encode_gap("x", "y", "z", files) == [*snippet, *one, *snippet, *two, *gap]


def test_texts_and_ids_are_one_prompt_in_their_order() -> None:
    tokenizer = ranking()
    assert tokenizer.bos is not None
    xy, z = tokenizer.encode("xy"), tokenizer.encode("z")
    assert tokenizer.encode_mixed(("xy", 5, "z")) == [tokenizer.bos, *xy, 5, *z]
    assert tokenizer.encode_mixed((5, "xy", 6)) == [5, *xy, 6]


def ranking(template: str = "") -> Tokenizer:
    """A tokenizer that writes pairs: as the template says, or one text after the other."""
    special = {"<s>": CONTROL, "</s>": CONTROL, "<think>": USER_DEFINED}
    more = {"tokenizer.chat_template.rerank": template} if template else {}
    meta = bpe(special=special) | more
    begin = meta["tokenizer.ggml.tokens"].index("<s>")
    keys = {"bos_token_id": begin, "eos_token_id": begin + 1, "add_bos_token": True, "add_eos_token": True}
    return Tokenizer(meta | {f"tokenizer.ggml.{key}": value for key, value in keys.items()})


PAIRS = {
    "one text after the other": ranking(),
    "a template": ranking("<s>query: {query}</s>document: {document}"),
    "a template without marks": ranking("{document} the {query}"),
}


@pytest.mark.parametrize("tokenizer", PAIRS.values(), ids=PAIRS)
@given(query=TEXTS, documents=st.lists(TEXTS, max_size=3))
def test_pairs_with_one_query_are_those_of_each_alone(tokenizer: Tokenizer, query: str, documents: list[str]) -> None:
    pair = tokenizer.pairing(query)
    assert [pair(document) for document in documents] == [tokenizer.pairing(query)(each) for each in documents]


def test_a_pair_is_written_as_the_file_says() -> None:
    plain, template, without_marks = PAIRS.values()
    assert plain.decode(plain.pairing("the hello")("aa</s>")) == "the helloaa</s>"
    ids = plain.pairing("the hello")("aa</s>")
    assert ids == [*plain.encode_complete("the hello"), *plain.encode("aa</s>"), plain.eos]
    assert template.decode(template.pairing("</s>")("aa")) == "query: </s>document: aa"
    assert template.pairing("hello")("aa") == template.encode("<s>query: hello</s>document: aa", special=True)
    assert without_marks.decode(without_marks.pairing("hello")("aa")) == "aa the hello"


@pytest.mark.parametrize("name", ["one text after the other", "a template"])
def test_a_query_is_cut_into_tokens_once_for_all_documents(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer, encoded = PAIRS[name], list[str]()
    codec = tokenizer._codec

    def encode(texts: Sequence[str]) -> list[list[int]]:
        encoded.extend(texts)
        return codec.encode(texts)

    monkeypatch.setattr(tokenizer, "_codec", replace(codec, encode=encode))
    pair = tokenizer.pairing("hello the other")
    for document in ("aa", "the", "hello"):
        pair(document)
    assert sum("the other" in text for text in encoded) == 1
    assert len(encoded) == 4


@pytest.mark.parametrize("name", ["one text after the other", "a template"])
@given(query=st.text("ab ", min_size=20, max_size=60), document=st.text("ab "))
def test_a_query_of_which_only_the_beginning_counts_gives_the_same_first_ids(
    name: str, query: str, document: str
) -> None:
    full, cut = PAIRS[name].pairing(query)(document), PAIRS[name].pairing(query, 8)(document)
    assert cut[:6] == full[:6]


@given(st.lists(st.sampled_from(["hello", "the", "aaaaaa", "é", " ", "\n"])).map("".join), st.integers(1, 9))
def test_the_beginning_of_a_text_has_the_first_tokens_of_all_of_it(text: str, most: int) -> None:
    beginning = BPE.beginning(text * 200, most)
    assert len(beginning) <= max(4 * most * len("<|im_start|>"), 1)
    assert BPE.encode(beginning)[:most] == BPE.encode(text * 200)[:most]


def test_a_text_that_is_short_or_whose_tokens_have_no_bound_is_its_own_beginning() -> None:
    assert BPE.beginning("hello", 100) == "hello"
    assert BERT.beginning("hello " * 1_000, 2) == "hello " * 1_000
