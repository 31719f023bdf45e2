"""Embeddings of 1,000 texts of 20 to 200 tokens, beside llama.cpp on the same file and the same ids.

    python -m tests.measure.embeddings [SHAPE:TYPE ...] [--texts N] [--threads N] [--rounds N]

WOOLLY_PEER_PYTHON names a Python that has llama_cpp; without it only Woolly is measured. Files are random models of a
real shape. Both sides take turns, and the best round of each counts.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from woolly import LLM, gguf, system
from woolly.bench.random_model import random_rows


@dataclass(frozen=True, slots=True)
class Shape:
    family: str
    layers: int
    width: int
    heads: int
    ffn: int
    vocab: int
    context: int
    pooling: int


SHAPES = {
    "bge-small": Shape("bert", 12, 384, 12, 1536, 30522, 512, 2),
    "nomic-embed": Shape("nomic-bert", 12, 768, 12, 3072, 30528, 2048, 1),
}


def tensors(shape: Shape, form: str) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    """Name, type and size of every tensor."""
    width, bert = shape.width, shape.family == "bert"

    def matrix(name: str, rows: int, columns: int, kind: str = form) -> Iterator[tuple[str, str, tuple[int, ...]]]:
        yield f"{name}.weight", kind, (rows, columns)
        if bert and name.startswith("blk."):
            yield f"{name}.bias", "F32", (rows,)

    yield from matrix("token_embd", shape.vocab, width)
    yield from matrix("token_types", 2, width, "F32")
    if bert:
        yield from matrix("position_embd", shape.context, width, "F32")
    norms = ["token_embd_norm"]
    for layer in range(shape.layers):
        block = f"blk.{layer}."
        norms += [f"{block}attn_output_norm", f"{block}layer_output_norm"]
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            yield from matrix(block + name, width, width)
        for name in ("ffn_up",) if bert else ("ffn_gate", "ffn_up"):
            yield from matrix(block + name, shape.ffn, width)
        yield from matrix(f"{block}ffn_down", width, shape.ffn)
    for name in norms:
        yield f"{name}.weight", "F32", (width,)
        yield f"{name}.bias", "F32", (width,)


def write(path: Path, shape: Shape, form: str) -> Path:
    rng = np.random.default_rng(1)
    weights: dict[str, tuple[str, tuple[int, ...], Any]] = {}
    for name, kind, size in tensors(shape, form):
        if len(size) == 1:
            near = 1.0 if name.endswith("norm.weight") else 0.0
            data = (near + 0.1 * rng.standard_normal(size)).astype(np.float32)
        else:
            rows, columns = size
            data = random_rows(kind, rows, columns, columns**-0.5, rng)
        weights[name] = (kind, size, data.tobytes())
    keys = {
        "block_count": shape.layers, "context_length": shape.context, "embedding_length": shape.width,
        "feed_forward_length": shape.ffn, "attention.head_count": shape.heads, "attention.causal": False,
        "attention.layer_norm_epsilon": 1e-12, "pooling_type": shape.pooling,
    }  # fmt: skip
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"\u2581w{i}" for i in range(5, shape.vocab))]
    tokenizer = {
        "model": "bert", "tokens": words, "token_type": np.array([3] * 5 + [1] * (shape.vocab - 5), np.int32),
        "unknown_token_id": 1, "bos_token_id": 2, "eos_token_id": 3, "seperator_token_id": 3, "padding_token_id": 0,
        "cls_token_id": 2, "mask_token_id": 4, "token_type_count": 2, "pre": "jina-v2-en",
    }  # fmt: skip
    meta = {"general.architecture": shape.family, "general.name": path.stem}
    meta |= {f"{shape.family}.{key}": value for key, value in keys.items()}
    gguf.write(path, meta | {f"tokenizer.ggml.{key}": value for key, value in tokenizer.items()}, weights)
    return path


PEER = """
import ctypes, json, sys, time
import llama_cpp as L
model, threads, batch = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
quiet = L.llama_log_callback(lambda level, text, data: None)
L.llama_log_set(quiet, None)
L.llama_backend_init()
params = L.llama_model_default_params()
params.n_gpu_layers = 0
m = L.llama_model_load_from_file(model.encode(), params)
c = L.llama_context_default_params()
c.n_ctx, c.n_batch, c.n_ubatch, c.n_seq_max = batch, batch, batch, 64
c.n_threads = c.n_threads_batch = threads
c.embeddings, c.kv_unified = True, True
ctx = L.llama_init_from_model(m, c)
width = L.llama_model_n_embd(m)
b = L.llama_batch_init(batch, 0, 1)
def flush(sequences):
    if not sequences: return []
    n = 0
    for s, ids in enumerate(sequences):
        for p, t in enumerate(ids):
            b.token[n], b.pos[n], b.n_seq_id[n], b.logits[n] = t, p, 1, 1
            b.seq_id[n][0] = s
            n += 1
    b.n_tokens = n
    assert L.llama_encode(ctx, b) == 0 if hasattr(L, "llama_encode") else L.llama_decode(ctx, b) == 0
    return [L.llama_get_embeddings_seq(ctx, s)[0:width] for s in range(len(sequences))]
