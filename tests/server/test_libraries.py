"""The clients of OpenAI, Anthropic and Ollama as agents use them: a call, its result, a final answer; and going away.

The model calls a tool whenever it is offered one, otherwise it writes the same as text; each round whole and streamed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.server.process import Process, environ
from tests.server.stand_in import until
from tests.tiny import scripted, tiny

anthropic = pytest.importorskip("anthropic", reason="Anthropic's client is not installed")
ollama = pytest.importorskip("ollama", reason="Ollama's client is not installed")
openai = pytest.importorskip("openai", reason="OpenAI's client is not installed")

SCRIPT = (
    "I look. ",
    "<tool_call>",
    '\n{"name": "wea',
    'ther", "argu',
    'ments": {"city": "Kö',
    'ln"}}\n',
    "</tool_call>",
)
SAID = "".join(SCRIPT)  # without a tool, a call is plain text
HELLO: Any = [{"role": "user", "content": "Hello"}]
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
FUNCTION = {"name": "weather", "description": "The weather of a city.", "parameters": SCHEMA}
LONG = 4000  # tokens of answers that are cut off


@pytest.fixture(scope="module")
def agency(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """A server with a model that calls, and one that talks for long."""
    models = tmp_path_factory.mktemp("models")
    scripted(models / "caller.gguf", *SCRIPT)
    tiny(models / "talker.gguf", vocab=4096, seed=5, context=8192)
    with Process(environ(tmp_path_factory.mktemp("home"), models)) as process:
        yield process


@pytest.fixture
def url(agency: Process) -> str:
    return f"http://127.0.0.1:{agency.port}"


@pytest.fixture
def client(url: str) -> Iterator[Any]:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture
def messages(url: str) -> Iterator[Any]:
    with anthropic.Anthropic(base_url=url, api_key="none", max_retries=0) as client:
        yield client.messages


def metric(server: Process, name: str) -> float:
    """The sum over all models."""
    lines = server.ask("GET", "/metrics")[2].decode().splitlines()
    rows = [line for line in lines if line.startswith((f"woolly:{name}{{", f"woolly:{name} "))]
    assert rows
    return sum(float(line.rsplit(" ", 1)[1]) for line in rows)


def is_free(server: Process) -> bool:
    """Whether nothing runs or waits, and no page of a cache is held."""
    return not any(
        metric(server, name) for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")
    )


def test_a_chat_of_openais_client_calls_a_tool_and_goes_on_with_its_result(client: Any) -> None:
    asked: dict[str, Any] = {"model": "caller", "temperature": 0}
    tools = [{"type": "function", "function": FUNCTION}]
    message = client.chat.completions.create(messages=HELLO, tools=tools, **asked).choices[0].message
    with client.chat.completions.stream(messages=HELLO, tools=tools, **asked) as stream:
        stream.until_done()
        streamed = stream.get_final_completion().choices[0].message
    for answer in (message, streamed):
        assert (answer.content, len(answer.tool_calls)) == ("I look.", 1)
        assert (answer.tool_calls[0].function.name, answer.tool_calls[0].function.arguments) == (
            "weather",
            '{"city": "Köln"}',
        )
    result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "rain"}
    turns = [*HELLO, message.model_dump(exclude_none=True), result]
    unstreamed = client.chat.completions.create(messages=turns, **asked).choices[0]
    pieces = client.chat.completions.create(messages=turns, stream=True, **asked)
    assert "".join(piece.choices[0].delta.content or "" for piece in pieces) == unstreamed.message.content == SAID
    assert unstreamed.finish_reason == "stop"


def test_responses_of_openais_client_call_a_tool_and_go_on_by_its_id(client: Any) -> None:
    asked: dict[str, Any] = {"model": "caller", "temperature": 0}
    first = client.responses.create(input="Hello", tools=[{"type": "function", **FUNCTION}], **asked)
    (call,) = [item for item in first.output if item.type == "function_call"]
    assert (first.output_text, call.name, call.arguments) == ("I look.", "weather", '{"city": "Köln"}')
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "rain"}
    events = list(client.responses.create(input=[result], previous_response_id=first.id, stream=True, **asked))
    assert events[-1].type == "response.completed"
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert text == events[-1].response.output_text == SAID


def test_anthropics_client_calls_a_tool_and_goes_on_with_its_result(messages: Any) -> None:
    asked: dict[str, Any] = {"model": "caller", "max_tokens": 60, "extra_body": {"temperature": 0}}
    tools = [{"name": "weather", "input_schema": SCHEMA}]
    first = messages.create(messages=HELLO, tools=tools, **asked)
    with messages.stream(messages=HELLO, tools=tools, **asked) as stream:
        streamed = stream.get_final_message()
    for answer in (first, streamed):
        text, call = answer.content
        assert (text.text, call.name, call.input, answer.stop_reason) == (
            "I look.",
            "weather",
            {"city": "Köln"},
            "tool_use",
        )
    result = {"type": "tool_result", "tool_use_id": first.content[1].id, "content": "rain"}
    turns = [*HELLO, {"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
    with messages.stream(messages=turns, **asked) as stream:
        text = "".join(stream.text_stream)
        last = stream.get_final_message()
    assert (text, last.content[0].text, last.stop_reason) == (SAID, SAID, "end_turn")


def test_ollamas_client_calls_a_tool_and_goes_on_with_its_result(url: str) -> None:
    asked: dict[str, Any] = {"model": "caller", "options": {"temperature": 0}}
    chat = ollama.Client(host=url).chat

    def weather(city: str) -> str:
        """The weather of a city."""
        return f"rain in {city}"

    first = chat(messages=HELLO, tools=[weather], **asked).message
    streamed = [part.message for part in chat(messages=HELLO, tools=[weather], stream=True, **asked)]
    (call,) = first.tool_calls
    assert [call for part in streamed for call in part.tool_calls or ()] == [call]
    assert "".join(part.content for part in streamed) == first.content == "I look."
    result = {"role": "tool", "tool_name": "weather", "content": weather(**call.function.arguments)}
    assert result["content"] == "rain in Köln"
    parts = list(chat(messages=[*HELLO, first, result], stream=True, **asked))
    assert "".join(part.message.content for part in parts) == SAID
    assert (parts[-1].done, parts[-1].done_reason) == (True, "stop")


Leave = Callable[[str], object]


def leave_chat(url: str) -> None:
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    with client.chat.completions.create(model="talker", messages=HELLO, max_tokens=LONG, stream=True) as stream:
        next(iter(stream))


def leave_responses(url: str) -> None:
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    with client.responses.create(model="talker", input="Hello", max_output_tokens=LONG, stream=True) as stream:
        next(iter(stream))


def leave_messages(url: str) -> None:
    client = anthropic.Anthropic(base_url=url, api_key="none", max_retries=0)
    with client.messages.create(model="talker", messages=HELLO, max_tokens=LONG, stream=True) as stream:
        next(iter(stream))


def leave_ollama(url: str) -> None:
    stream = ollama.Client(host=url).chat("talker", messages=HELLO, options={"num_predict": LONG}, stream=True)
    next(stream)
    stream.close()


@pytest.mark.parametrize("leave", [leave_chat, leave_responses, leave_messages, leave_ollama])
def test_a_client_that_goes_away_in_the_middle_leaves_no_page_behind(agency: Process, url: str, leave: Leave) -> None:
    generated = metric(agency, "generation_tokens_total")
    leave(url)
    assert until(lambda: is_free(agency))
    assert metric(agency, "generation_tokens_total") - generated < LONG
    answered = agency.ask("POST", "/v1/chat/completions", {"model": "caller", "messages": HELLO})
    assert answered[0] == 200
