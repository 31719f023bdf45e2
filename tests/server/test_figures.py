"""Figures: stats, metrics and benchmarks report real counts and times, with a real model."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.server.conftest import HELLO, Live, Start, real_server
from tests.server.raw import Raw
from tests.server.stand_in import until
from woolly import system
from woolly.bench import live as measuring

DATA = Path(__file__).resolve().parents[1] / "data"
STATS, BENCHMARK = "/api/v1/performance/stats", "/api/v1/performance/benchmark"


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A server with a model of its own, whose pages are few."""
    with real_server(tmp_path_factory, "small", context=256, limits={"request_timeout": 20.0}) as live:
        yield live


def stats(live: Live) -> Any:
    return live.ask("GET", STATS)[2]


def complete(live: Live, prompt: str, tokens: int = 3) -> Any:
    body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "model": "small"}
    status, _, answer = live.ask("POST", "/api/v1/inference/complete", body)
    assert status == 200, answer
    return answer


def metrics(live: Live, path: str = "/metrics", **headers: str) -> dict[str, dict[tuple[str, ...], float]]:
    """Every sample by its name and the values of its labels."""
    status, answer, body = live.ask("GET", path, headers=headers)
    assert (status, answer["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    families: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(body.decode()):
        assert family.documentation
        for sample in family.samples:
            families.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return families


def test_stats_equal_what_a_test_counts_itself(real: Live) -> None:
    before = stats(real)["prefix_cache"]
    first, second = complete(real, "the and " * 60), complete(real, "the and " * 60, 30)
    measured = stats(real)
    cache = measured["prefix_cache"]
    used = [answer["usage"] for answer in (first, second)]
    assert cache["prompt_tokens"] - before["prompt_tokens"] == sum(usage["prompt_tokens"] for usage in used)
    hits = sum(usage["prompt_tokens_details"]["cached_tokens"] for usage in used)
    assert cache["hit_tokens"] - before["hit_tokens"] == hits > 0
    model = real.app.models.loaded[0].model
    info = model.info
    assert 0 < cache["pages_used"] <= cache["pages_total"] == info.pool * 4 // info.cache
    assert measured["kv_bytes_per_token"] * 256 == info.cache
    assert measured["weights"] == {
        "file_bytes": model.card.path.stat().st_size,
        "packed_bytes": info.weights,
        "dequantized_bytes": 0,
    }
    complete(real, "the", 1)  # steps are counted after their events: now those of earlier requests are
    measured, counted = stats(real), metrics(real)
    steps, seconds = (counted[f"woolly:decode_{what}_total"][("small",)] for what in ("steps", "seconds"))
    # One sequence alone: a step reads the weights once and brings one token and the accepted ones of its draft.
    accepted = counted["woolly:spec_decode_num_accepted_tokens_total"][("small",)]
    assert measured["average_tokens_per_second"] * seconds == pytest.approx(steps + accepted)
    assert measured["bandwidth_gb_s"] * 1e9 * seconds == pytest.approx(info.read_bytes_per_token * steps)
    assert measured["inter_token_ms"]["p50"] > 0
    assert measured["memory_usage_mb"] == pytest.approx(system.usage().current / 1e6, rel=0.1)


def test_pages_that_had_to_be_forgotten_are_counted(real: Live) -> None:
    complete(real, "one")
    before = stats(real)["prefix_cache"]
    for number in range(before["pages_total"]):
        complete(real, f"{number} " * 70)
    assert stats(real)["prefix_cache"]["evictions"] >= before["evictions"] + 4


def test_metrics_have_the_names_of_llama_server_too(real: Live) -> None:
    before = metrics(real)
    usage = complete(real, "one two three four", 5)["usage"]
    after = metrics(real)
    grown = {
        name: after[f"llamacpp:{name}"][()] - before[f"llamacpp:{name}"][()]
        for name in (
            *("prompt_tokens_total", "prompt_seconds_total", "tokens_predicted_total"),
            *("tokens_predicted_seconds_total", "n_decode_total"),
        )
    }
    computed = usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"]
    assert (grown["prompt_tokens_total"], grown["tokens_predicted_total"]) == (computed, usage["completion_tokens"])
    assert all(value > 0 for value in grown.values())
    assert after["llamacpp:n_tokens_max"][()] >= usage["total_tokens"]
    assert after["llamacpp:n_busy_slots_per_decode"][()] >= 1
    assert after["llamacpp:requests_processing"][()] == after["llamacpp:requests_deferred"][()] == 0
    for what in ("prompt_tokens", "predicted_tokens"):
        assert after[f"llamacpp:{what}_seconds"][()] > 0


def test_metrics_are_counters_under_the_names_of_vllm(real: Live) -> None:
    before = metrics(real)
    usage = complete(real, "one two three", 5)["usage"]
    after = metrics(real)

    def grown(name: str, *labels: str) -> float:
        return after[name][labels] - before.get(name, {}).get(labels, 0)

    assert grown("woolly:prompt_tokens_total", "small") == usage["prompt_tokens"]
    assert grown("woolly:prefix_cache_queries_total", "small") == usage["prompt_tokens"]
    assert grown("woolly:prefix_cache_hits_total", "small") == usage["prompt_tokens_details"]["cached_tokens"]
    assert grown("woolly:generation_tokens_total", "small") == usage["completion_tokens"]
    assert (
        sum(after["woolly:request_success_total"].values())
        - sum(before.get("woolly:request_success_total", {}).values())
        == 1
    )
    assert grown("woolly:time_to_first_token_seconds_count", "small") == 1
    assert grown("woolly:e2e_request_latency_seconds_count", "small") == 1
    assert grown("woolly:e2e_request_latency_seconds_sum", "small") > grown(
        "woolly:time_to_first_token_seconds_sum", "small"
    )
    assert grown("woolly:inter_token_latency_seconds_count", "small") == usage["completion_tokens"] - 1
    assert after["woolly:num_requests_running"] == after["woolly:num_requests_waiting"] == {("small",): 0}
    assert after["woolly:kv_cache_usage_perc"] == {("small",): 0}
    assert grown("woolly:http_responses_total", "200") >= 2
    assert after["process_resident_memory_bytes"][()] > 1e6
    assert after["woolly:exact"] == {("small",): 0}


def test_an_exact_model_is_told_as_one(tmp_path_factory: pytest.TempPathFactory) -> None:
    with real_server(tmp_path_factory, "small", context=256, limits={}, exact=True) as live:
        complete(live, "one")
        assert metrics(live)["woolly:exact"] == {("small",): 1}
        assert {"kv:f32", "exact"} < set(stats(live)["optimizations_enabled"])


@pytest.mark.parametrize("name", ["inter_token_latency", "time_to_first_token", "request_queue_time"])
def test_a_histogram_counts_everything_up_to_each_border(real: Live, name: str) -> None:
    complete(real, "one two", 8)
    families = metrics(real)
    rows = [value for _, value in families[f"woolly:{name}_seconds_bucket"].items()]
    assert rows == sorted(rows)
    assert rows[-1] == families[f"woolly:{name}_seconds_count"]["small",] > 0


def test_counters_do_not_fall_when_a_model_is_unloaded_and_loaded_again(real: Live) -> None:
    complete(real, "one two", 8)
    before = metrics(real)
    assert real.ask("POST", "/api/v1/models/small/unload", {})[0] == 200
    without = metrics(real)
    complete(real, "one two", 8)
    after = metrics(real)
    for name in ("woolly:inter_token_latency_seconds_count", "woolly:generation_tokens_total"):
        assert before[name]["small",] == without[name]["small",] < after[name]["small",]
    assert "woolly:num_requests_running" not in without


def test_the_two_routes_of_the_metrics_speak_both_ways(real: Live) -> None:
    assert set(metrics(real, "/api/v1/metrics", Accept="text/plain")) >= {"woolly:build_info"}
    figures = real.ask("GET", "/api/v1/metrics")[2]
    assert set(real.ask("GET", "/metrics", headers={"Accept": "application/json"})[2]) == set(figures)


def test_s14_metrics_tell_nothing_of_what_was_said(real: Live) -> None:
    complete(real, "marker-of-a-prompt")
    assert b"marker" not in real.ask("GET", "/metrics")[2]


def test_what_runs_and_waits_is_told_while_it_does(start: Start) -> None:
    live = start(step_s=0.02)
    body = {"messages": HELLO, "max_tokens": 500}
    raws = [Raw(live.port).post("/v1/chat/completions", body | {"stream": True}) for _ in range(6)]
    assert until(
        lambda: (
            metrics(live).get("woolly:num_requests_running") == {("beta",): 4}
            and metrics(live)["woolly:num_requests_waiting"] == {("beta",): 2}
        )
    )
    assert metrics(live)["woolly:kv_cache_usage_perc"]["beta",] > 0
    for raw in raws:
        raw.close()
    assert until(lambda: metrics(live)["woolly:num_requests_running"] == {("beta",): 0})


# Benchmarks


def test_ole_can_ask_for_every_benchmark(real: Live) -> None:
    steps = json.loads((DATA / "ole_conversation.json").read_text("utf-8"))["steps"]
    (step,) = [step for step in steps if step["id"] == "Q2"]
    for change in ({}, *step["repeat_as"]):
        body = (step["request"] | change)["body"]
        runs = [real.ask("POST", BENCHMARK, body) for _ in range(2)]
        assert [status for status, _, _ in runs] == [200, 200]
        assert runs[0][2]["total_time_ms"] != runs[1][2]["total_time_ms"]


@pytest.mark.parametrize("name", measuring.TESTS)
def test_a_benchmark_gives_figures_that_agree(real: Live, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "BASELINE_S", 0.2)
    status, _, answer = real.ask("POST", BENCHMARK, {"test_type": name, "iterations": 8})
    assert status == 200, answer
    assert (answer["test_type"], answer["iterations"]) == (name, 8)
    assert answer["total_time_ms"] / 8 == pytest.approx(answer["average_time_ms"], rel=0.01)
    assert answer["tokens_per_second"] == pytest.approx(8000 / answer["total_time_ms"], rel=0.01)
    assert (answer["speedup_vs_baseline"] is None) == (answer["baseline"] is None)
    listed = real.ask("GET", BENCHMARK)[2]
    assert listed["results"][name] == answer
    assert listed["test_types"] == list(measuring.TESTS)
    assert not listed["running"]


def test_an_unknown_benchmark_is_refused_with_the_known_ones(real: Live) -> None:
    status, _, answer = real.ask("POST", BENCHMARK, {"test_type": "nonsense"})
    details = answer["error"]["details"]
    assert (status, answer["error"]["type"], details["error_code"]) == (
        400,
        "validation_error",
        "INVALID_BENCHMARK_TYPE",
    )
    assert details["valid"] == list(measuring.TESTS)
    for body in ({}, {"test_type": "token_generation", "iterations": 0}, {"test_type": 1}):
        assert real.ask("POST", BENCHMARK, body)[0] == 400


def test_one_benchmark_runs_at_a_time_and_ends_with_its_client(real: Live) -> None:
    body = {"test_type": "memory_allocation", "iterations": 10_000}
    raw = Raw(real.port).post(BENCHMARK, body)
    assert until(lambda: real.ask("GET", BENCHMARK)[2]["running"])
    status, _, answer = real.ask("POST", BENCHMARK, body)
    assert (status, answer["error"]["type"]) == (409, "conflict")
    assert complete(real, "beside it")["usage"]["completion_tokens"] > 0
    raw.close()
    assert until(lambda: not real.ask("GET", BENCHMARK)[2]["running"])
    assert real.ask("POST", BENCHMARK, body | {"iterations": 1})[0] == 200


def test_a_benchmark_ends_when_a_request_has_no_more_time(real: Live) -> None:
    body = {"test_type": "memory_allocation", "iterations": 10_000}
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(real.ask, "POST", BENCHMARK, body)
        assert until(lambda: real.ask("GET", BENCHMARK)[2]["running"])
        real.forward(real.app.settings.limits.request_timeout)
        status, _, answer = asked.result()
    assert (status, answer["error"]["type"]) == (504, "timeout")


def test_a_model_that_is_unloaded_ends_its_benchmark(real: Live) -> None:
    complete(real, "one")
    answers: list[Any] = []
    body = {"test_type": "token_generation", "iterations": 10_000}
    asking = threading.Thread(target=lambda: answers.append(real.ask("POST", BENCHMARK, body)))
    asking.start()
    assert until(lambda: real.ask("GET", BENCHMARK)[2]["running"])
    assert real.ask("POST", "/api/v1/models/small/unload", {})[0] == 409  # the model is busy
    assert real.ask("POST", "/api/v1/models/small/unload", {"force": True})[0] == 200
    asking.join()
    assert answers[0][0] == 503
    assert complete(real, "one")["usage"]["completion_tokens"] > 0


def test_metrics_of_many_requests_are_no_longer_than_those_of_one(real: Live) -> None:
    complete(real, "one")
    before = metrics(real)
    for number in range(20):
        complete(real, f"one more {number}")
    assert {name: len(samples) for name, samples in metrics(real).items()} == {
        name: len(samples) for name, samples in before.items()
    }


@pytest.mark.soak
def test_asking_for_metrics_is_cheap(real: Live) -> None:
    from woolly.server.metrics.prometheus import Metering, text

    complete(real, "one")
    metering = Metering(real.app.state, real.app.models, real.app.counts)
    begun = time.thread_time()
    for _ in range(20):
        page = text(metering)
    assert (time.thread_time() - begun) / 20 < 0.05  # 1 to 2 ms on a calm machine
    assert re.search(rb'^woolly:prompt_tokens_total\{model_name="small"\} \d', page, re.MULTILINE)
