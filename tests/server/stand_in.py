"""A model without a model: answers with the engine's own scheduling over a runner that hashes what it sees.

`Talker` is what `LLM` is to the server: `submit` and `close`. It has no tokenizer; a token's text is a letter.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.engine.fake import Fake
from woolly.config import Config
from woolly.device import StepSize
from woolly.engine import Adapters, AnswerOptions, Engine, Figures, LogprobOptions, Sequence, Stream
from woolly.errors import ContextError, NativeError
from woolly.llm.encoder import Encoder
from woolly.llm.prompter import Prepared
from woolly.model import Adapter
from woolly.request import NOBODY, Reason, Request, Scalar, SubmitOptions, request_of
from woolly.request.messages import Message
from woolly.text import Output, OutputReader
from woolly.text.output.styles import STYLES

CONTEXT = 4096


class Letters:
    """The text of tokens: a letter each. A stop text is a letter, too.

    With a script, each token's text is the next few characters of the script, and the answer ends with it.
    """

    def __init__(self, stop: tuple[str, ...], script: str = "") -> None:
        self.stop = stop
        self.stopped = False
        self.stopped_by = ""
        self.pieces = [script[at : at + 12] for at in range(0, len(script), 12)]
        self.scripted = bool(script)

    def feed(self, token: int) -> str:
        if self.scripted:
            self.stopped = not self.pieces
            return self.pieces.pop(0) if self.pieces else ""
        text = chr(97 + token % 26)
        self.stopped = text in self.stop
        self.stopped_by = text if self.stopped else ""
        return "" if self.stopped else text

    def flush(self) -> str:
        return ""


class Slow(Fake):
    """A runner whose steps take time, or wait for `go`, so that a test can act in the middle of an answer."""

    def __init__(self, step_s: float, **sizes: int) -> None:
        super().__init__(**sizes)
        self.step_s = step_s
        self.steps = 0
        self.go = threading.Event()
        self.go.set()

    def run(self, size: StepSize) -> Any:
        self.steps += 1
        if self.step_s:
            time.sleep(self.step_s)
        self.go.wait()
        return super().run(size)


class Talker:
    def __init__(self, step_s: float = 0.0, script: str = "") -> None:
        self.script = script
        self.runner = Slow(step_s, context=CONTEXT, pages=CONTEXT // 4 * 4, wants=4, sequences=4)
        self.engine = Engine(self.runner)
        self.engine.start()
        self.seen: list[Request] = []
        self.salts: list[bytes] = []
        self.protected: list[float] = []
        self.prepared = 0  # prompts
        self.closed = False
        loaded = [Adapter(name, {}, name.encode(), f"{name}.gguf") for name in ("pirate", "judge")]
        self.adapters = Adapters(loaded, [1.0, 0.0])
        self.encoder = Encoder(
            self.engine, None, self.adapters, "talker", "logits", 1, False, (), CONTEXT, self.runner.vocab, 8
        )
        self.prompter = SimpleNamespace(spell=lambda token: chr(token).encode())
        self.card = SimpleNamespace(architecture="llama", size=2000, context=CONTEXT, sampling=dict[str, float]())
        self.info = SimpleNamespace(
            context=CONTEXT,
            isa="scalar",
            threads=1,
            kv="f16",
            exact=False,
            weights=1000,
            cache=1,
            work=1,
            kv_bytes_per_token=3,
            read_bytes_per_token=900,
            dequantized=0,
        )

    def prepare(self, request: Request) -> Prepared:
        self.prepared += 1
        return Prepared(request, (), 0)

    def submit(self, request: Request | Prepared, options: SubmitOptions = NOBODY) -> Stream:
        request = request.request if isinstance(request, Prepared) else request
        self.seen.append(request)
        self.salts.append(options.salt)
        self.protected.append(options.protect_s)
        prompt_text = request.prompt if request.prompt is not None else str(request.messages)
        tokens = list(request.tokens or ()) or [ord(sign) % self.runner.vocab for sign in prompt_text] or [0]
        answer = request.max_tokens or 100
        if len(tokens) + (1 if request.shorten else answer) > CONTEXT:
            raise ContextError(len(tokens), CONTEXT, request.max_tokens or 0)
        logprobs = LogprobOptions(request.logprobs, request.prompt_logprobs) if request.logprobs is not None else None
        how = AnswerOptions(
            sampling=request.sampling,
            seed=request.sampling.seed or 0,
            text=Letters(request.stop, self.script),  # type: ignore[arg-type]
            logprobs=logprobs,
            spell=lambda token: bytes((97 + token % 26,)),
        )
        limit, shared = min(len(tokens) + answer, CONTEXT), SubmitOptions(options.salt, unread=options.unread)
        sequence = Sequence(tokens, limit=limit, answer=how, options=shared)
        reader = OutputReader(Output(STYLES[-1]), tools=request.tools)
        return self.engine.add(sequence, reader.feed if request.messages is not None else None)

    def render(
        self,
        messages: Iterable[Message],
        *,
        tools: Iterable[Mapping[str, Any]] = (),
        chat_template_kwargs: Mapping[str, Scalar] | None = None,
        add_generation_prompt: bool = True,
    ) -> str:
        options = {"tools": tools, "chat_template_kwargs": chat_template_kwargs or {}}
        return str(request_of(options, messages=messages).messages)

    def tokenize(self, text: str, *, special: bool = True, bos: bool | None = None) -> list[int]:
        return [ord(sign) for sign in text]

    def detokenize(self, ids: Iterable[int]) -> str:
        return "".join(map(chr, ids))

    def figures(self) -> Figures:
        return self.engine.figures()

    @property
    def broken(self) -> NativeError | None:
        return self.engine.broken

    @property
    def idle(self) -> bool:
        return not self.engine.running and not self.engine.waiting and self.engine.inbox.empty()

    def gives_way(self, seconds: float = 0.1) -> bool:
        """Whether an answer is running but no step is made for so long, because the client does not read."""
        steps = self.runner.steps
        time.sleep(seconds)
        return bool(self.engine.running) and self.runner.steps == steps

    def close(self) -> None:
        self.closed = True
        self.runner.go.set()
        self.engine.close()


class CancelWatch:
    """Counts the steps between the moment an engine is told to drop a sequence and its end."""

    def __init__(self, talker: Talker) -> None:
        self.late: list[int] = []
        engine, cancelled_at = talker.engine, {}
        cancel, end = engine.cancel, engine.end

        def cancelled(sequence: Sequence) -> None:
            cancelled_at.setdefault(id(sequence), talker.runner.steps)
            cancel(sequence)

        def ended(sequence: Sequence, reason: Reason) -> None:
            if reason == "cancelled" and id(sequence) in cancelled_at:
                self.late.append(talker.runner.steps - cancelled_at.pop(id(sequence)))
            end(sequence, reason)

        engine.cancel, engine.end = cancelled, ended  # type: ignore[method-assign]


class TalkerLoader:
    """Loads talkers and keeps them in a list. A load takes `load_s`, and waits for `go`; `begun` counts loads."""

    def __init__(self, step_s: float = 0.0, load_s: float = 0.0, script: str = "") -> None:
        self.step_s = step_s
        self.script = script
        self.load_s = load_s
        self.go = threading.Event()
        self.go.set()
        self.talkers: list[Talker] = []
        self.begun = 0

    def load(self, path: Path, config: Config) -> Talker:
        self.begun += 1
        time.sleep(self.load_s)
        self.go.wait()
        self.talkers.append(Talker(self.step_s, self.script))
        return self.talkers[-1]


def until(condition: Any, seconds: float = 60.0) -> bool:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        if condition():
            return True
        time.sleep(0.005)
    return bool(condition())
