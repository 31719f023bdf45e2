"""Embeddings and rankings over HTTP: OpenAI's client, the other shapes, refusals; real small models."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.end.test_embed import bert_model
from tests.server.background import Background
from tests.server.conftest import Live
from tests.server.stand_in import TalkerLoader
from tests.tiny import tiny
from woolly.config import read_config
from woolly.server import App, Settings

CAT, DOG = "hello world", "ab ! hello"


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    home, models = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("models")
    for name, case in (("encoder", "bert"), ("ranker", "bert_rank"), ("rows", "bert_none")):
        bert_model(case, models / f"{name}.gguf")
    tiny(models / "talker.gguf")
    config = read_config({"HOME": str(home), "WOOLLY_MODELS_DIR": str(models)}, threads=1)
    config = dataclasses.replace(config, folders=(models,), hub=home / "hub")
    app = App(Settings(ports=(0,), log_level="error", default_model="encoder"), config)
    with Background(app) as background:
        yield Live(app, TalkerLoader(), background)


def embed(live: Live, input: object, **fields: object) -> tuple[int, Any]:
    status, _, body = live.ask("POST", "/v1/embeddings", {"model": "encoder", "input": input} | fields)
    return status, body


def rows(live: Live, input: object, **fields: object) -> list[Any]:
    status, body = embed(live, input, **fields)
    assert status == 200, body
    assert [row["index"] for row in body["data"]] == list(range(len(body["data"])))
    return [row["embedding"] for row in body["data"]]


def test_texts_have_embeddings_of_length_1_in_their_order_to_the_bit(live: Live) -> None:
    one, other = rows(live, CAT)[0], rows(live, DOG)[0]
    assert len(one) == 32 and abs(np.square(one).sum() - 1) < 1e-6
    assert rows(live, [CAT, DOG, CAT]) == [one, other, one]
    status, body = embed(live, [CAT, DOG])
    alone = sum(embed(live, text)[1]["usage"]["prompt_tokens"] for text in (CAT, DOG))
    assert (status, body["object"], body["model"]) == (200, "list", "encoder")
    assert body["usage"] == {"prompt_tokens": alone, "total_tokens": alone}


def test_base64_holds_the_same_numbers_and_ids_are_taken_as_they_are(live: Live) -> None:
    [packed] = rows(live, CAT, encoding_format="base64")
    plain = np.array(rows(live, CAT)[0], np.float32)
    assert np.frombuffer(base64.b64decode(packed), "<f4").tobytes() == plain.tobytes()
    ids = live.ask("POST", "/api/tokenize", {"text": CAT})[2]["tokens"]
    assert rows(live, ids) == [rows(live, [ids, ids[:1]])[0]]
    assert embed(live, [ids, ids[:1]])[1]["usage"]["prompt_tokens"] == len(ids) + 1


def test_a_model_that_chats_embeds_too_in_openais_and_in_ollamas_words(live: Live) -> None:
    vectors = rows(live, [CAT, DOG], model="talker")
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-6) and vectors[0] != vectors[1]
    assert live.ask("POST", "/api/embed", {"model": "talker", "input": [CAT, DOG]})[2]["embeddings"] == vectors


def test_texts_and_ids_may_be_mixed_in_one_input_and_among_inputs(live: Live) -> None:
    def tokens(text: str) -> list[int]:
        body = {"model": "encoder", "content": text}
        return list(live.ask("POST", "/tokenize", body)[2]["tokens"])

    ids, head, rest = map(tokens, (DOG, "ab", " ! hello"))
    assert ids == [*head, *rest]
    assert rows(live, [*head, " ! hello"]) == rows(live, [ids])
    assert rows(live, [CAT, ids, [*head, " ! hello"]]) == [*rows(live, CAT), *rows(live, ids) * 2]


@pytest.mark.parametrize("path", ["/embedding", "/embeddings"])
def test_llama_server_lists_a_row_for_each_text_and_the_rows_of_its_tokens_where_nothing_is_pooled(
    live: Live, path: str
) -> None:
    one, other = rows(live, [CAT, DOG])
    for fields in ({"content": [CAT, DOG]}, {"input": [CAT, DOG]}):
        answer = live.ask("POST", path, {"model": "encoder"} | fields)[2]
        assert answer == [{"index": 0, "embedding": [one]}, {"index": 1, "embedding": [other]}]
    [[raw]] = [
        row["embedding"]
        for row in live.ask("POST", path, {"model": "encoder", "content": CAT, "embd_normalize": -1})[2]
    ]
    assert np.allclose(np.array(raw) / np.linalg.norm(raw), one, atol=1e-6) and raw != one
    tokens = embed(live, CAT)[1]["usage"]["prompt_tokens"]
    assert len(live.ask("POST", path, {"model": "rows", "content": CAT})[2][0]["embedding"]) == tokens
    for wrong, param in (({}, "content"), ({"content": []}, "input"), ({"content": CAT, "embd_normalize": 3}, "embd")):
        status, _, answer = live.ask("POST", path, {"model": "encoder"} | wrong)
        assert (status, answer["error"]["type"], param in answer["error"]["message"]) == (
            *(400, "invalid_request_error"),
            True,
        )


def test_the_first_dimensions_have_length_1_again(live: Live) -> None:
    full, cut = np.array(rows(live, CAT)[0]), np.array(rows(live, CAT, dimensions=8)[0])
    assert np.allclose(cut, full[:8] / np.linalg.norm(full[:8]), atol=1e-6)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"input": []}, "input"),
        ({"input": ""}, "input"),
        ({"input": [CAT, ""]}, "input[1]"),
        ({"input": [5, [6]]}, "input"),
        ({"input": [CAT, 10**9]}, "input[0]"),
        ({"input": [[10**9]]}, "input[0]"),
        ({"input": [CAT] * 2049}, "input"),
        ({"input": CAT, "encoding_format": "hex"}, "encoding_format"),
        ({"input": CAT, "dimensions": 10**6}, "dimensions"),
        ({"input": CAT, "dimensions": 0}, "dimensions"),
        ({"input": CAT, "model": "rows"}, "model"),
        ({"input": CAT, "model": "ranker"}, "model"),
    ],
)
def test_what_cannot_be_embedded_is_refused_by_its_field(live: Live, body: dict[str, Any], param: str) -> None:
    status, answer = embed(live, **body)
    assert (status, answer["error"]["param"]) == (400, param)


def test_a_text_over_the_context_is_refused_with_both_numbers_or_cut(live: Live) -> None:
    status, answer = embed(live, "hello " * 70)
    assert (status, answer["error"]["code"]) == (400, "context_length_exceeded")
    assert "72 tokens, which exceeds the available context size of 64" in answer["error"]["message"]
    assert len(rows(live, "hello " * 70, truncate=True)) == 1


def test_an_encoder_asked_for_an_answer_is_refused_by_every_route(live: Live) -> None:
    hello = [{"role": "user", "content": "hello"}]
    for path, body in (
        ("/v1/chat/completions", {"messages": hello}),
        ("/v1/completions", {"prompt": "hello"}),
        ("/api/v1/inference/complete", {"prompt": "hello"}),
        ("/v1/messages", {"messages": hello, "max_tokens": 5}),
        ("/v1/chat/completions", {"messages": hello, "stream": True}),
        ("/v1/completions", {"prompt": ["one", "two"]}),
    ):
        status, _, answer = live.ask("POST", path, {"model": "encoder"} | body)
        assert status == 400 and "use POST /v1/embeddings" in str(answer), path


def test_the_older_documents_have_embeddings_too(live: Live) -> None:
    status, _, body = live.ask("POST", "/api/embeddings", {"model": "encoder", "input": [CAT, DOG]})
    assert (status, body["dimensions"], body["model"]) == (200, 32, "encoder")
    assert body["embeddings"] == rows(live, [CAT, DOG])


def test_ollamas_routes_give_the_same_numbers(live: Live) -> None:
    status, _, body = live.ask("POST", "/api/embed", {"model": "encoder:latest", "input": [CAT, DOG]})
    assert (status, body["model"], body["embeddings"]) == (200, "encoder:latest", rows(live, [CAT, DOG]))
    assert body["prompt_eval_count"] > 4 and body["total_duration"] > 0
    assert live.ask("POST", "/api/embed", {"model": "encoder", "input": []})[2]["embeddings"] == []
    assert live.ask("POST", "/api/embed", {"model": "encoder", "input": "hello " * 70})[0] == 200
    assert live.ask("POST", "/api/embed", {"model": "encoder", "input": "hello " * 70, "truncate": False})[0] == 400
    plain = np.array(live.ask("POST", "/api/embeddings", {"model": "encoder", "prompt": CAT})[2]["embedding"])
    assert np.allclose(plain / np.linalg.norm(plain), rows(live, CAT)[0], atol=1e-6)
    assert live.ask("POST", "/api/embeddings", {"model": "encoder", "prompt": ""})[2] == {"embedding": []}


DOCUMENTS = ["hello world", "ab !", "world", "a hello"]


def rerank(live: Live, path: str = "/v1/rerank", **fields: object) -> tuple[int, Any]:
    asked = {"model": "ranker", "query": "hello", "documents": DOCUMENTS} | fields
    status, _, body = live.ask("POST", path, {name: value for name, value in asked.items() if value is not None})
    return status, body


def test_documents_come_the_best_first_whatever_their_order(live: Live) -> None:
    status, body = rerank(live)
    assert (status, body["object"], body["model"]) == (200, "list", "ranker")
    scores = [row["relevance_score"] for row in body["results"]]
    assert scores == sorted(scores, reverse=True) and all(0 <= score <= 1 for score in scores)
    order = [row["index"] for row in body["results"]]
    assert sorted(order) == [0, 1, 2, 3] and body["usage"]["total_tokens"] > 12
    mirrored = rerank(live, documents=DOCUMENTS[::-1])[1]["results"]
    assert [3 - row["index"] for row in mirrored] == order
    assert rerank(live, top_n=1)[1]["results"] == body["results"][:1]
    for path in ("/rerank", "/reranking", "/v1/reranking", "/v2/rerank"):
        assert rerank(live, path)[1]["results"] == body["results"]
    [best] = rerank(live, top_n=1, return_documents=True, documents=[{"text": text} for text in DOCUMENTS])[1][
        "results"
    ]
    assert best["document"] == {"text": DOCUMENTS[order[0]]}


@pytest.mark.parametrize("path", ["/rerank", "/v1/rerank", "/reranking", "/v1/reranking", "/v2/rerank"])
def test_texts_in_place_of_documents_are_ranked_as_a_bare_list(live: Live, path: str) -> None:
    wanted = [{"index": row["index"], "score": row["relevance_score"]} for row in rerank(live)[1]["results"]]
    assert rerank(live, path, documents=None, texts=DOCUMENTS) == (200, wanted)
    [best] = rerank(live, path, documents=None, texts=DOCUMENTS, return_text=True, top_n=1)[1]
    assert best == wanted[0] | {"text": DOCUMENTS[wanted[0]["index"]]}


@pytest.mark.parametrize(
    "fields",
    [
        {"documents": None},
        {"texts": []},
        {"texts": ["x"], "raw_scores": True},
        {"query": None},
        {"documents": []},
        {"query": 5},
        {"query": ""},
        {"top_n": -1},
        {"documents": [5]},
        {"model": "encoder"},
        {"model": "talker"},
    ],
)
def test_what_cannot_be_ranked_is_refused(live: Live, fields: dict[str, Any]) -> None:
    assert rerank(live, **fields)[0] == 400


def test_a_record_says_what_a_model_is_for(live: Live) -> None:
    records = {row["id"]: row["capabilities"] for row in live.ask("GET", "/api/v1/models")[2]}
    assert records["encoder"] == ["embedding"] and records["ranker"] == ["rerank"] and "completion" in records["talker"]


def test_openais_own_client_decodes_what_it_asks_for_sync_and_async(live: Live) -> None:
    openai = pytest.importorskip("openai", reason="OpenAI's client is not installed")
    url = f"http://127.0.0.1:{live.port}/v1"
    expected = np.array(rows(live, [CAT, DOG]), np.float32)
    with openai.OpenAI(base_url=url, api_key="none", max_retries=0) as client:
        for form in ("float", "base64"):
            answer = client.embeddings.create(model="encoder", input=[CAT, DOG], encoding_format=form)
            assert answer.usage.total_tokens > 4
        reply = client.embeddings.create(model="encoder", input=[CAT, DOG])  # base64, which the client decodes
        assert np.array_equal(np.array([row.embedding for row in reply.data], np.float32), expected)
        with pytest.raises(openai.BadRequestError, match="input is a text"):
            client.embeddings.create(model="encoder", input=[])

    async def many() -> list[Any]:
        async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:
            asked = (client.embeddings.create(model="encoder", input=text) for text in (CAT, DOG) * 8)
            return [answer.data[0].embedding for answer in await asyncio.gather(*asked)]

    assert np.array_equal(np.array(asyncio.run(many()), np.float32), np.tile(expected, (8, 1)))
