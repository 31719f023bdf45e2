"""How likely a model finds a text: the lower the perplexity, the better it foresaw each token.

    woolly perplexity smollm2 text.txt                  counted as llama.cpp counts, so that figures can be compared
    woolly perplexity model.gguf text.txt --chunks 8    the first eight chunks
    woolly perplexity model.gguf - < text.txt           from standard input
    woolly perplexity smollm2 text.txt --kl             and how far the engine is from the exact truth of the file

The text is cut into chunks of --context tokens; in each, the second half is scored. --kl computes every chunk once more
in plain float32 with the decoded weights, which is slow: it tells how long first, and above a minute asks for --yes.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from woolly import system
from woolly.cli.find import find_model
from woolly.cli.flags import add_flags, flag_values
from woolly.cli.input_text import read_input, read_text
from woolly.cli.interrupt import ctrl_c_kills
from woolly.cli.status import status
from woolly.config import read_config
from woolly.errors import BusyError, RequestError

if TYPE_CHECKING:
    from woolly.llm.llm import LLM
    from woolly.validate import Divergence, ExactModel, Likelihood, LikelihoodSum

CONTEXT = 512
LONG_S = 60.0  # an estimate above this needs --yes


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="a path or name")
    parser.add_argument("file", metavar="FILE", help="a text in UTF-8; - is standard input")
    parser.add_argument("-c", "--context", type=int, default=CONTEXT, metavar="N", help=f"of a chunk ({CONTEXT})")
    parser.add_argument("--chunks", type=int, default=0, metavar="N", help="the first N only (default: all)")
    parser.add_argument("--kl", action="store_true", help="compare with the exact logits of the same file")
    parser.add_argument("-y", "--yes", action="store_true", help="do it however long it takes")
    add_flags(parser, "threads", "kv", "exact")
    parser.add_argument("--lossy", action="store_true", help="replace what is not UTF-8 in the text")
    parser.add_argument("-q", "--quiet", action="store_true", help="only the result")
    parser.add_argument("--json", action="store_true", help="one line of JSON")


def call(args: argparse.Namespace) -> int:
    if not 4 <= args.context <= 1 << 20 or args.context % 2:
        raise RequestError(f"--context is {args.context}, expected an even number of 4 to 1,048,576", param="--context")
    if args.chunks < 0:
        raise RequestError(f"--chunks is {args.chunks}, expected 0 (all) or more", param="--chunks")
    text = read_input(lossy=args.lossy) if args.file == "-" else read_text(Path(args.file), lossy=args.lossy)
    config = read_config(**flag_values(args))
    path = find_model(args.model, config, quiet=args.quiet)
    say = status(quiet=args.quiet)
    with ctrl_c_kills():
        from woolly import gguf  # NumPy and the native core: not before a wrong word was refused
        from woolly.llm.llm import LLM
        from woolly.validate import ExactModel, chunks

        say("loading")
        engine = config.engine
        llm = LLM(path, context=args.context, threads=engine.threads, kv=engine.kv, exact=engine.exact)
    with llm, gguf.open(path) as file:
        tokens = llm.tokenize(text, special=False)
        parts = chunks(tokens, args.context, llm.tokenize(""), args.chunks)
        if args.context > llm.card.context and not args.quiet:
            say("")
            print(f"woolly: warning: the model was made for {llm.card.context:,} tokens", file=sys.stderr)
        exact = ExactModel(file, llm.info.context) if args.kl else None
        _check_memory(args.context, llm.card.vocab, exact.group(args.context) if exact is not None else 0)
        if exact is not None:
            _confirm_duration(exact.seconds(len(parts) * args.context, args.context), args, len(parts))
        measured = _measure(llm, exact, parts, say)
        say("")
    unused = len(tokens) - len(parts) * args.context
    print(_json(measured, llm.card.name, args.context, unused) if args.json else _text(measured, args.context))
    return 0


@dataclass(frozen=True, slots=True)
class _Measurement:
    """The engine's likelihood of the text; with --kl, that of the exact model, and the divergence between the two."""

    score: LikelihoodSum
    truth: tuple[Likelihood, Divergence] | None


def _measure(llm: LLM, exact: ExactModel | None, parts: list[list[int]], say: Callable[[str], None]) -> _Measurement:
    """Score the second half of every chunk by the engine and, with --kl, by the exact model."""
    from woolly.validate import DivergenceSum, LikelihoodSum, losses

    score, truth, judge = LikelihoodSum(), LikelihoodSum(), DivergenceSum()
    context = len(parts[0])
    half = context // 2
    together = exact.group(context) if exact is not None else 1
    for first in range(0, len(parts), together):
        some = parts[first : first + together]
        say(f"chunk {first + 1} of {len(parts)}{_running_figure(score.by_chunk)}")
        truths = exact.logits(some) if exact is not None else None
        for i, chunk in enumerate(some):
            logits, targets = llm.logits(chunk)[half:-1], chunk[half + 1 :]
            score.add(losses(logits, targets))
            if truths is not None:
                judge.add(truths[i], logits)
                truth.add(losses(truths[i], targets))
    return _Measurement(score, None if exact is None else (truth.likelihood, judge.divergence))


def _json(measured: _Measurement, model: str, context: int, unused: int) -> str:
    data = {
        "model": model,
        "context": context,
        "chunks": len(measured.score.by_chunk),
        "unused_tokens": unused,
        **asdict(measured.score.likelihood),
        "by_chunk": measured.score.by_chunk,
    }
    if measured.truth is not None:
        exact, far = measured.truth
        data |= {"exact_perplexity": exact.perplexity, "kl": asdict(far)}
    return json.dumps(data, ensure_ascii=False)


def _text(measured: _Measurement, context: int) -> str:
    likely, chunks = measured.score.likelihood, len(measured.score.by_chunk)
    lines = [
        f"perplexity {likely.perplexity:.4f} +/- {likely.error:.5f} "
        f"({likely.tokens:,} tokens scored, {chunks:,} chunks of {context:,})"
    ]
    if measured.truth is not None:
        exact, far = measured.truth
        lines += [
            f"exact      {exact.perplexity:.4f}: the same file in plain float32",
            f"KL         mean {far.mean:.4g}, worst {far.worst:.4g}, the same top token at {far.same_top:.2%}",
        ]
    return "\n".join(lines)


def _running_figure(perplexities: list[float]) -> str:
    return f", perplexity so far {perplexities[-1]:.4f}" if perplexities else ""


def _check_memory(context: int, vocab: int, together: int) -> None:
    """Refuse a context whose logits do not fit the memory: of all its tokens, and the exact ones of half of them."""
    need = 4 * context * vocab * (2 + together)
    free = system.memory()
    if need > free:
        raise BusyError(
            f"not enough memory: the logits of chunks of {context:,} tokens take {need / 2**30:,.2f} GiB, "
            f"{free / 2**30:,.2f} GiB are free",
            suggestion="use a smaller --context",
            code="not_enough_memory",
            needed=need,
            available=free,
        )


def _confirm_duration(seconds: float, args: argparse.Namespace, chunks: int) -> None:
    about = f"{seconds:,.0f} s" if seconds < 120 else f"{seconds / 60:,.0f} minutes"
    if seconds > LONG_S and not args.yes:
        raise RequestError(
            f"--kl over {chunks:,} chunks will take about {about}",
            suggestion="say --yes to begin, or --chunks N to take the first ones",
            param="--kl",
        )
    if not args.quiet:
        print(f"woolly: the exact logits will take about {about}", file=sys.stderr)
