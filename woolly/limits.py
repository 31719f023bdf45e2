"""Every limit on what comes from outside, in one frozen table.

The numbers are generous for real files and small enough that a hostile one costs neither time nor memory.
"""

from __future__ import annotations

from dataclasses import dataclass


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
    vocabulary: int = 2_097_152  # words, the rows of the embedding

    input: int = 10 << 20  # bytes of standard input that a command reads
    settings: int = 1 << 20  # bytes of a settings file
    attachment: int = 1 << 20  # one file that goes with a message of a chat
    attachments: int = 16  # of one message
    conversation: int = 32 << 20  # a saved chat
    turns: int = 10_000  # messages of a chat
    history: int = 1 << 20  # bytes of what was typed before
    history_lines: int = 1_000
    stops: int = 16  # stop texts of a request
    stop_bytes: int = 256  # bytes of one
    biases: int = 1_024  # tokens with a logit bias
    logprobs: int = 20  # likeliest tokens told beside each
    bias: float = 100.0  # the most it may add or take
    variables: int = 32  # of a chat template that a request sets
    variable_name: int = 64

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


@dataclass(frozen=True, slots=True)
class Serving:
    """Limits of the server: of connections, of a request's body, of waiting work. Sizes are bytes, times seconds.

    A settings file may change each under `[limits]`; the defaults hold for everything it does not name.
    """

    request_line: int = 8 << 10
    headers: int = 32 << 10  # all of them, with the request line
    header_fields: int = 100
    header_s: float = 10.0  # to complete the headers, and before them a TLS handshake
    max_body_size: int = 10 << 20
    body_s: float = 30.0  # to complete the body, and one second more for each `body_rate`
    body_rate: int = 64 << 10
    keep_alive_s: float = 75.0
    connections: int = 512
    connections_per_address: int = 64  # beyond loopback
    unread: int = 64 << 10  # output in our buffers that a stream's reader has not taken
    unread_pieces: int = 256  # pieces of text that wait for a reader before its sequence gives way
    unread_s: float = 30.0  # without a byte taken

    nesting: int = 64  # of JSON
    values: int = 250_000  # JSON values of one body
    number: int = 64  # characters of one number
    messages: int = 2_048
    message_parts: int = 64
    prompts: int = 256  # of one request
    choices: int = 16  # `n`
    likelihoods: int = 1_000_000  # of all tokens of one answer that is not streamed, about 120 bytes each
    model_name: int = 128
    request_id: int = 128

    waiting: int = 256  # requests in line
    waiting_per_client: int = 64
    max_concurrent_requests: int = 0  # to models, in line and running; 0: as many as the line holds
    request_timeout: float = 300.0
    ole_s: float = 110.0  # of an answer to Ole that is not streamed; it gives up after 120
    drain_s: float = 30.0  # for what runs when the server is told to end
    comment_s: float = 15.0  # of silence before a comment keeps a stream alive
    max_tokens: int = 0  # of one answer; 0 is the context


LIMITS = Limits()
SERVING = Serving()
