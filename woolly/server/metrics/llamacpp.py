"""The same figures under llama-server's names, so that its dashboards go on; of all models together: it has one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from woolly.server.models.counts import Counts
from woolly.server.models.lifecycle import Models

if TYPE_CHECKING:
    from prometheus_client.core import Metric


def metrics(models: Models, counts: Counts) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily as Counter
    from prometheus_client.core import GaugeMetricFamily as Gauge

    of_models, tallies = counts.models.values(), models.tallies().values()
    prompt_tokens = sum(one.prompt_tokens - one.cached_tokens for one in of_models)
    tokens = sum(one.completion_tokens for one in of_models)
    prompt_s, answer_s = (sum(getattr(one, name) for one in of_models) for name in ("prompt_s", "answer_s"))
    steps, rows = (sum(getattr(one, name) for one in tallies) for name in ("steps", "sequences"))
    longest = max((one.longest for one in of_models), default=0)
    running, waiting = (sum(getattr(m.admission, name) for m in models.loaded) for name in ("busy", "waiting"))
    drafted, accepted = (sum(getattr(one, name) for one in tallies) for name in ("drafted", "accepted"))
    for name, what, value in (
        ("prompt_tokens", "Tokens of prompts that were computed.", prompt_tokens),
        ("prompt_seconds", "Seconds of prompts, from their first step to the first token.", prompt_s),
        ("tokens_predicted", "Tokens of answers.", tokens),
        ("tokens_predicted_seconds", "Seconds of answers, from their first token to the end.", answer_s),
        ("n_decode", "Steps.", steps),
        ("spec_decode_num_draft_tokens", "Tokens of answers that were guessed ahead.", drafted),
        ("spec_decode_num_accepted_tokens", "Those of them that were right.", accepted),
    ):
        yield Counter(f"llamacpp:{name}", what, value=value)
    for name, what, value in (
        ("prompt_tokens_seconds", "Tokens of prompts a second.", prompt_tokens / prompt_s if prompt_s else 0.0),
        ("predicted_tokens_seconds", "Tokens of answers a second.", tokens / answer_s if answer_s else 0.0),
        ("n_tokens_max", "The most tokens that a prompt and its answer have had.", longest),
        ("requests_processing", "Requests that are with the engine.", running),
        ("requests_deferred", "Requests that wait in line.", waiting),
        ("n_busy_slots_per_decode", "Answers and prompts of a step, on average.", rows / steps if steps else 0.0),
    ):
        yield Gauge(f"llamacpp:{name}", what, value=value)
