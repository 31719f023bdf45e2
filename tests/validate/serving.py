"""A small server with a real model, bad in one way if told so: `python -m tests.validate.serving KIND MODEL`.

It answers OpenAI's completions and chat as a good server does; each of BAD differs from that in one thing alone.
"""

from __future__ import annotations

import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

from woolly.llm import LLM
from woolly.request import End, Request, Sampling, Start, Text
from woolly.store import identity

BAD = ("canned", "at_the_end", "invented", "slow", "leaking")
CANNED = " the river runs to the sea and the sea is wide and the wind is on the water and the day is long" * 40
PACE_S, SLOW_S = 0.003, 0.12  # between two pieces: a tiny model alone would be too fast to tell anything by
LEAK = 2_000_000  # bytes of each answer


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    llm: LLM
    kind: str
    name: str
    leaked: ClassVar[list[bytearray]] = []

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        body: Any = {"data": [{"id": self.name}]} if self.path == "/v1/models" else {"status": "ok"}
        self.reply(200, body)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path not in ("/v1/completions", "/v1/chat/completions"):
            self.reply(404, {"error": "no such route"})
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        if self.kind == "leaking":
            self.leaked.append(bytearray(b"x" * LEAK))
        held: list[dict[str, Any]] = []
        for event in self.events(body):
            if self.kind == "at_the_end":
                held.append(event)
            else:
                self.event(event)
        for event in held:
            self.event(event)
        self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True

    def events(self, body: dict[str, Any]) -> Any:
        answer = self.canned(body) if self.kind == "canned" else self.answer(body)
        chat = "messages" in body
        for text, usage in answer:
            if usage is None:
                yield {"choices": [{"delta": {"content": text}} if chat else {"text": text}]}
                continue
            prompt, tokens, cached, reason = usage
            if self.kind == "invented":
                prompt, tokens = prompt + 3, round(tokens * 1.3) + 1
            yield {"choices": [{"delta": {}, "finish_reason": reason, "text": ""}]}
            details = {"cached_tokens": cached}
            yield {
                "choices": [],
                "usage": {"prompt_tokens": prompt, "completion_tokens": tokens, "prompt_tokens_details": details},
            }

    def answer(self, body: dict[str, Any]) -> Any:
        bias = {int(token): value for token, value in body.get("logit_bias", {}).items()}
        sampling = Sampling(temperature=body.get("temperature", 1.0), seed=body.get("seed"), logit_bias=bias)
        what: Any = {"messages": tuple(body["messages"])} if "messages" in body else {"prompt": body["prompt"]}
        cached = 0
        for event in self.llm.submit(Request(**what, sampling=sampling, max_tokens=body.get("max_tokens", 16))):
            if isinstance(event, Start):
                cached = event.cached_tokens
            elif isinstance(event, Text):
                yield event.text, None
                time.sleep(SLOW_S if self.kind == "slow" else PACE_S)
            elif isinstance(event, End):
                yield "", (event.usage.prompt_tokens, event.usage.completion_tokens, cached, event.reason)

    def canned(self, body: dict[str, Any]) -> Any:
        """Text that ignores the prompt, with right counts, in small pieces at a believable pace."""
        asked = body["prompt"] if "prompt" in body else body["messages"][-1]["content"]
        ids = self.llm.tokenize(CANNED, special=False, bos=False)[: body.get("max_tokens", 16)]
        for token in ids:
            yield self.llm.detokenize([token]), None
            time.sleep(PACE_S)
        yield "", (len(self.llm.tokenize(asked)), len(ids), 0, "length")

    def event(self, event: dict[str, Any]) -> None:
        self.wfile.write(b"data: " + json.dumps(event).encode() + b"\n\n")
        self.wfile.flush()

    def reply(self, status: int, body: Any) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def main(kind: str, model: str) -> None:
    Handler.llm, Handler.kind, Handler.name = LLM(model), kind, identity(Path(model))
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(f"listening at http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
