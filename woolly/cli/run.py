"""Answer a prompt with a model, streamed as it is made; without a prompt, on a terminal, talk with it.

    woolly run                                      a chat with the default model
    woolly run model.gguf                           a chat with a file
    woolly run "Why is the sky blue?"               one answer of the default model
    woolly run model.gguf "Why is the sky blue?"    one answer of a file
    woolly run smollm2 < question.txt               the prompt from standard input
    cat notes.txt | woolly run "Sum this up:"       standard input goes with the prompt
    woolly run smollm2 "Why?" --json                one answer for a program
    woolly run smollm2 "Rain?" --tools tools.json   an answer that may be a call of a tool
    woolly run "Describe Bo." --json-schema S.json  an answer that is JSON of this schema
    woolly run --server http://127.0.0.1:8080       a chat with the model of a server

A lone word without a space is a model. The figures at the end go to standard error. In a chat,
/help lists what can be done.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from woolly import system
from woolly.cli.find import find_model
from woolly.cli.flags import add_flags, flag_values
from woolly.cli.input_text import check_utf8, read_input, read_text, stdin_is_piped
from woolly.cli.interrupt import ctrl_c_kills
from woolly.cli.sampling import BIAS, TEXTS, add_options, option_values, read_bias
from woolly.cli.terminal import loading_bar
from woolly.config import Config, read_config
from woolly.errors import RequestError, UnsupportedError, printable
from woolly.request import Call, Completion, Event
from woolly.request.format import Format, closed
from woolly.request.messages import Tool, read_tools
from woolly.store import DEFAULT, is_model

if TYPE_CHECKING:
    from woolly.cli.chat.remote import Server, ServerModel
    from woolly.llm.llm import LLM

FORMATS = {  # options that constrain the answer
    "--json-schema": "hold the answer to a JSON schema: its file, or the schema itself",
    "--grammar": "hold the answer to a grammar, GBNF or Lark: its file, or the grammar itself",
}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "%(prog)s [MODEL] [PROMPT] [options]"
    parser.add_argument("words", nargs="*", metavar="MODEL PROMPT", help="a path or name, and what to answer")
    parser.add_argument("--system", metavar="TEXT", help="how the model is to behave")
    add_options(parser)
    for name, (flag, what) in TEXTS.items():
        parser.add_argument(
            flag, dest=name, action="append", default=[], metavar="TEXT", help=f"{what}; may be repeated"
        )
    parser.add_argument("--logit-bias", action="append", default=[], metavar="TEXT=X", help=f"{BIAS}; may be repeated")
    for flag, what in FORMATS.items():
        parser.add_argument(flag, metavar="FILE", help=what)
    parser.add_argument(
        "--tools", metavar="FILE", help="tools that the model may ask for; calls are a line of JSON each"
    )
    parser.add_argument("--tool-choice", metavar="WORD", help="auto, none, required, or the name of a tool")
    parser.add_argument("--server", metavar="URL", help="ask a model at this server; MODEL is one of its names")
    parser.add_argument("--api-key", dest="key", metavar="KEY", help="of that server; others do not see WOOLLY_API_KEY")
    add_flags(parser, "context", "threads", "kv", "exact", "lora", "cache_dir", "disk_bytes", "draft")
    parser.add_argument("--think", action="store_true", default=None, help="let a model that can think first do so")
    parser.add_argument("--no-think", dest="think", action="store_false", help="let it answer at once")
    parser.add_argument("--hide-thinking", "--hidethinking", action="store_true", help="show no thoughts")
    parser.add_argument("--session", metavar="NAME", help="in a chat, go on with a saved one, and save each answer")
    parser.add_argument("--plain", action="store_true", help="in a chat, show Markdown as it was written")
    parser.add_argument("--raw", action="store_true", help="show control characters of the answer as they are")
    parser.add_argument("--lossy", action="store_true", help="replace what is not UTF-8 in standard input")
    parser.add_argument("--quiet", "-q", action="store_true", help="nothing but the answer")
    parser.add_argument("--json", action="store_true", help="one line of JSON when the answer is complete")


def call(args: argparse.Namespace) -> int:
    config = read_config(**flag_values(args))
    server = _server(args)
    words = [check_utf8(word, "the prompt") for word in args.words]
    if server is None:
        model, prompt = _model_and_prompt(words, DEFAULT, lambda word: is_model(word, config=config), lossy=args.lossy)
    else:
        names = server.models()
        model, prompt = _model_and_prompt(words, names[0], names.__contains__, lossy=args.lossy)
    options: dict[str, Any] = dict(option_values(args))
    for name, (flag, _) in TEXTS.items():
        if texts := getattr(args, name):
            options[name] = [check_utf8(text, flag) for text in texts]
    if args.logit_bias:
        options["logit_bias"] = dict(read_bias(check_utf8(words, "--logit-bias")) for words in args.logit_bias)
    if args.think is not None:
        options["think"] = args.think
    if (format := _format(args)) is not None:
        options["format"] = format
    if args.tools is not None:
        options["tools"] = _tools(args.tools)
    if args.tool_choice is not None:
        options["tool_choice"] = args.tool_choice
    system_text = None if args.system is None else check_utf8(args.system, "--system")
    if prompt and args.session is not None:
        raise RequestError("--session is for a chat", suggestion="leave the prompt out", param="--session")
    if prompt:
        return _answer(args, config, server, model, prompt, system_text, options)
    for flag in ("--json", "--json-schema", "--grammar", "--tools"):
        if getattr(args, flag[2:].replace("-", "_")):
            raise RequestError(f"{flag} is for one answer, and a chat has many", suggestion="give a prompt", param=flag)
    with ctrl_c_kills():
        from woolly.cli.chat.start import start_chat

    return start_chat(args, config, server, model, _load, system=system_text or "", options=options)


def _server(args: argparse.Namespace) -> Server | None:
    """The server of --server, or None; options that only a local model has are refused with it."""
    if args.server is None:
        if args.key is not None:
            raise RequestError("--api-key is for --server", suggestion="name one", param="--api-key")
        return None
    for flag in (*FORMATS, "--tools", "--tool-choice"):
        if getattr(args, flag[2:].replace("-", "_")) is not None:
            raise RequestError(f"{flag} is not sent to a server", suggestion=f"leave {flag} out", param=flag)
    if settings := flag_values(args):
        names = ", ".join(settings)
        raise RequestError(f"with --server, its settings count: {names}", suggestion="give them to `woolly serve`")
    from woolly.cli.chat.remote import Server

    return Server(args.server, args.key or os.environ.get("WOOLLY_API_KEY", ""))


def _format(args: argparse.Namespace) -> Format | None:
    """The format of --json-schema or --grammar, whose value is a file or the text itself."""
    if args.json_schema is not None and args.grammar is not None:
        raise RequestError("an answer has one form: give --json-schema or --grammar", param="--grammar")
    if args.json_schema is not None:
        return closed(Format("schema", _text_or_file(args.json_schema, "--json-schema")))
    if args.grammar is not None:
        text = _text_or_file(args.grammar, "--grammar")
        return Format("gbnf" if "::=" in text else "lark", text)
    return None


def _tools(word: str) -> tuple[Tool, ...]:
    """The tools that a file describes: a list of them, or one."""
    try:
        described = json.loads(_text_or_file(word, "--tools"))
    except (ValueError, RecursionError) as error:
        raise RequestError(f"--tools is no JSON: {printable(error)}", param="--tools") from None
    return read_tools([described] if isinstance(described, dict) else described)


def _text_or_file(word: str, flag: str) -> str:
    """The text of a file, or the word itself where that cannot be the name of a file."""
    text = check_utf8(word, flag)
    return text if any(sign in text for sign in ("{", "::=", "\n")) else read_text(Path(text), lossy=False)


def _answer(
    args: argparse.Namespace,
    config: Config,
    server: Server | None,
    model: str,
    prompt: str,
    system_text: str | None,
    options: dict[str, Any],
) -> int:
    """Answer one prompt."""
    llm: LLM | ServerModel
    if server is None:
        llm = _load(find_model(model, config, quiet=args.quiet), config, starting=True, quiet=args.quiet)
    else:
        llm = server.model(model)
    from woolly.cli.chat.answer import show_answer
    from woolly.cli.chat.screen import Screen, appearance_of

    out = io.StringIO() if args.json else sys.stdout
    screen = Screen(out, appearance_of(out, os.environ, plain=True, raw=args.raw), os.environ)
    with llm:
        messages = [{"role": "user", "content": prompt}]
        if system_text is not None:
            messages.insert(0, {"role": "system", "content": system_text})
        stream: Iterable[Event]
        if llm.card.chat:
            stream = llm.chat_stream(messages, **options)
        elif system_text is not None or args.think is not None or args.tools is not None:
            option = "--system" if system_text is not None else "--think" if args.think is not None else "--tools"
            raise RequestError(
                f"the model has no chat template, and so no place for {option}",
                suggestion="leave it out, and the prompt is continued as it is",
                param=option,
            )
        else:
            stream = cast("LLM", llm).stream(prompt, **options)
        answer = show_answer(stream, screen, hide=args.hide_thinking)
    if args.json:
        print(json.dumps(_data(llm.card.name, prompt, answer), ensure_ascii=False))
        return 0
    for call in answer.calls:
        print(json.dumps(_call(call), ensure_ascii=False))
    if not args.quiet:
        print(_figures(answer), file=sys.stderr)
    return 0


def _load(path: Path, config: Config, *, starting: bool, quiet: bool) -> LLM:
    """Load the model of a file. starting: the chat has not begun, so Ctrl-C ends the command at once."""
    with ctrl_c_kills() if starting else contextlib.nullcontext():
        from woolly.llm.llm import LLM  # NumPy and the native core: not before a wrong word was refused

        bar = loading_bar(printable(path.name), quiet=quiet)
        llm = LLM(path, options=config.engine, sequences=1, progress=bar)  # one conversation
    try:
        llm.encoder.need("logits")
    except UnsupportedError:
        llm.close()
        raise
    return llm


def _model_and_prompt(
    words: list[str], default: str, is_name: Callable[[str], bool], *, lossy: bool
) -> tuple[str, str]:
    """The model and the prompt that the words mean: MODEL PROMPT, or one of the two. Standard input is the prompt, or
    is appended to it. The prompt is empty where a chat begins.
    """
    if len(words) > 2:
        raise RequestError(
            f"{len(words)} words were given; expected a model and a prompt", suggestion="quote the prompt"
        )
    model, prompt = default, ""
    if len(words) == 2:
        model, prompt = words
    elif words and is_name(words[0]):
        model = words[0]
    elif words:
        prompt = words[0]
    attachment = read_input(lossy=lossy) if stdin_is_piped() else ""
    text = "\n\n".join(part for part in (prompt, attachment) if part)
    if not text and not (len(words) < 2 and _is_interactive()):
        alone = f"'{printable(words[0])}' alone is taken as a model: " if words else ""
        raise RequestError("there is no prompt", suggestion=f'{alone}write `woolly run {DEFAULT} "Hello"`')
    return model, text


def _is_interactive() -> bool:
    """Whether a person can type and read here."""
    try:
        return sys.stdin.isatty() and sys.stdout.isatty()
    except (ValueError, AttributeError):  # closed
        return False


def _call(call: Call) -> dict[str, Any]:
    try:
        arguments = json.loads(call.arguments)
    except ValueError:  # max_tokens cut the arguments short
        arguments = call.arguments
    return {"id": call.id, "name": call.name, "arguments": arguments}


def _data(model: str, prompt: str, answer: Completion) -> dict[str, Any]:
    usage, timings = answer.usage, answer.timings
    result = {
        "prompt": prompt,
        "response": answer.text,
        "thoughts": answer.thought,
        "calls": [_call(call) for call in answer.calls],
        "finish_reason": answer.finish_reason,
        "prompt_tokens": usage.prompt_tokens,
        "tokens_generated": usage.completion_tokens,
        "time_to_first_token_ms": round(1e3 * timings.first_token_s, 1),
        "time_ms": round(1e3 * timings.total_s, 1),
        "tokens_per_second": round(timings.answer_rate, 1),
        "seed": answer.seed,
    }
    return {"results": [result], "summary": {"model": model, "peak_memory_bytes": system.usage().peak}}


def _figures(answer: Completion) -> str:
    """The one line at the end: tokens and speeds, time to the first token, memory."""
    usage, timings = answer.usage, answer.timings
    cut = " (cut at its limit)" if answer.finish_reason == "length" else ""
    return (
        f"prompt {usage.prompt_tokens:,} tokens at {timings.prompt_rate:,.1f} tokens/s, "
        f"answer {usage.completion_tokens:,} tokens{cut} at {timings.answer_rate:,.1f} tokens/s, "
        f"first token after {timings.first_token_s:.2f} s, peak memory {system.usage().peak / 1e6:,.0f} MB"
    )
