"""No field of a dialect is taken and forgotten: each changes the answer, or is refused, or is known to be harmless."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

import woolly.server
from tests.server.conftest import HELLO
from tests.server.transcripts import SAID, rendered, streamed
from woolly.config.serving import SERVING
from woolly.errors import WoollyError
from woolly.request import SAMPLING
from woolly.server.dialect_table import DIALECTS
from woolly.server.dialects.base.fields import HARMLESS
from woolly.server.routes import Generation, Query

TOOL: dict[str, Any] = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
OTHER = {"type": "function", "function": {"name": "g", "parameters": {"type": "object"}}}
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}
BEGUN = [*HELLO, {"role": "assistant", "content": "x"}]

# A value of each field that is not what counts without it.
VALUES: dict[str, Any] = {
    "add_generation_prompt": False, "begun": "x", "chat_template_kwargs": {"tone": "x"}, "continue_final_message": True,
    "dimensions": 3, "dry_allowed_length": 5, "dry_base": 2.5, "dry_multiplier": 0.8, "dry_penalty_last_n": 7,
    "dry_sequence_breakers": ["x"], "dynatemp_exponent": 2.0, "dynatemp_range": 0.5, "echo": True, "format": "json",
    "frequency_penalty": 0.5, "grammar": 'root ::= "a"', "ignore_eos": True,
    "include": ["message.output_text.logprobs"], "input": "Other",
    "input_extra": [{"text": "x", "filename": "y"}], "input_prefix": "x", "input_suffix": "y",
    "instructions": "Be short.", "json_schema": SCHEMA, "keep_alive": "5m", "logit_bias": {"3": 5}, "logprobs": True,
    "lora": {"pirate": 0.5}, "max_completion_tokens": 7, "max_output_tokens": 7, "max_tokens": 7, "max_tool_calls": 3,
    "messages": [{"role": "user", "content": "Other"}], "metadata": {"a": "b"}, "min_keep": 5, "min_p": 0.3,
    "mirostat": 2, "mirostat_eta": 0.5, "mirostat_tau": 3.0, "model": "other", "n": 2, "n_cmpl": 2, "n_indent": 4,
    "n_predict": 7, "n_probs": 2, "options": {"temperature": 0.1}, "output_config": {"effort": "low"},
    "output_format": {"type": "json_schema", "schema": SCHEMA}, "parallel_tool_calls": False,
    "post_sampling_probs": True, "presence_penalty": 0.5, "previous_response_id": "resp_1", "prompt": "Other",
    "prompts": ["Other"], "raw": True, "reasoning": {"effort": "low"}, "reasoning_effort": "low", "repeat_last_n": 3,
    "repeat_penalty": 1.5, "repetition_penalty": 1.5, "response_fields": ["content"],
    "response_format": {"type": "json_object"}, "return_tokens": True, "samplers": ["top_k"], "seed": 5,
    "session_id": "sess_1", "stop": ["x"], "stop_sequences": ["x"], "store": False, "stream": True,
    "stream_options": {"include_usage": True}, "suffix": "y", "system": "Be short.", "t_max_predict_ms": 100,
    "temperature": 0.1, "text": {"format": {"type": "json_object"}}, "think": True, "thinking": {"type": "disabled"},
    "timings_per_token": True, "tool_choice": "none", "tools": [TOOL], "top_k": 3, "top_logprobs": 3,
    "top_n_sigma": 1.0, "top_p": 0.3, "typical_p": 0.5, "user": "me", "xtc_probability": 0.5, "xtc_threshold": 0.3,
}  # fmt: skip
# Where a field needs others beside it, or another value than elsewhere, on the routes of a Struct.
NEEDED: dict[str, dict[str, Any]] = {
    "continue_final_message": {"messages": BEGUN}, "n_probs": {}, "parallel_tool_calls": {"tools": [TOOL]},
    "post_sampling_probs": {"n_probs": 2}, "tool_choice": {"tools": [TOOL]}, "top_logprobs": {"logprobs": True},
}  # fmt: skip
SPECIAL: dict[tuple[str, str], tuple[dict[str, Any], Any]] = {
    ("AnthropicBody", "tools"): ({}, [{"name": "f", "input_schema": {"type": "object"}}]),
    ("AnthropicBody", "tool_choice"): (
        {"tools": [{"name": "f", "input_schema": {"type": "object"}}]},
        {"type": "any"},
    ),
    ("OpenAICompletionBody", "logprobs"): ({}, 2),
    ("OllamaChatBody", "stream"): ({}, False),
    ("OllamaGenerateBody", "stream"): ({}, False),
    ("ResponseBody", "tools"): ({}, [{"type": "function", "name": "f", "parameters": {"type": "object"}}]),
    ("ResponseBody", "tool_choice"): (
        {"tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}}]},
        "required",
    ),
    ("ResponseBody", "parallel_tool_calls"): (
        {"tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}}]},
        False,
    ),
    ("ResponseBody", "top_logprobs"): ({"include": ["message.output_text.logprobs"]}, 3),
}
# What another part than the route reads: the fields of `Memory`, before and after it.
MEMORY = {"store", "previous_response_id"}
# Bodies as they must be at the least.
LEAST: dict[str, Any] = {"messages": HELLO, "prompt": "Hello", "prompts": ["Hello"], "input": "Hello", "model": "m"}
LEAST |= {"max_tokens": 16}

GENERATIONS = {
    f"{dialect.name} {route.body.__name__}": route
    for dialect in reversed(DIALECTS)
    for route in reversed(dialect.routes)
    if isinstance(route, Generation)
}
FIELDS = [
    (name, field)
    for name, route in GENERATIONS.items()
    for field in route.body.__struct_fields__
    if field not in route.without and field not in MEMORY
]


def least(route: Generation) -> dict[str, Any]:
    """The fewest fields that a route takes."""
    required = {field.encode_name for field in msgspec.structs.fields(route.body) if field.required}
    body = {name: LEAST[name] for name in required}
    if route.accepts is not None and not route.accepts(body):
        body["model"] = "m"
    optional = {"messages", "prompt"} & set(route.body.__struct_fields__)
    return body | {name: LEAST[name] for name in optional if not required & {"prompts", "input"}}


def outcome(route: Generation, body: Mapping[str, Any]) -> Any:
    """All that comes of a body: what the model is asked, and what is told of its answer, whole and streamed."""
    job = route.read(body, {}, SERVING)
    asked = dataclasses.replace(job, fields=None, notes=())
    if not job.requests:
        return asked
    complete = msgspec.to_builtins(rendered(route, job, SAID)) if route.render is not None else None
    return asked, complete, [msgspec.to_builtins(piece) for piece in streamed(route, job, SAID)]


def fate(route: Generation, body: Mapping[str, Any], field: str, value: Any) -> str:
    """What becomes of a field: it changes something, is refused, or has no effect."""
    before = outcome(route, body)
    try:
        return "nothing" if outcome(route, {**body, field: value}) == before else "changes"
    except WoollyError as error:
        assert field in str(error) or field in str(error.facts.get("param")), error
        return "refused"


@pytest.mark.parametrize(("name", "field"), FIELDS)
def test_h56_every_field_that_a_route_reads_changes_its_answer(name: str, field: str) -> None:
    route = GENERATIONS[name]
    needed, value = SPECIAL.get((route.body.__name__, field), (NEEDED.get(field, {}), VALUES[field]))
    assert fate(route, least(route) | needed, field, value) in ("changes", "refused")


# What clients of each API send, by its documentation of 2026, with values that ask for something.
LLAMA: dict[str, Any] = {
    "adaptive_target": 0.5, "adaptive_decay": 0.5, "cache_prompt": True, "chat_format": 1, "dry_allowed_length": 5,
    "dry_base": 2.5, "dry_multiplier": 0.8, "dry_penalty_last_n": 7, "dry_sequence_breakers": ["x"],
    "dynatemp_exponent": 2.0, "dynatemp_range": 0.5, "frequency_penalty": 0.5, "grammar": 'root ::= "a"',
    "grammar_lazy": True, "grammar_triggers": [{"value": "x"}], "id_slot": 0, "ignore_eos": True, "json_schema": SCHEMA,
    "logit_bias": [[3, 5]], "lora": [{"id": 0, "scale": 0.5}], "max_tokens": 7, "min_keep": 5, "min_p": 0.3,
    "mirostat": 2, "mirostat_eta": 0.5, "mirostat_tau": 3.0, "model": "other", "n_cache_reuse": 256, "n_cmpl": 2,
    "n_discard": 3, "n_indent": 4, "n_keep": 3, "n_predict": 7, "n_probs": 2, "presence_penalty": 0.5,
    "preserved_tokens": ["x"], "repeat_last_n": 3, "repeat_penalty": 1.5, "samplers": ["top_k"], "seed": 5,
    "sse_ping_interval": 5, "stop": ["x"], "stream": True, "t_max_predict_ms": 100, "t_max_prompt_ms": 100,
    "temperature": 0.1, "timings_per_token": True, "top_k": 3, "top_n_sigma": 1.0, "top_p": 0.3, "typical_p": 0.5,
    "xtc_probability": 0.5, "xtc_threshold": 0.3,
}  # fmt: skip
OPENAI: dict[str, Any] = {
    "metadata": {"a": "b"}, "prompt_cache_key": "x", "prompt_cache_retention": "24h", "safety_identifier": "x",
    "service_tier": "flex", "store": True, "user": "me", "verbosity": "low",
}  # fmt: skip
SENT: dict[str, dict[str, Any]] = {
    "openai OpenAIChatBody": LLAMA | OPENAI | {
        "audio": {"voice": "x"}, "function_call": {"name": "f"}, "functions": [{"name": "f"}],
        "add_generation_prompt": False, "chat_template_kwargs": {"a": 1}, "logprobs": True,
        "max_completion_tokens": 7, "modalities": ["audio"], "n": 2, "parse_tool_calls": False,
        "post_sampling_probs": True, "prediction": {"type": "content"}, "reasoning_budget_tokens": 5,
        "reasoning_effort": "low", "reasoning_format": "none", "reasoning_in_content": True,
        "response_format": {"type": "json_object"}, "stream_options": {"include_usage": True},
        "thinking_budget_tokens": 5, "thinking_forced_open": True, "tools": [TOOL], "web_search_options": {},
    },
    "openai OpenAICompletionBody": LLAMA | OPENAI | {
        "best_of": 2, "echo": True, "logprobs": 2, "n": 2, "post_sampling_probs": True,
        "response_format": {"type": "json_object"}, "stream_options": {"include_usage": True}, "suffix": "y",
    },
    "openai ResponseBody": OPENAI | {
        "background": True, "context_management": [], "conversation": "conv_1",
        "include": ["message.output_text.logprobs"], "instructions": "x", "max_output_tokens": 7, "max_tool_calls": 3,
        "model": "other", "prompt": {"id": "x"}, "reasoning": {"effort": "low"}, "stream": True,
        "stream_options": {"include_obfuscation": False}, "temperature": 0.1,
        "text": {"format": {"type": "json_object"}}, "tools": [TOOL["function"] | {"type": "function"}],
        "top_p": 0.3, "truncation": "auto",
    },
    "anthropic AnthropicBody": {
        "cache_control": {"type": "ephemeral"}, "container": "x", "context_management": {}, "inference_geo": "eu",
        "max_tokens": 7, "mcp_servers": [{"url": "x"}], "metadata": {"user_id": "x"}, "model": "other",
        "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}},
        "output_format": {"type": "json_schema", "schema": SCHEMA}, "service_tier": "auto", "stop_sequences": ["x"],
        "stream": True, "system": "x", "temperature": 0.1, "thinking": {"type": "disabled"},
        "tools": [{"name": "f", "input_schema": {"type": "object"}}], "top_k": 3, "top_p": 0.3,
    },
    "ollama OllamaChatBody": {
        "format": "json", "keep_alive": "5m", "logprobs": True, "messages": [{"role": "user", "content": "Other"}],
        "model": "other", "options": {"top_k": 3}, "shift": False, "stream": False, "think": True,
        "tools": [TOOL], "truncate": False,
    },
    "ollama OllamaGenerateBody": {
        "context": [1], "format": "json", "images": ["x"], "keep_alive": "5m", "logprobs": True, "model": "other",
        "options": {"top_k": 3}, "prompt": "Other", "raw": True, "shift": False, "stream": False, "suffix": "y",
        "system": "x", "template": "x", "think": True, "truncate": False,
    },
    "llama_server LlamaCompletionBody": LLAMA | {
        "image_data": [{"id": 1}], "n": 2, "post_sampling_probs": True, "response_fields": ["content"],
        "return_tokens": True,
    },
    "llama_server InfillBody": LLAMA | {
        "input_extra": [{"text": "x", "filename": "y"}], "input_prefix": "x", "input_suffix": "y", "prompt": "z",
        "response_fields": ["content"],
    },
}  # fmt: skip
# Beside HARMLESS: names that hold nothing which this server could do in another way.
# Fields whose type allows one value, and one of an order that is always refused.
UNREAD = {"raw_scores", "completion_window", "jsonrpc", "destination"}
NOTHING_TO_DO = {"adaptive_decay", "cache_control", "chat_format", "inference_geo", "stream_options"}


@pytest.mark.parametrize(("name", "field"), [(name, field) for name, fields in SENT.items() for field in fields])
def test_h56_every_field_that_clients_send_is_honoured_or_refused_or_harmless(name: str, field: str) -> None:
    route, needed = GENERATIONS[name], {"n_probs": 2} if field == "post_sampling_probs" else {}
    outcome_of = fate(route, least(route) | needed, field, SENT[name][field])
    assert outcome_of != "nothing" or field in HARMLESS | NOTHING_TO_DO


@pytest.mark.parametrize("option", [
    "num_predict", "num_ctx", "seed", "stop", "temperature", "top_k", "top_p", "min_p", "typical_p", "repeat_penalty",
    "repeat_last_n", "presence_penalty", "frequency_penalty", "mirostat", "mirostat_eta", "mirostat_tau", "tfs_z",
    "penalize_newline",
])  # fmt: skip
def test_h56_every_option_of_ollama_that_says_how_to_answer_is_honoured_or_refused(option: str) -> None:
    route = GENERATIONS["ollama OllamaChatBody"]
    value = {"num_predict": 7, "num_ctx": 64, "tfs_z": 0.5, "penalize_newline": False}.get(option, VALUES.get(option))
    before = outcome(route, least(route))
    try:
        assert outcome(route, least(route) | {"options": {option: value}}) != before
    except WoollyError as error:
        assert option in str(error)


def test_h56_every_field_of_a_question_is_read_somewhere() -> None:
    """Of routes that answer with facts, which only a whole server can show."""
    read = {*UNREAD, *HARMLESS, *SAMPLING}
    for path in Path(woolly.server.__file__).parent.rglob("*.py"):
        nodes = ast.walk(ast.parse(path.read_text("utf-8")))
        read |= {node.attr for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)}
    for dialect in DIALECTS:
        for route in dialect.routes:
            if isinstance(route, Query) and route.body is not None:
                assert not set(route.body.__struct_fields__) - read, route.path
