"""Measure the speed of a model, of this machine, or of each kernel.

    woolly bench model.gguf                                   prompts, tokens, steps of several sequences
    woolly bench --shape llama-3.2-1b:Q4_K_M                  a random model of a real shape, made for the occasion
    woolly bench smollm2 --against llama.cpp                  ratios, in alternating slices
    woolly bench smollm2 --profile                            where the time of a token goes
    woolly bench machine                                      reading, multiplying, meeting: the limits
    woolly bench kernels                                      every tensor type with every instruction set

Every figure has the state of the machine beside it: near or far cores (what a barrier costs), and how fast memory is
read.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from woolly import system
from woolly.cli.find import find_model
from woolly.cli.flags import add_flags, flag_values
from woolly.cli.status import status
from woolly.config import Config, read_config
from woolly.errors import RequestError, printable
from woolly.store import DEFAULT

MOST = 1 << 20  # tokens, positions, repetitions: a larger number is taken for a typing error


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "%(prog)s [MODEL | machine | kernels] [options]"
    parser.add_argument(
        "what", nargs="?", metavar="MODEL", help="a path or name (default smollm2), machine, or kernels"
    )
    parser.add_argument(
        "--shape",
        metavar="NAME:MIX[@LAYERS]",
        help="a random model of this shape instead, as llama-3.2-1b:Q4_K_M; @4: its first 4 layers",
    )
    parser.add_argument("-p", "--prompt", type=int, default=512, metavar="N", help="tokens of the prompt (default 512)")
    parser.add_argument("-n", "--tokens", type=int, default=64, metavar="N", help="tokens one by one (default 64)")
    add_flags(parser, "threads", "kv", "exact")
    parser.add_argument("-r", "--repetitions", type=int, metavar="N", help="of each test (default 5; kernels: 10)")
    parser.add_argument("--batch", default="1,2,4,8", metavar="N,N", help="sequences of a step (default 1,2,4,8)")
    parser.add_argument(
        "--depth", type=int, default=0, metavar="N", help="tokens before those that are timed (default 0)"
    )
    parser.add_argument("--profile", action="store_true", help="where a step's time goes, instruction by instruction")
    parser.add_argument("--against", metavar="PEER", help="llama.cpp, or the path of a llama-bench program")
    parser.add_argument("--seconds", type=float, default=60.0, metavar="X", help="of each comparison (default 60)")
    parser.add_argument("-q", "--quiet", action="store_true", help="no word on what is being done")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")


def call(args: argparse.Namespace) -> int:
    for name, least in (("prompt", 0), ("tokens", 0), ("depth", 0), ("repetitions", 1)):
        value = getattr(args, name)
        if value is not None and not least <= value <= MOST:
            raise RequestError(f"--{name} is {value}, expected {least:,} to {MOST:,}", param=f"--{name}")
    if not 0 < args.seconds <= 86400:
        raise RequestError("--seconds must be above 0 and at most 86,400", param="--seconds")
    config = read_config(**flag_values(args))
    threads = system.threads(config.engine.threads)
    if args.shape is not None and args.what is not None:
        raise RequestError("--shape makes its own model; leave the MODEL out", param="--shape")
    if args.what == "machine":
        return _machine(args, threads)
    if args.what == "kernels":
        return _kernels(args, threads)
    return _model(args, config, threads)


def _machine(args: argparse.Namespace, threads: int) -> int:
    from woolly import bench  # NumPy and the native core: not before a wrong word was refused

    roofline = bench.measure_roofline(threads, repetitions=args.repetitions or 5)
    _print(bench.roofline_lines(roofline), bench.figures(roofline) if args.json else None)
    return 0


def _kernels(args: argparse.Namespace, threads: int) -> int:
    from woolly import bench

    def say(line: str) -> None:
        if not args.json:
            print(line, flush=True)

    rounds = args.repetitions or 10
    roofline = bench.measure_roofline(threads, repetitions=3)
    assert roofline.machine.clock_ghz is not None
    for line in (*bench.roofline_lines(roofline), "", bench.PRODUCT_HEAD):
        say(line)
    products, cases = [], []
    for product in bench.products(threads, roofline.machine.clock_ghz, rounds=rounds):
        products.append(product)
        say(bench.product_line(product))
    say("")
    for case in bench.cases(threads, rounds=rounds):
        cases.append(case)
        say(bench.case_line(case))
    if args.json:
        print(json.dumps(bench.figures(roofline) | bench.figures({"products": products, "cases": cases})))
    return 0


def _model(args: argparse.Namespace, config: Config, threads: int) -> int:
    batches = _batches(args.batch)
    if not args.prompt and not args.tokens:
        raise RequestError("-p 0 and -n 0 leave nothing to measure", param="-p")

    from woolly import bench

    bench_plan = bench.BenchPlan(
        prompt=args.prompt,
        tokens=args.tokens,
        threads=threads,
        repetitions=args.repetitions or 5,
        batches=batches,
        depth=args.depth,
        kv=config.engine.kv,
        exact=config.engine.exact,
        profile=args.profile,
        against=args.against or "",
        python=config.peer_python,
        seconds=args.seconds,
    )
    with _model_file(args, config) as (path, name):
        report = bench.bench_model(path, name, bench_plan, say=status(quiet=args.quiet))
    _print(bench.report_lines(report), bench.figures(report) if args.json else None)
    return 0


@contextmanager
def _model_file(args: argparse.Namespace, config: Config) -> Iterator[tuple[Path, str]]:
    """The model that was named; or one of the shape, in a folder that goes away."""
    if args.shape is None:
        path = find_model(args.what or DEFAULT, config)
        yield path, path.name
        return
    from woolly import bench

    title, shape, mix = bench.read_shape(args.shape)
    with tempfile.TemporaryDirectory(prefix="woolly-bench-") as folder:
        status(quiet=args.quiet)(f"writing a random model of {title}")
        yield bench.write_model(Path(folder) / "model.gguf", title, shape, mix), title


def _batches(text: str) -> tuple[int, ...]:
    words = text.split(",")
    if not all(word.isascii() and word.isdigit() and 1 <= int(word[:9]) <= 64 for word in words):
        raise RequestError(f"--batch is '{printable(text)}', expected numbers of 1 to 64 as in 1,2,4", param="--batch")
    return tuple(dict.fromkeys(map(int, words)))


def _print(lines: Iterator[str], data: dict[str, object] | None) -> None:
    status()("")
    if data is not None:
        print(json.dumps(data))
    else:
        print("\n".join(lines))
