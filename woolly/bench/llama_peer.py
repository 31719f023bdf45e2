"""llama.cpp as the other side of a comparison: a process of its own that runs slices and reports their seconds.

Started by peer.py with a Python that has `llama_cpp`; imports nothing of Woolly. The first argument is JSON with model,
threads, positions, sequences, kv and repack. Then a line of JSON on standard input is answered by one on
standard output, until the input ends.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

KV = {"f32": 0, "f16": 1, "q8": 8}  # ggml's numbers of F32, F16 and Q8_0
BATCH, STEP = 2048, 512  # llama.cpp's own defaults: tokens of a call, and of a step inside of it


class Peer:
    """A loaded model of llama.cpp. Times are those around llama_decode and llama_synchronize."""

    def __init__(self, options: dict[str, Any]) -> None:
        import llama_cpp

        self.lib: Any = llama_cpp
        self.quiet = self.lib.llama_log_callback(lambda level, text, data: None)
        self.lib.llama_log_set(self.quiet, None)
        self.lib.llama_backend_init()
        begin = time.perf_counter()
        params = self.lib.llama_model_default_params()
        params.n_gpu_layers = 0
        params.use_extra_bufts = bool(options["repack"])
        self.model = self.lib.llama_model_load_from_file(options["model"].encode(), params)
        if not self.model:
            raise SystemExit("llama.cpp could not load the model")
        context = self.lib.llama_context_default_params()
        context.n_ctx = options["sequences"] * -(-options["positions"] // 256) * 256
        context.n_batch, context.n_ubatch = BATCH, STEP
        context.n_seq_max = options["sequences"]
        context.n_threads = context.n_threads_batch = options["threads"]
        context.type_k = context.type_v = KV[options["kv"]]
        self.context = self.lib.llama_init_from_model(self.model, context)
        if not self.context:
            raise SystemExit("llama.cpp could not make a context")
        self.load_s = time.perf_counter() - begin
        self.memory = self.lib.llama_get_memory(self.context)
        self.vocab = self.lib.llama_vocab_n_tokens(self.lib.llama_model_get_vocab(self.model))
        self.batch = self.lib.llama_batch_init(BATCH, 0, 1)

    def prompt(self, count: int, depth: int, sequence: int = 0) -> float:
        self.lib.llama_memory_seq_rm(self.memory, sequence, depth, -1)
        seconds = 0.0
        for first in range(depth, depth + count, BATCH):
            places = range(first, min(first + BATCH, depth + count))
            rows = [(place, sequence, place == depth + count - 1) for place in places]
            seconds += self.decode(rows)
        return seconds

    def tokens(self, count: int, depth: int, sequences: int) -> float:
        for sequence in range(sequences):
            self.lib.llama_memory_seq_rm(self.memory, sequence, depth, -1)
        return sum(self.decode([(depth + i, sequence, True) for sequence in range(sequences)]) for i in range(count))

    def decode(self, rows: list[tuple[int, int, bool]]) -> float:
        """One call with (position, sequence, whether logits are wanted) for each token."""
        batch = self.batch
        batch.n_tokens = len(rows)
        for i, (position, sequence, wanted) in enumerate(rows):
            batch.token[i] = ((position + 1000 * sequence) * 7919 + 1) % self.vocab
            batch.pos[i] = position
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = sequence
            batch.logits[i] = wanted
        begin = time.perf_counter()
        failed = self.lib.llama_decode(self.context, batch)
        self.lib.llama_synchronize(self.context)
        seconds = time.perf_counter() - begin
        if failed:
            raise SystemExit(f"llama_decode answered {failed}")
        return seconds

    def answer(self, request: dict[str, Any]) -> float:
        if request["kind"] == "fill":
            return sum(self.prompt(request["depth"], 0, sequence) for sequence in range(request["sequences"]))
        if request["kind"] == "prompt":
            return self.prompt(request["count"], request["depth"])
        return self.tokens(request["count"], request["depth"], request["sequences"])


def main() -> None:
    # What the library prints must not mix with the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    peer = Peer(json.loads(sys.argv[1]))
    about = {"load_s": peer.load_s, "version": peer.lib.__version__}
    print(json.dumps(about), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps({"seconds": peer.answer(json.loads(line))}), file=answers, flush=True)


if __name__ == "__main__":
    main()
