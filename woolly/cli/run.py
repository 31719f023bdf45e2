"""Answer a prompt with a model, streamed as it is made.

    woolly run "Why is the sky blue?"               the default model
    woolly run model.gguf "Why is the sky blue?"    a file
    woolly run smollm2 < question.txt               the prompt from standard input
    cat notes.txt | woolly run "Sum this up:"       standard input goes with the prompt

A lone word without a space is a model. The figures at the end go to standard error.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from typing import Any

from woolly import system
from woolly.cli.interrupt import ends_at_once
from woolly.cli.sampling import SAMPLING, file_sampling
from woolly.cli.terminal import harmless, progress_bar
from woolly.cli.words import checked, piped, read_input
from woolly.config import KV_TYPES, Config, read_config
from woolly.errors import NativeError, RequestError, printable
from woolly.request import End, Event, Failed, Text
from woolly.store import DEFAULT, is_model, resolve


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "%(prog)s [MODEL] [PROMPT] [options]"
    parser.add_argument("words", nargs="*", metavar="MODEL PROMPT", help="a path or name, and what to answer")
    parser.add_argument("--system", metavar="TEXT", help="how the model is to behave")
    for name, (kind, what) in SAMPLING.items():
        metavar = "N" if kind is int else "X"
        parser.add_argument("--" + name.replace("_", "-"), type=kind, metavar=metavar, help=what)
    parser.add_argument(
        "--stop", action="append", default=[], metavar="TEXT", help="end before this text; may be repeated"
    )
    parser.add_argument(
        "--context", type=int, metavar="N", help="tokens of prompt and answer (default: the model's own)"
    )
    parser.add_argument("--threads", type=int, metavar="N", help="default: the physical cores that we may use")
    parser.add_argument("--kv", choices=KV_TYPES, help="type of the keys and values kept (default f16)")
    parser.add_argument("--raw", action="store_true", help="show control characters of the answer as they are")
    parser.add_argument("--lossy", action="store_true", help="replace what is not UTF-8 in standard input")
    parser.add_argument("--quiet", "-q", action="store_true", help="nothing but the answer")


def call(args: argparse.Namespace) -> int:
    config = read_config(threads=args.threads, context=args.context, kv=args.kv)
    model, prompt = _model_and_prompt([checked(word, "the prompt") for word in args.words], config, lossy=args.lossy)
    path = resolve(model, config=config, progress=None if args.quiet else progress_bar(f"downloading {model}"))
    options: dict[str, Any] = {name: getattr(args, name) for name in SAMPLING if getattr(args, name) is not None}
    options["stop"] = [checked(text, "--stop") for text in args.stop]
    messages = [{"role": "user", "content": prompt}]
    if args.system is not None:
        messages.insert(0, {"role": "system", "content": checked(args.system, "--system")})
    with ends_at_once():
        from woolly.llm import LLM  # NumPy and the native core: not before a wrong word was refused

        llm = LLM(path, context=config.context, threads=config.threads, kv=config.kv)
    with llm:
        options = file_sampling(path) | options
        if llm.info.chat:
            stream = llm.chat_stream(messages, **options)
        elif args.system is not None:
            raise RequestError("the model has no chat template, and so no place for --system", param="--system")
        else:
            stream = llm.stream(prompt, **options)
        end = _show(stream, raw=args.raw or not sys.stdout.isatty())
    if not args.quiet:
        print(_figures(end), file=sys.stderr)
    return 0


def _model_and_prompt(words: list[str], config: Config, *, lossy: bool) -> tuple[str, str]:
    """What the words mean: MODEL PROMPT, or one of the two; standard input is the prompt or goes with it."""
    if len(words) > 2:
        raise RequestError(
            f"{len(words)} words were given; expected a model and a prompt", suggestion="quote the prompt"
        )
    model, prompt = DEFAULT, ""
    if len(words) == 2:
        model, prompt = words
    elif words and is_model(words[0], config=config):
        model = words[0]
    elif words:
        prompt = words[0]
    attachment = read_input(lossy=lossy) if piped() else ""
    text = "\n\n".join(part for part in (prompt, attachment) if part)
    if not text:
        alone = f"'{printable(words[0])}' alone is taken as a model: " if words else ""
        raise RequestError("there is no prompt", suggestion=f'{alone}write `woolly run {DEFAULT} "Hello"`')
    return model, text


def _show(events: Iterable[Event], *, raw: bool) -> End:
    """Print the answer as it comes; the last event tells how it went."""
    out, last = sys.stdout, "\n"
    try:
        for event in events:
            match event:
                case Text(text=text) if text:
                    out.write(text if raw else harmless(text))
                    out.flush()
                    last = text[-1]
                case Failed(error=error):
                    raise error
                case End():
                    return event
        raise NativeError("the answer ended without a word about how")
    finally:
        if last != "\n":
            out.write("\n")


def _figures(end: End) -> str:
    """The one line at the end: tokens and speeds, time to the first token, memory."""
    usage, timings = end.usage, end.timings
    cut = " (cut at its limit)" if end.reason == "length" else ""
    return (
        f"prompt {usage.prompt_tokens:,} tokens at {timings.prompt_rate:,.1f} tokens/s, "
        f"answer {usage.completion_tokens:,} tokens{cut} at {timings.answer_rate:,.1f} tokens/s, "
        f"first token after {timings.first_token_s:.2f} s, peak memory {system.usage().peak / 1e6:,.0f} MB"
    )
