"""Embeddings and rankings by the library: golden ones, company, cutting, refusals."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.families import FAMILY_CASES
from tests.golden import Case, every_pooled_case
from tests.text.small import bert, bpe
from tests.tiny import tiny
from woolly import LLM, gguf, model, plan
from woolly.device.cpu import TARGET
from woolly.engine import Adapters, Sequence, Stream
from woolly.errors import ContextError, RequestError, UnsupportedError
from woolly.io.cancellation import AbandonedError, Cancellation
from woolly.llm.encoder import Encoder
from woolly.model import Reference
from woolly.text import Tokenizer


def rows_of(llm: LLM, ids: list[int]) -> NDArray[np.float32]:
    """What the model gives for these ids, as it is."""
    encoder = llm.encoder
    return encoder.submit(tuple(ids)).wait()


@every_pooled_case
def test_a_golden_encoder_gives_its_embedding(case: Case) -> None:
    with LLM(case.file, kv="f32", context=case.context) as llm:
        rows = rows_of(llm, case.tokens.tolist()).astype(np.float64)
        golden = case.golden["embeddings"].astype(np.float64)
        assert rows.shape == golden.shape
        if case.pooling == "rank":
            assert np.abs(rows - golden).max() <= 1e-5
            return
        lengths = np.sqrt((rows**2).sum(-1) * (golden**2).sum(-1))
        assert (1.0 - (rows * golden).sum(-1) / lengths).max() <= 1e-9
        [embedding] = llm.embed([case.tokens.tolist()])
        unit = golden / np.sqrt((golden**2).sum(-1, keepdims=True))
        assert np.abs(embedding - unit).max() <= 1e-5


def bert_model(name: str, path: Path) -> Path:
    """A small encoder with the vocabulary of word pieces of the tests."""
    case = next(case for case in FAMILY_CASES if case.name == name)
    words = bert()
    count = len(words["tokenizer.ggml.tokens"])
    keys = {"general.architecture": case.family, **case.keys, **words}
    tensors = {n: ("F32", tuple(shape), case.values(n).tobytes()) for n, shape in case.tensors.items()}
    embedding = case.values("token_embd.weight")[np.arange(count) % case.vocab]
    tensors["token_embd.weight"] = ("F32", embedding.shape, embedding.tobytes())
    gguf.write(path, keys, tensors)
    return path


TEXTS = ["hello", "hello world", "ab hello", "world ! hello", "a"] * 9


@pytest.fixture
def encoder(tmp_path: Path) -> LLM:
    with LLM(bert_model("bert", tmp_path / "bert.gguf"), threads=2) as llm:
        yield llm


def test_embeddings_have_length_1_and_the_order_of_the_texts_whatever_their_company(encoder: LLM) -> None:
    many = encoder.embed(TEXTS)
    assert isinstance(many, np.ndarray) and many.shape == (45, 32) and many.dtype == np.float32
    assert np.abs((many**2).sum(-1) - 1.0).max() < 1e-6
    for index, text in enumerate(TEXTS[:5]):
        assert np.array_equal(encoder.embed(text)[0], many[index])
    assert np.array_equal(encoder.embed(TEXTS[::-1]), many[::-1])
    assert encoder.embed([]).shape == (0, 32)


def test_short_texts_share_steps(encoder: LLM) -> None:
    encoder.embed(TEXTS)
    tally = encoder.figures().tally
    assert tally.steps < len(TEXTS) / 4 and tally.most_sequences > 8


def test_ids_are_taken_as_they_are(encoder: LLM) -> None:
    ids = encoder.tokenize("hello world")
    assert np.array_equal(encoder.embed([ids]), encoder.embed("hello world"))
    assert not np.array_equal(encoder.embed([ids[1:-1]]), encoder.embed("hello world"))


def test_the_first_dimensions_are_made_unit_length_again(encoder: LLM) -> None:
    full, plain = encoder.embed("hello", normalize=False), encoder.embed("hello", normalize=False, dimensions=8)
    assert np.array_equal(plain, full[:, :8])
    assert np.allclose(encoder.embed("hello", dimensions=8), plain / np.sqrt((plain**2).sum()))
    with pytest.raises(RequestError, match=r"dimensions is 33, but an embedding of .* has 32 numbers"):
        encoder.embed("hello", dimensions=33)


def test_a_text_over_the_context_is_refused_with_both_numbers_or_cut(encoder: LLM) -> None:
    long = "hello " * 70
    with pytest.raises(ContextError, match="the prompt has 72 tokens, which exceeds the available context size of 64"):
        encoder.embed(["a", long])
    ids = encoder.tokenize(long)
    cut = encoder.embed([long], truncate=True)
    assert np.array_equal(cut, encoder.embed([[*ids[:63], ids[-1]]]))  # the end of a text stays
    with pytest.raises(ContextError, match="65 tokens"):
        encoder.embed([[5] * 65])
    assert encoder.embed([[5] * 65], truncate=True).shape == (1, 32)


@pytest.mark.parametrize(
    ("inputs", "wrong"),
    [
        ([[]], r"input\[0\] has no tokens"),
        (["a", [3, 10**6]], r"input\[1\]\[1\] is token 1000000"),
        ([[3, -1]], "must be between"),
        (["a", 5], r"input\[1\] is a list, not int"),
        ({"a": 1}, "input is a list, not dict"),
    ],
)
def test_what_is_no_text_is_refused_by_its_place(encoder: LLM, inputs: object, wrong: str) -> None:
    with pytest.raises(RequestError, match=wrong):
        encoder.embed(inputs)


def test_a_model_that_pools_nothing_gives_a_row_for_each_token(tmp_path: Path) -> None:
    with LLM(bert_model("bert_none", tmp_path / "a.gguf")) as llm:
        rows = llm.embed(["hello world", "a"])
        assert isinstance(rows, list)
        assert [row.shape for row in rows] == [(len(llm.tokenize("hello world")), 32), (3, 32)]


def test_a_reranker_scores_each_document_alone(tmp_path: Path) -> None:
    documents = ["hello world", "ab !", "world", "a hello"]
    with LLM(bert_model("bert_rank", tmp_path / "a.gguf")) as llm:
        scores = llm.rerank("hello", documents)
        assert scores.dtype == np.float32 and ((scores > 0) & (scores < 1)).all() and len(set(scores.tolist())) == 4
        assert np.array_equal(llm.rerank("hello", documents[::-1]), scores[::-1])
        ids = [*llm.tokenize("hello"), *llm.tokenize("world")[1:]]  # [CLS] query [SEP] document [SEP]
        assert scores[2] == np.float32(1 / (1 + np.exp(-float(rows_of(llm, ids)[0, 0]))))
        assert llm.rerank("hello", []).shape == (0,)
        with pytest.raises(UnsupportedError, match="scores documents; it cannot embed; use rerank"):
            llm.embed(["hello"])


def test_an_encoder_is_refused_where_it_is_asked_to_generate_or_to_rank(encoder: LLM) -> None:
    for ask in (lambda: encoder.generate("hello"), lambda: encoder.chat([{"role": "user", "content": "hello"}])):
        with pytest.raises(UnsupportedError, match="makes embeddings of texts; it cannot generate or chat; use embed"):
            ask()
    with pytest.raises(UnsupportedError, match="use embed"):
        encoder.logits([1, 2])
    with pytest.raises(UnsupportedError, match="cannot rerank"):
        encoder.rerank("a", ["b"])


def test_the_embedding_of_a_model_that_continues_texts_is_what_its_head_sees_after_the_last_token(
    tmp_path: Path,
) -> None:
    path = tiny(tmp_path / "chat.gguf")
    texts = [list(range(1, length)) for length in (2, 5, 60, 5, 200)]
    with LLM(path, context=256, batch=64) as llm:  # the longest takes several steps
        embeddings = llm.embed(texts, normalize=False)
        answering = llm.stream([1, 2, 3], max_tokens=100, temperature=0)  # steps with answers and texts
        assert np.array_equal(llm.embed(texts, normalize=False), embeddings)
        answering.cancel()
        assert np.abs((llm.embed(texts) ** 2).sum(-1) - 1.0).max() < 1e-6
        with pytest.raises(UnsupportedError, match="continues texts; it cannot rerank"):
            llm.rerank("a", ["b"])
    with gguf.open(path) as file:
        graph = plan.optimise(model.build(file, 256), TARGET, kv="f16")
        for ids, row in zip(texts, embeddings, strict=True):
            outputs = Reference(graph, file).outputs(np.array(ids), [[0, len(ids), 0]], [len(ids) - 1])
            assert np.array_equal(row, outputs["embedding"][0])


class Unused:
    """An engine that computes nothing."""

    def add(self, sequence: Sequence) -> Stream:
        raise AssertionError


@dataclass
class Cut:
    """An encoder of a ranker with a context of 16 tokens, and the texts that it cuts into tokens."""

    encoder: Encoder
    texts: list[str]
    at: Callable[[], None] = lambda: None  # called at each text


@pytest.fixture
def cut(monkeypatch: pytest.MonkeyPatch) -> Cut:
    tokenizer = Tokenizer(bpe())
    encode = tokenizer._codec.encode
    ranker = Encoder(Unused(), tokenizer, Adapters([], []), "ranker", "rank", 1, False, (), 16, tokenizer.vocab, 8)
    cut = Cut(ranker, [])

    def noted(texts: Iterable[str]) -> list[list[int]]:
        cut.texts += texts
        cut.at()
        return encode([*texts])

    monkeypatch.setattr(tokenizer, "_codec", replace(tokenizer._codec, encode=noted))
    return cut


LONG = "hello " * 10_000


def test_a_query_or_document_that_is_too_long_whatever_its_tokens_are_is_refused_before_it_is_cut(cut: Cut) -> None:
    for query, documents in ((LONG, ["a"]), ("a", [LONG]), ("hello" * 20, ["hello" * 20])):
        cut.texts.clear()
        with pytest.raises(
            ContextError, match=r"at least [\d,]+ tokens, which exceeds the available context size of 16"
        ):
            cut.encoder.pairs(query, documents, truncate=False)
        assert max(map(len, cut.texts), default=0) <= 100


def test_of_a_long_text_that_is_to_be_cut_only_the_beginning_is_cut_into_tokens(cut: Cut) -> None:
    pairs = cut.encoder.pairs(LONG, [LONG] * 3, truncate=True)
    assert pairs == [tuple(cut.encoder.tokenizer.encode(LONG)[:16])] * 3  # type: ignore[union-attr]
    assert sum(map(len, cut.texts[:-1])) < len(LONG) / 10


def test_l20_no_more_documents_are_cut_into_tokens_for_a_caller_that_has_gone(cut: Cut) -> None:
    cancellation = Cancellation()
    cut.at = lambda: cancellation.cancel() if len(cut.texts) == 4 else None
    with pytest.raises(AbandonedError):
        cancellation.run(lambda: cut.encoder.pairs("the", ["a"] * 1_000, truncate=False))
    assert len(cut.texts) == 4
