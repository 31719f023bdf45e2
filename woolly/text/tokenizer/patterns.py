r"""How each `tokenizer.ggml.pre` name cuts text into words before byte pairs are joined.

A pattern cuts out its matches; what lies between them is a word of its own; the next pattern cuts the words again. They
are the patterns of the models' own tokenizer files, in the syntax of Oniguruma, the engine that `tokenizers` uses. Some
of those look ahead to the end of a row of digits or spaces again and again, and their time grows with the square of the
row: here patterns that cut the same words in one pass stand in their place. A name that is not here is refused: a near
match would silently give other tokens.

    ignore_merges  a word that is a token is taken as it is, before any merge
    bos            a beginning token is added when the file does not say
    spaced         text is not spelled in bytes: spaces become U+2581, a character without a token becomes byte tokens
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pre:
    """One way to cut text into words."""

    patterns: tuple[str, ...]
    ignore_merges: bool = False
    bos: bool = False
    spaced: bool = False


_TAILS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"\s+(?!\S)|\s+"
_BREAKS = r"\s*[\r\n]+"
_SIGNS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_SIGNS_SLASH = r" ?[^\s\p{L}\p{N}]+[\r\n/]*"

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|" + _SPACES
# _GPT2 after a cut at every digit, which the files write as two patterns: one pass takes three fifths of the time. A
# row of spaces before a digit ends a word there, and is not shortened by the space that a letter would take along.
_GPT2_DIGITS = r"\p{N}|'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?[^\s\p{L}\p{N}]+|\s+(?![^\s\p{N}])|\s+"
# A row of digits at the end of a word, and the one or two before its last groups of three, which the files write as
# `\d{1,3}(?=(?:\d{3})*\b)`. The groups are cut by the pattern that follows.
_GROUPED = (r"(?<!\d)\d++\b", r"\A\d{1,2}(?=(?:\d{3})++\z)")
# White space is cut to lengths of powers of two, but for a row that ends a line and the space that goes with a word.
_HALVED = r"\A\s*[\r\n]\z|" + "|".join(rf"[^\S\r\n]{{{n}}}(?!\S)" for n in (512, 256, 128, 64, 32, 16, 8, 4, "1,2"))
_PUNCTUATION = r"\p{P}\$\+<=>\^~\|"


def _llama(digits: str) -> str:
    return rf"{_TAILS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{digits}|{_SIGNS}|{_BREAKS}|{_SPACES}"


def _cased(digits: str, tails: str) -> str:
    """Words that begin with capitals and end in small letters, in every script."""
    before, upper, lower = r"[^\r\n\p{L}\p{N}]?", r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
    words = f"{before}{upper}*{lower}+{tails}|{before}{upper}+{lower}*{tails}"
    return f"{words}|{digits}|{_SIGNS_SLASH}|{_BREAKS}|{_SPACES}"


_BAILING = (
    r"'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|"
    rf"{_SIGNS}|\s*[\r\n]|{_SPACES}"
)
_BLOOM = " ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"
_CJK = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
_DEEPSEEK_WORDS = (
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+"
)
_DEEPSEEK_V3 = (r"\p{N}{1,3}", _CJK, _DEEPSEEK_WORDS + "[\r\n]*|\\s*[\r\n]+|" + _SPACES)
_DEEPSEEK_CJK = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
_DEEPSEEK_LETTERS = (
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373"
    "\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f"
    "\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77"
    "\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-"
    "\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec"
    "\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-"
    "\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3"
    "\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17"
    "\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-"
    "\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943"
)
_YOUTU = (
    "[\uac00-\ud7a3\u3131-\u318e]+|"
    "[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c\u3001-\u303f\ufe30-\ufe4f]+|"
    "[\u3105-\u312f]+|" + _CJK
)

_ROWS: tuple[tuple[str, Pre], ...] = (
    ("default", Pre((f"[{_PUNCTUATION}]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]"))),
    (
        "gpt-2 a.x-4.0 exaone4 gigachat granite-docling jais jina-de jina-es jina-v1-en jina-v2-code jina-v2-de"
        " jina-v2-es mellum modern-bert mpt olmo phi-2 roberta-bpe trillion",
        Pre((_GPT2,)),
    ),
    (
        "smollm codeshell command-r exaone mellum2 minerva-7b refact starcoder",
        Pre((_GPT2_DIGITS,)),
    ),
    (
        "llama-bpe llama-v3 llama3 falcon-h1 falcon3 jina-v5-nano lfm2 midm-2.0 pixtral",
        Pre((_llama(r"\p{N}{1,3}"),), ignore_merges=True, bos=True),
    ),
    ("glm4 glm5", Pre((_llama(r"\p{N}{1,3}"),), ignore_merges=True)),
    ("chatglm-bpe dbrx smaug-bpe", Pre((_llama(r"\p{N}{1,3}"),))),
    ("jais-2", Pre((_llama(r"\p{N}{1,3}"), _HALVED))),
    (
        "qwen2 deepseek-r1-qwen f2llmv2 grok-2 hunyuan kormo megrez solar-open stablelm2",
        Pre((_llama(r"\p{N}"),)),
    ),
    (
        "qwen35",
        Pre(
            (
                rf"{_TAILS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|"
                rf"{_BREAKS}|{_SPACES}",
            )
        ),
    ),
    ("laguna", Pre((r"[^\n]+|[\n]+", _llama(r"\p{N}")))),
    ("minicpm5", Pre((r"\p{N}{1,3}", _llama(r"\p{N}+")), ignore_merges=True)),
    ("ufakzeka", Pre((rf"[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}|{_SIGNS}|{_BREAKS}|{_SPACES}",))),
    (
        "seed-coder",
        Pre(
            (
                rf"{_TAILS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|"
                rf"{_BREAKS}|{_SPACES}",
            )
        ),
    ),
    (
        "exaone-moe",
        Pre(
            (
                rf"{_TAILS}|[^\r\n\p{{L}}\p{{N}}]?(?:\p{{L}}\p{{M}}*(?: \p{{L}}\p{{M}}*)*)+|\p{{N}}|"
                rf" ?[^\s\p{{L}}\p{{N}}]+[\r\n/]?|\s*[\r\n]|{_SPACES}",
            )
        ),
    ),
    ("tekken", Pre((_cased(r"\p{N}", ""),), ignore_merges=True, bos=True)),
    ("gpt-4o kanana2 llama4 minimax-m2 talkie", Pre((_cased(r"\p{N}{1,3}", _TAILS + "?"),))),
    ("cohere2moe tiny_aya", Pre((*_GROUPED, _cased(r"\p{N}{1,3}", _TAILS + "?")))),
    ("youtu", Pre((_YOUTU, _cased(r"\p{N}", _TAILS + "?")), ignore_merges=True)),
    (
        "granite-embed-multi-97m",
        Pre(
            (
                r"[^\r\n\p{L}\p{N}]?((?=[\p{L}\p{M}])([^a-z]))*((?=[\p{L}\p{M}])([^A-Z]))+" + _TAILS + r"?|"
                r"[^\r\n\p{L}\p{N}]?((?=[\p{L}\p{M}])([^a-z]))+((?=[\p{L}\p{M}])([^A-Z]))*" + _TAILS + r"?|"
                rf"\p{{N}}{{1,3}}|{_SIGNS_SLASH}|{_BREAKS}|{_SPACES}",
            ),
            ignore_merges=True,
        ),
    ),
    ("bailingmoe bailingmoe2 llada-moe", Pre((_BAILING,))),
    ("bloom gpt3-finnish poro-chat", Pre((_BLOOM,))),
    ("viking", Pre((_BLOOM, r"\p{N}"))),
    ("falcon", Pre((f"[{_PUNCTUATION}`]+", _GPT2, "[0-9][0-9][0-9]"))),
    (
        "chameleon",
        Pre(
            (
                "<sentinel:[0-9]+>",
                "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z",
                r"([\t\n]|    |  )",
                r"\p{N}",
                r"[\p{P}!-/:-@\[-`{-~]",
                _GPT2,
            ),
            bos=True,
        ),
    ),
    ("deepseek-coder", Pre(("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _DEEPSEEK_CJK, r"\p{N}"))),
    (
        "deepseek-llm",
        Pre(
            (
                "[\r\n]",
                rf"\s?[{_DEEPSEEK_LETTERS}]+",
                "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+",
                r"\s+$",
                _DEEPSEEK_CJK,
                r"\p{N}+",
            )
        ),
    ),
    ("deepseek-v3 hunyuan-dense hy_v4 joyai-llm", Pre(_DEEPSEEK_V3)),
    ("spark2_5", Pre((r"\p{N}{1,3}", _CJK, _DEEPSEEK_WORDS + "|[\r\n]|" + _SPACES, r"\p{N}"))),
    ("gemma4 granite-embed-multi-311m sarvam-moe", Pre((r"[^\n]+|[\n]+",), spaced=True)),
)

PRE: dict[str, Pre] = {name: pre for names, pre in _ROWS for name in names.split()}