for line in sys.stdin:
    texts = json.loads(line)
    begin, out, group, used = time.perf_counter(), [], [], 0
    for ids in texts:
        if used + len(ids) > batch or len(group) == 64:
            out += flush(group)
            group, used = [], 0
        group.append(ids)
        used += len(ids)
    out += flush(group)
    print(json.dumps({"seconds": time.perf_counter() - begin, "first": out[0]}), flush=True)
"""


class Peer:
    """llama.cpp in a process of its own."""

    def __init__(self, python: str, path: Path, threads: int, batch: int) -> None:
        command = [python, "-c", PEER, str(path), str(threads), str(batch)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, texts: list[list[int]]) -> tuple[float, list[float]]:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(texts) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        return answer["seconds"], answer["first"]

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


def measure(name: str, form: str, count: int, threads: int, rounds: int) -> str:
    shape = SHAPES[name]
    drawn = random.Random(7)
    texts = [[2, *(drawn.randrange(5, shape.vocab) for _ in range(drawn.randint(18, 198))), 3] for _ in range(count)]
    tokens = sum(map(len, texts))
    python = os.environ.get("WOOLLY_PEER_PYTHON", "")
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder) / f"{name}-{form}.gguf", shape, form)
        batches = (512, 2048)
        peers = [Peer(python, path, threads, batch) for batch in batches] if python else []
        ours, theirs, near = float("inf"), [float("inf")] * len(peers), 0.0
        try:
            with LLM(path, threads=threads) as llm:
                llm.embed(texts[:64])
                for _ in range(rounds):
                    begin = time.perf_counter()
                    vectors = llm.embed(texts)
                    ours = min(ours, time.perf_counter() - begin)
                    for index, peer in enumerate(peers):
                        seconds, first = peer.run(texts)
                        theirs[index] = min(theirs[index], seconds)
                        own = np.array(first) / np.linalg.norm(first)
                        near = float(own @ vectors[0])
        finally:
            for peer in peers:
                peer.close()
    line = f"{name}:{form}, {count} texts, {tokens} tokens, {threads} threads: {tokens / ours:,.0f} tokens/s"
    if peers:
        best = min(theirs)
        each = ", ".join(f"{tokens / s:,.0f} (batch {n})" for s, n in zip(theirs, batches, strict=True))
        line += f"; llama.cpp {each}; {best / ours:.2f} x; cosine of the first {near:.6f}"
    return line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", default=[f"{name}:{form}" for name in SHAPES for form in ("F16", "Q8_0")])
    parser.add_argument("--texts", type=int, default=1000)
    parser.add_argument("--threads", type=int, default=system.cores())
    parser.add_argument("--rounds", type=int, default=2)
    args = parser.parse_args()
    for word in args.what:
        name, _, form = word.partition(":")
        print(measure(name, form, args.texts, args.threads, args.rounds), flush=True)


if __name__ == "__main__":
    sys.exit(main())
