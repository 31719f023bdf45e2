"""Every limit on what comes from outside, in two frozen tables.

The numbers are generous for real files and small enough that a hostile one costs neither time nor memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from woolly.settings import row


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of GGUF files, then of requests, of stores and downloads, of templates; sizes are bytes."""

    header: int = 256 << 20  # metadata and tensor table of one file
    entries: int = 65_536  # metadata entries
    tensors: int = 65_536
    key: int = 65_535
    string: int = 16 << 20  # one string value
    element: int = 65_535  # one string of an array: a token or a merge
    array: int = 4_194_304  # elements of one array
    tensor_name: int = 63
    dimensions: int = 4
    alignment_least: int = 8
    alignment_most: int = 65_536
    parts: int = 1_000  # files of a split set
    layers: int = 1_024
    width: int = 131_072  # of the residual stream, and of a head
    heads: int = 1_024
    experts: int = 2_048  # of a layer
    taps: int = 64  # of a convolution
    vocabulary: int = 2_097_152  # words, the rows of the embedding

    input: int = 10 << 20  # bytes of standard input that a command reads
    settings: int = 1 << 20  # bytes of a settings file
    attachment: int = 1 << 20  # one file that goes with a message of a chat
    attachments: int = 16  # of one message
    conversation: int = 32 << 20  # a saved chat
    turns: int = 10_000  # messages of a chat
    history: int = 1 << 20  # bytes of what was typed before
    history_lines: int = 1_000
    stops: int = 16  # stop texts of a request, or texts that break a repetition
    stop_bytes: int = 256  # bytes of one
    format_bytes: int = 64 << 10  # of a schema or grammar that answers follow
    format_depth: int = 32  # of a schema: values within each other
    format_values: int = 2_000  # of a schema
    grammar_s: float = 0.5  # seconds of work to compile one
    grammar_memory: int = 128 << 20  # what compiling it may take
    mask_s: float = 0.1  # seconds of work to tell which tokens may follow
    mask_usual_s: float = 0.02  # that each token of an answer may take
    mask_debt_s: float = 2.0  # that all of them may take beyond that
    biases: int = 1_024  # tokens with a logit bias
    adapters: int = 64  # loaded with a model
    wire_frame: int = 4 << 20  # characters of the rules around a format, between a gate and a replica
    wire_line: int = 128 << 20  # bytes of one event there: that of a long prompt's likelihoods is large
    fleet: int = 1_024  # replicas that a gate knows
    lora_scale: float = 100.0  # the most that an adapter counts
    logprobs: int = 20  # likeliest tokens told beside each
    bias: float = 100.0  # the most it may add or take
    variables: int = 32  # of a chat template that a request sets
    variable_name: int = 64
    tools: int = 1_024  # that a request offers

    mcp_message: int = 4 << 20  # one message of an MCP server
    mcp_flood: int = 16 << 20  # all that one sends while it owes us an answer
    mcp_result: int = 64 << 10  # text of one result
    mcp_tools: int = 128  # of one server
    mcp_pages: int = 16  # of its list of tools
    mcp_description: int = 4_096  # characters of one
    mcp_rounds: int = 8  # times that results are given back before a question is answered

    batch_file: int = 16 << 30  # the rows of a batch that a command reads
    batch_rows: int = 1_000_000
    batch_answer: int = 512 << 20  # one line of its output
    batch_window: int = 512  # rows that are read ahead of the oldest that is not written
    batch_window_bytes: int = 64 << 20  # of these, and the same of answers that are held
    batch_prefix: int = 2_048  # bytes of a prompt by which rows that begin alike are found
    batch_patience_s: float = 300.0  # without any answer before a job gives up
    custom_id: int = 512  # characters of one

    manifest: int = 4 << 20  # a list of files that another program or a server wrote
    folder_entries: int = 10_000  # files and folders looked at in one store of models
    folder_depth: int = 6
    redirects: int = 5  # of one download
    stall_s: float = 30.0  # without a byte from the other side
    tries: int = 5  # in a row that bring nothing new

    template: int = 1 << 20  # source of a chat template
    template_s: float = 1.0  # seconds of one render
    template_memory: int = 64 << 20  # what one render may add to its process
    template_output: int = 8 << 20


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
    connections_per_address: int = limit(64, "the same of one address beyond loopback")
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


LIMITS = Limits()
SERVING = Serving()
