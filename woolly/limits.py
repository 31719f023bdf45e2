"""Every limit on what comes from outside, in a frozen table; those of a server are settings (config/serving.py).

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
    stop_bytes: int = 256  # bytes of one such text
    format_bytes: int = 64 << 10  # of a schema or grammar that answers follow
    format_depth: int = 32  # of a schema: levels of nested values
    format_values: int = 2_000  # of a schema
    grammar_s: float = 0.5  # seconds of work to compile a format
    grammars_s: float = 2.0  # the same for a format and all tools of a request
    grammar_memory: int = 128 << 20  # what compiling a format may take
    mask_s: float = 0.1  # seconds of work to tell which tokens may follow
    mask_usual_s: float = 0.02  # seconds of work that each token of an answer may take
    mask_debt_s: float = 2.0  # seconds that all tokens of an answer may take beyond that
    biases: int = 1_024  # tokens with a logit bias
    adapters: int = 64  # loaded with a model
    wire_frame: int = 4 << 20  # characters of the rules around a format, between a gateway and a replica
    wire_line: int = 128 << 20  # bytes of one event from a replica: that of a long prompt's likelihoods is large
    fleet: int = 1_024  # replicas that a gateway knows
    fleet_models: int = 256  # names of models that a gateway knows
    replica_pages: int = 1 << 17  # cache pages of one replica that a gateway knows, about 100 bytes each
    fleet_pages: int = 1 << 21  # the same of all replicas together
    lora_scale: float = 100.0  # the largest scale of an adapter
    logprobs: int = 20  # the likeliest tokens that are reported for each token
    bias: float = 100.0  # the most that a bias may add or take
    variables: int = 32  # of a chat template that a request sets
    variable_name: int = 64
    tools: int = 1_024  # that a request offers

    mcp_message: int = 4 << 20  # one message of an MCP server
    mcp_flood: int = 16 << 20  # all that a server may send before it answers a request
    mcp_result: int = 64 << 10  # text of the result of one call
    mcp_servers: int = 16  # that a request names
    mcp_tools: int = 128  # tools of one server
    mcp_pages: int = 16  # of a server's list of tools
    mcp_description: int = 4_096  # characters of a tool's description
    mcp_rounds: int = 8  # times that results are given back before a question is answered

    batch_file: int = 16 << 30  # the rows of a batch that a command reads
    batch_rows: int = 1_000_000
    batch_answer: int = 512 << 20  # one line of a batch's output
    batch_window: int = 512  # rows that are read ahead of the oldest that is not written
    batch_window_bytes: int = 64 << 20  # bytes of these rows, and as many of answers that are held
    batch_prefix: int = 2_048  # bytes of a prompt by which rows that begin alike are found
    batch_patience_s: float = 300.0  # without any answer before a job gives up
    custom_id: int = 512  # characters of the id of a row

    manifest: int = 4 << 20  # a list of files that another program or a server wrote
    folder_entries: int = 10_000  # files and folders looked at in one store of models
    folder_depth: int = 6
    redirects: int = 5  # of one download
    stall_s: float = 30.0  # without a byte from the other side
    tries: int = 5  # attempts in a row that bring no new bytes

    template: int = 1 << 20  # source of a chat template
    template_s: float = 1.0  # seconds of one render
    template_memory: int = 64 << 20  # what one render may add to its process
    template_output: int = 8 << 20


LIMITS = Limits()
