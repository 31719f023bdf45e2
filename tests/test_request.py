"""The language between callers and engine: what is wrong is refused by name, before any work."""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import fields

import msgspec
import numpy as np
import pytest

from woolly.cli.sampling import OPTIONS, TEXTS
from woolly.engine import STAGES
from woolly.errors import RequestError
from woolly.limits import LIMITS
from woolly.request import SAMPLING, Options, Request, Sampling, Timings, Usage
from woolly.server.dialects.base.bodies import GenerationBody
from woolly.server.dialects.woolly.generation import REFUSED


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -0.1),
        ("temperature", math.nan),
        ("temperature", math.inf),
        ("temperature", "warm"),
        ("temperature", True),
        ("top_k", -2),
        ("top_k", 1.5),
        ("top_k", True),
        ("top_p", 1.01),
        ("top_p", -0.01),
        ("min_p", 2),
        ("min_p", None),
        ("repetition_penalty", 0.0),
        ("presence_penalty", 101),
        ("frequency_penalty", -math.inf),
        ("logit_bias", [1, 2]),
        ("seed", -1),
        ("seed", 2**64),
        ("seed", 1.0),
        pytest.param("seed", 10**5000, id="seed-huge"),
        pytest.param("temperature", 10**5000, id="temperature-huge"),
        ("temperature", np.zeros(2)),
    ],
)
def test_a_wrong_sampling_value_is_refused_with_its_name(name: str, value: object) -> None:
    with pytest.raises(RequestError, match=name) as caught:
        Sampling(**{name: value})  # type: ignore[arg-type]
    assert caught.value.param == name


def test_a_bias_is_refused_outside_its_limits() -> None:
    with pytest.raises(RequestError, match=r"logit_bias\[7\]"):
        Sampling(logit_bias={7: LIMITS.bias + 1})
    with pytest.raises(RequestError, match="logit_bias"):
        Sampling(logit_bias={-1: 0.0})
    Sampling(logit_bias=dict.fromkeys(range(LIMITS.biases), -LIMITS.bias))
    with pytest.raises(RequestError, match="1,025 entries"):
        Sampling(logit_bias=dict.fromkeys(range(LIMITS.biases + 1), 0.0))


def test_numpy_scalars_are_taken_as_the_numbers_they_are() -> None:
    s = Sampling(temperature=np.float32(0.5), top_k=np.int64(3), seed=np.uint64(2**63))  # type: ignore[arg-type]
    assert (s.temperature, s.top_k, s.seed) == (0.5, 3, 2**63)
    assert type(s.temperature) is float and type(s.top_k) is int
    assert Request(tokens=tuple(np.array([1, 2], np.int32))).tokens == (1, 2)


def test_sampling_cannot_be_changed_from_outside() -> None:
    biases = {1: 2.0}
    s = Sampling(logit_bias=biases)
    biases[1] = 3.0
    assert s.logit_bias[1] == 2.0
    with pytest.raises(TypeError):
        s.logit_bias[1] = 4.0  # type: ignore[index]


def test_a_request_has_exactly_one_kind_of_prompt() -> None:
    with pytest.raises(RequestError, match="none"):
        Request()
    with pytest.raises(RequestError, match="prompt and tokens"):
        Request(prompt="a", tokens=(1,))
    with pytest.raises(RequestError, match="text or token ids"):
        Request(prompt=b"bytes")  # type: ignore[arg-type]
    assert Request(prompt="").prompt == ""


@pytest.mark.parametrize("token", [-1, 2**31, 1.5, "1", None, True])
def test_a_token_that_is_no_id_is_refused_with_its_index(token: object) -> None:
    with pytest.raises(RequestError, match=r"tokens\[1\]"):
        Request(tokens=(1, token))  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [0, -5, 1.5, "10", True])
def test_max_tokens_is_a_positive_whole_number(value: object) -> None:
    with pytest.raises(RequestError, match="max_tokens"):
        Request(prompt="a", max_tokens=value)  # type: ignore[arg-type]


def test_stops_are_one_text_or_a_few_short_ones() -> None:
    assert Request(prompt="a", stop="x").stop == ("x",)  # type: ignore[arg-type]
    assert Request(prompt="a", stop=["x", "y"]).stop == ("x", "y")  # type: ignore[arg-type]
    Request(prompt="a", stop=("é" * (LIMITS.stop_bytes // 2),) * LIMITS.stops)
    for wrong in ("", ["x", ""], ["x"] * (LIMITS.stops + 1), ["é" * (LIMITS.stop_bytes // 2 + 1)], [1], 5, None):
        with pytest.raises(RequestError, match="stop"):
            Request(prompt="a", stop=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("messages", ["hi", {"role": "user"}, [], ["hi"], [{"content": "x"}], [{"role": "user"}], 5])
def test_messages_need_a_role_and_a_content(messages: object) -> None:
    with pytest.raises(RequestError, match="messages"):
        Request(messages=messages)  # type: ignore[arg-type]


def test_sums_are_sums() -> None:
    assert Usage(prompt_tokens=3, cached_tokens=2, completion_tokens=4).total_tokens == 7
    t = Timings(waited_s=1.0, prompt_s=2.0, answer_s=4.0, prompt_rate=1.0, answer_rate=1.0)
    assert (t.first_token_s, t.total_s) == (3.0, 7.0)


def test_the_language_is_spoken_without_numpy() -> None:
    code = "import sys, woolly.request; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_field_of_sampling_is_an_option_of_the_library_and_of_the_command_line() -> None:
    names = {row.name for row in fields(Sampling)} - {"unset"}
    assert names <= Options.__annotations__.keys()
    switches = {"ignore_eos", "infill"}  # for measurements and editors: they make no answer that a person reads
    assert names - {"logit_bias", *switches} <= OPTIONS.keys() | TEXTS.keys()
    assert names - {"logit_bias", "dry_sequence_breakers", "seed", *switches} == SAMPLING.keys()


def test_every_parameter_of_sampling_is_a_field_over_http_with_the_same_range() -> None:
    schema = msgspec.json.schema(GenerationBody)["$defs"]["GenerationBody"]["properties"]
    for parameter in SAMPLING.values():
        number = next(kind for kind in schema[parameter.name]["anyOf"] if kind["type"] != "null")
        assert (number["minimum"], number["maximum"]) == (parameter.least, parameter.most)


def test_every_parameter_of_sampling_is_used_and_none_is_refused() -> None:
    stages = {name for stage in STAGES for name in (stage.name, *stage.more)}
    assert SAMPLING.keys() - stages == {
        *("repetition_penalty", "repeat_last_n", "presence_penalty", "frequency_penalty"),
        *("dry_multiplier", "dry_base", "dry_allowed_length", "dry_penalty_last_n"),
        *("min_keep", "mirostat", "mirostat_tau", "mirostat_eta"),
    }
    assert not SAMPLING.keys() & REFUSED.keys()


def test_a_request_with_other_values_is_the_same_as_one_made_so_and_reads_nothing_again() -> None:
    hello = ({"role": "user", "content": "Hello"},)
    request = Request(messages=hello, stop=("x",))
    changed = request.with_values(sampling=Sampling(seed=7), max_tokens=3, shorten=True)
    assert changed == Request(messages=hello, stop=("x",), sampling=Sampling(seed=7), max_tokens=3, shorten=True)
    assert changed.messages is request.messages and request.max_tokens is None
