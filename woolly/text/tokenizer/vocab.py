"""The words of a tokenizer as a GGUF file lists them, checked once and for all.

Everything in a file may be wrong on purpose, so every value is looked at here: kinds, lengths, ranges, duplicates. What
passes is a `Vocab`, and the rest of the room trusts it. A refusal names the key, the place in it and what was expected.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from woolly.errors import FileError, printable
from woolly.limits import LIMITS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Kinds of token, as `tokenizer.ggml.token_type` numbers them.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)

_KEY = "tokenizer.ggml."
_NO_TOKEN = (-1, 2**32 - 1)  # how files write "there is no such token"

# Texts that end an answer although no key of the file says so: some files forget the key, some give a wrong kind.
_ENDS = {
    *("<|eot_id|>", "<|eom_id|>", "<|eot|>", "<|im_end|>", "<|end|>", "<|endoftext|>", "<|end_of_text|>"),
    *("<|return|>", "<|call|>", "<|calls|>", "<|flush|>", "<end_of_turn>", "<end_of_utterance>"),
    *("<turn|>", "<|tool_response>", "<\uff5cend\u2581of\u2581sentence\uff5c>", "[e~["),
}
# These occur in ordinary text, too (`</s>` is HTML): they end an answer only where the file calls them special.
_ENDS_IF_SPECIAL = {"</s>", "<eos>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]"}
# The tokens around a gap in a text: their keys in a file, and their texts where it has no such keys.
_GAP = {
    "fim_pre_token_id": (
        "<|fim_prefix|>",
        "<fim_prefix>",
        "<fim-prefix>",
        "<\uff5cfim\u2581begin\uff5c>",
        "\u2581<PRE>",
    ),
    "fim_suf_token_id": (
        "<|fim_suffix|>",
        "<fim_suffix>",
        "<fim-suffix>",
        "<\uff5cfim\u2581hole\uff5c>",
        "\u2581<SUF>",
    ),
    "fim_mid_token_id": ("<|fim_middle|>", "<fim_middle>", "<fim-middle>", "<\uff5cfim\u2581end\uff5c>", "\u2581<MID>"),
}
# The same of the tokens before the files of a repository: before its name, and before the name of each.
_FILES = {
    "fim_rep_token_id": ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"),
    "fim_sep_token_id": ("<|file_sep|>",),
}
_BYTE_TEXT = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_PHI3_NOT_GREEDY = ("<unk>", "<s>", "<|endoftext|>")


@dataclass(frozen=True, slots=True)
class Vocab:
    """Tokens with their kinds, and which of them have a special part."""

    model: str
    pre: str  # "" when the file does not say
    tokens: Sequence[str]
    ids: Mapping[str, int]  # of each token
    kinds: bytes  # one kind a token; a user-defined token that ends an answer counts as control
    scores: NDArray[np.float32] | None
    bos: int | None
    eos: int | None
    unknown: int | None
    separator: int | None
    ends: frozenset[int]  # tokens that end an answer
    gap: tuple[int, ...]  # before a text with a gap, at the gap, and before what fills it; () where there are none
    files: tuple[int | None, int | None]  # before the name of a repository, and before that of each of its files
    greedy: frozenset[int]  # special tokens that take the white space after them with them
    add_bos: bool | None  # None when the file does not say
    add_eos: bool  # behind a text that is complete
    add_separator: bool | None  # between two texts of a pair
    add_space_prefix: bool | None

    def of_kind(self, *kinds: int) -> list[int]:
        """Ids of all tokens of these kinds."""
        ids: list[int] = []
        for kind in kinds:
            at = self.kinds.find(kind)
            while at >= 0:
                ids.append(at)
                at = self.kinds.find(kind, at + 1)
        return sorted(ids)


def read_vocab(meta: Mapping[str, Any]) -> Vocab:
    """The vocabulary of a file; FileError when something in it cannot be right."""
    tokens = _strings(meta, "tokens")
    if tokens is None or not tokens:
        raise FileError(f"{_KEY}tokens is missing or empty", suggestion="the file holds no tokenizer")
    ids = dict(zip(tokens, range(len(tokens)), strict=True))
    _check_tokens(tokens, ids)
    kinds = bytearray(_kinds(meta, len(tokens)))
    bos, eos, eot, eom, unknown = (_id(meta, f"{n}_token_id", tokens) for n in ("bos", "eos", "eot", "eom", "unknown"))
    begin = _id(meta, "cls_token_id", tokens) if bos is None else bos
    separator = _id(meta, "seperator_token_id", tokens)  # spelled so in every file
    add_bos = flag_value(meta, "add_bos_token")
    if add_bos and begin is None:
        raise FileError(f"{_KEY}add_bos_token is true, but the file names no beginning token ({_KEY}bos_token_id)")
    ends = _ends(ids, kinds, (eos, eot, eom))
    for end in ends:
        if kinds[end] == USER_DEFINED:
            kinds[end] = CONTROL
    gap = list(_marks(_GAP, meta, tokens, ids))
    repository, file = _marks(_FILES, meta, tokens, ids)
    vocab = Vocab(
        model=text_value(meta, _KEY + "model"),
        pre=text_value(meta, _KEY + "pre"),
        tokens=tokens,
        ids=ids,
        kinds=bytes(kinds),
        scores=_scores(meta, len(tokens)),
        bos=begin,
        eos=eos,
        unknown=unknown,
        separator=separator,
        ends=ends,
        gap=tuple(id for id in gap if id is not None) if None not in gap else (),
        files=(repository, file),
        greedy=_greedy(meta, tokens, kinds),
        add_bos=add_bos,
        add_eos=bool(flag_value(meta, "add_eos_token")) and eos is not None,
        add_separator=flag_value(meta, "add_sep_token"),
        add_space_prefix=flag_value(meta, "add_space_prefix"),
    )
    for i in vocab.of_kind(BYTE):
        if byte_of(tokens[i]) < 0:
            read = printable(tokens[i])
            raise FileError(f"{_KEY}tokens: byte token {i} reads '{read}', expected <0x00> to <0xFF>", index=i)
    return vocab


def _marks(
    rows: Mapping[str, tuple[str, ...]], meta: Mapping[str, Any], tokens: Sequence[str], ids: Mapping[str, int]
) -> Iterator[int | None]:
    """The token of each row: the one that its key names, else the first of its texts."""
    for key, texts in rows.items():
        named = _id(meta, key, tokens)
        yield next((ids[text] for text in texts if text in ids), None) if named is None else named


def byte_of(token: str) -> int:
    """The byte that a byte token stands for, from its text `<0xXX>`; -1 for any other text."""
    match = _BYTE_TEXT.fullmatch(token)
    return int(match[1], 16) if match else -1


def read_merges(meta: Mapping[str, Any]) -> Sequence[str]:
    """The lines of `tokenizer.ggml.merges`: two parts and a space, no line twice. A file may have none."""
    lines = _strings(meta, "merges")
    if lines is None:
        raise FileError(f"{_KEY}merges is missing", suggestion="convert the model again")
    if len(set(lines)) != len(lines):
        seen: set[str] = set()
        for i, line in enumerate(lines):
            if line in seen:
                raise FileError(f"{_KEY}merges: merge {i} '{printable(line)}' is there twice", index=i)
            seen.add(line)
    return lines


def text_value(meta: Mapping[str, Any], key: str) -> str:
    """A text value of the file, or "" when it has none."""
    value = meta.get(key, "")
    if not isinstance(value, str):
        raise FileError(f"{key} is {_kind(value)}, expected text", key=key)
    return value


def _strings(meta: Mapping[str, Any], name: str) -> Sequence[str] | None:
    value = meta.get(_KEY + name)
    if value is None:
        return None
    if not isinstance(value, list | tuple) or not set(map(type, value)) <= {str}:
        raise FileError(f"{_KEY}{name} is {_kind(value)}, expected a list of texts", key=_KEY + name)
    return value


def _check_tokens(tokens: Sequence[str], ids: Mapping[str, int]) -> None:
    if len(ids) != len(tokens):
        for i, token in enumerate(tokens):
            if ids[token] != i:
                raise FileError(f"{_KEY}tokens: token {i} '{printable(token)}' is also token {ids[token]}", index=i)
    if "" in ids:
        raise FileError(f"{_KEY}tokens: token {ids['']} is empty", index=ids[""])
    longest = max(map(len, tokens)) if _is_text("".join(tokens)) else LIMITS.element
    if longest * 4 > LIMITS.element:  # a character has at most four bytes, so the common case needs no second look
        for i, token in enumerate(tokens):
            if not _is_text(token):
                raise FileError(f"{_KEY}tokens: token {i} is not UTF-8", index=i)
            if len(token.encode()) > LIMITS.element:
                raise FileError(f"{_KEY}tokens: token {i} is longer than {LIMITS.element:,} bytes", index=i)


def _is_text(token: str) -> bool:
    try:
        token.encode()
    except UnicodeEncodeError:
        return False
    return True


def _kinds(meta: Mapping[str, Any], count: int) -> bytes:
    value = meta.get(_KEY + "token_type")
    if value is None:
        return bytes([NORMAL]) * count
    numbers = _numbers(value, "token_type", ("int32", "uint32"))
    if len(numbers) != count:
        raise FileError(f"{_KEY}token_type has {len(numbers):,} entries for {count:,} tokens")
    if numbers.min() < NORMAL or numbers.max() > BYTE:
        at = int(((numbers < NORMAL) | (numbers > BYTE)).argmax())
        raise FileError(f"{_KEY}token_type: token {at} has kind {numbers[at]}, expected 1 to 6", index=at)
    return bytes(numbers.astype("uint8"))


def _scores(meta: Mapping[str, Any], count: int) -> NDArray[np.float32] | None:
    import numpy as np

    value = meta.get(_KEY + "scores")
    if value is None:
        return None
    numbers = _numbers(value, "scores", ("float32",)).astype(np.float32, copy=False)
    if len(numbers) != count:
        raise FileError(f"{_KEY}scores has {len(numbers):,} entries for {count:,} tokens")
    if not np.isfinite(numbers).all():
        at = int((~np.isfinite(numbers)).argmax())
        raise FileError(f"{_KEY}scores: the score of token {at} is {numbers[at]}, expected a finite number", index=at)
    return numbers


def _numbers(value: object, name: str, types: tuple[str, ...]) -> NDArray[Any]:
    import numpy as np

    if not isinstance(value, list | tuple | np.ndarray):
        raise FileError(f"{_KEY}{name} is {_kind(value)}, expected a list of numbers", key=_KEY + name)
    try:
        numbers = value if isinstance(value, np.ndarray) else np.array(value, dtype=types[0])
    except (ValueError, TypeError, OverflowError):
        numbers = np.array([], dtype=object)
    if numbers.ndim != 1 or numbers.dtype.name not in types:
        raise FileError(f"{_KEY}{name} holds {numbers.dtype.name}, expected {types[0]}", key=_KEY + name)
    return numbers


def _id(meta: Mapping[str, Any], name: str, tokens: Sequence[str]) -> int | None:
    value = meta.get(_KEY + name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool):
        raise FileError(f"{_KEY}{name} is {_kind(value)}, expected a whole number", key=_KEY + name)
    if value in _NO_TOKEN:
        return None
    if not 0 <= value < len(tokens):
        raise FileError(f"{_KEY}{name} is {value}, but the vocabulary has {len(tokens):,} tokens", key=_KEY + name)
    return value


def flag_value(meta: Mapping[str, Any], name: str) -> bool | None:
    """A switch of the tokenizer, None where the file does not say."""
    value = meta.get(_KEY + name)
    if value is not None and not isinstance(value, bool):
        raise FileError(f"{_KEY}{name} is {_kind(value)}, expected true or false", key=_KEY + name)
    return value


def _ends(ids: Mapping[str, int], kinds: bytearray, named: tuple[int | None, ...]) -> frozenset[int]:
    ends = {i for i in named if i is not None}
    ends |= {ids[t] for t in _ENDS_IF_SPECIAL if t in ids and kinds[ids[t]] in (CONTROL, USER_DEFINED)}
    known = {t for t in _ENDS if t in ids}
    if known & {"<|call|>", "<|calls|>"}:
        known.discard("<|end|>")  # in these vocabularies it ends one message of several, not the answer
    return frozenset(ends | {ids[t] for t in known})


def _greedy(meta: Mapping[str, Any], tokens: Sequence[str], kinds: bytearray) -> frozenset[int]:
    """The greedy tokens. No key of a file names them: the models that have some are known by their architecture."""
    if (text_value(meta, "general.architecture"), text_value(meta, _KEY + "model")) != ("phi3", "llama"):
        return frozenset()
    return frozenset(i for i, kind in enumerate(kinds) if kind == CONTROL and tokens[i] not in _PHI3_NOT_GREEDY)


def _kind(value: object) -> str:
    names = {bool: "true or false", int: "a whole number", float: "a number", str: "text", list: "a list"}
    return names.get(type(value), f"a {type(value).__name__}")
