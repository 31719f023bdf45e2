"""The limits of a server: on what its clients send, on what waits and on what it keeps. Each is a setting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from woolly.config.rows import row

MOST = 2**40  # of a limit: beyond every machine, and no counter overflows at it


def limit(default: float, help: str, **more: Any) -> Any:
    """A limit that the settings may change, under `[limits]`."""
    return row("limits.", default, help, most=MOST, **more)


@dataclass(frozen=True, slots=True)
class Serving:
    """Limits of the server: of connections, of a request's body, of waiting work. Sizes are bytes, times seconds."""

    request_line: int = limit(8 << 10, "bytes of the first line of a request")
    headers: int = limit(32 << 10, "bytes of all headers, with the request line")
    header_fields: int = limit(100, "headers of a request")
    header_s: float = limit(10.0, "to complete the headers, and before them a TLS handshake")
    max_body_size: int = limit(10 << 20, "bytes of a body")
    body_s: float = limit(30.0, "to complete the body, and one second more for each `body_rate`")
    body_rate: int = limit(64 << 10, "bytes of a body for which it has a second more")
    keep_alive_s: float = limit(75.0, "of silence before a connection is closed")
    connections: int = limit(512, "connections open at once", flags="--max-connections")
    connections_per_address: int = limit(64, "the same of one address, or /64 of IPv6, beyond loopback")
    unread: int = limit(64 << 10, "output in our buffers that a stream's reader has not taken")
    unread_pieces: int = limit(256, "pieces of text that wait for a reader before its sequence gives way")
    unread_s: float = limit(30.0, "without a byte taken")

    nesting: int = limit(64, "JSON values within each other")
    values: int = limit(250_000, "JSON values of one body")
    number: int = limit(64, "characters of one number")
    messages: int = limit(2_048, "messages of a chat")
    message_parts: int = limit(64, "parts of one message")
    prompts: int = limit(256, "prompts of one request")
    inputs: int = limit(2_048, "texts of one request for embeddings or a ranking")
    tokenized: int = limit(1 << 20, "bytes of a text of which the tokens are asked for")
    choices: int = limit(16, "answers to one prompt, `n`")
    likelihoods: int = limit(1_000_000, "likelihoods in an answer that is not streamed, about 120 bytes each")
    kept_per_key: int = limit(1_000, "responses that can be gone on from, of one key")
    kept_bytes_per_key: int = limit(16 << 20, "the same in bytes")
    kept_bytes: int = limit(64 << 20, "bytes of all of them")
    file_bytes: int = limit(100 << 20, "bytes of one file that a client uploads, for a batch")
    files_per_key: int = limit(128, "files of one key, uploaded and answered")
    file_bytes_per_key: int = limit(2 << 30, "their bytes, beyond which nothing is uploaded")
    file_bytes_in_all: int = limit(16 << 30, "the same of all keys together")
    rows: int = limit(50_000, "rows of one batch")
    batches_per_key: int = limit(64, "batches of one key that are kept")
    model_name: int = limit(128, "characters of a model's name")
    request_id: int = limit(128, "characters of X-Request-ID")

    waiting: int = limit(256, "requests in line")
    waiting_per_client: int = limit(64, "the same of one client")
    max_concurrent_requests: int = limit(0, "to models, in line and running; 0: as many as the line holds")
    request_timeout: float = limit(300.0, "seconds of one answer", flags="--timeout", metavar="S")
    ole_s: float = limit(110.0, "of an answer to Ole that is not streamed; it gives up after 120")
    drain_s: float = limit(30.0, "for what runs when the server is told to end")
    comment_s: float = limit(15.0, "of silence before a comment keeps a stream alive")
    max_tokens: int = limit(0, "tokens of one answer; 0: the context")
    answer_tokens: int = row(
        "limits.", 0, "tokens of an answer where its request names no number; 0: as its route has it", most=2**31 - 1
    )


SERVING = Serving()
