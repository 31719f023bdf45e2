"""Answers that follow a format: masks equal a slow oracle's, forced tokens are those that would have been drawn, and an
answer ends where its format does, alone and beside other answers."""

from __future__ import annotations

import json
import random
import re
from dataclasses import replace

import numpy as np
import pytest

from tests.engine.asking import BYTES, answer, asked, end_of, said, work_off
from tests.engine.fake import Fake
from tests.text.small import CONTROL, bpe, spm
from woolly.engine import AnswerOptions, Engine, Grammars, LogprobOptions, Sequence, frame_of, left_out
from woolly.engine.grammar.constrain import KEPT, Matcher
from woolly.engine.sampling.stages import Mask, allowed
from woolly.errors import RequestError
from woolly.request import Failed, Sampling, Text
from woolly.request.format import Format
from woolly.text import TextStream, Tokenizer, find_output

WARM = Sampling(temperature=1.5, top_k=0, top_p=1.0)
ANIMALS = ("sheep", "goat", "she-goat", "lama", "alpaca, of the Andes", "ox")
PERSON = Format(
    "schema",
    {
        "type": "object",
        "properties": {
            "name": {"enum": ["Ann", "Bob"]},
            "kind": {"const": "a person"},
            "age": {"type": "integer", "minimum": 0, "maximum": 99},
        },
        "required": ["name", "kind", "age"],
        "additionalProperties": False,
    },
)
END = 256
LETTERS = Tokenizer(bpe([], {"<end>": CONTROL}, eos_token_id=END))  # token i is byte i
GRAMMARS = Grammars(LETTERS)


def mask_of(matcher: Matcher) -> Mask:
    mask = np.zeros(matcher.words, np.uint32)
    matcher.fill(mask)
    return mask


def ids_of(matcher: Matcher, vocab: int) -> list[int]:
    return allowed(mask_of(matcher), vocab).tolist()


def follows(format: Format, text: str, grammars: Grammars = GRAMMARS) -> bool:
    """Whether a text is one that the format allows, by its bytes."""
    matcher = grammars.grammar(format).matcher()
    tokens = list(text.encode())
    if matcher.accepts(tokens) < len(tokens):
        return False
    for token in tokens:
        matcher.take(token)
    return END in ids_of(matcher, LETTERS.vocab)


@pytest.mark.parametrize(
    ("format", "right", "wrong"),
    [
        (Format("json"), ["{}", '{"a":[1,null,{"b":"\\n"}]}'], ["[]", "1", "{", '{"a": 1}']),
        (PERSON, ['{"name":"Ann","kind":"a person","age":30}'], ['{"name":"Ann"}', '{"age":1,"name":"Ann"}']),
        (Format("regex", "[0-9]{2,3}x?"), ["12", "123x"], ["1", "1234", "12y", "a12"]),
        (
            Format("choice", ("yes", "yes, sir", 'a "quote"\n', "é☃", "a/b|c")),
            ["yes", "yes, sir", 'a "quote"\n', "é☃"],
            ["ye", "no"],
        ),
        (Format("lark", 'start: "a" start "b" | "c"'), ["c", "aacbb"], ["aacb", ""]),
        (Format("gbnf", 'root ::= "a" root "b" | [^a-y]'), ["z", "aaZbb"], ["aaZb", "x"]),
    ],
    ids=lambda value: value.kind if isinstance(value, Format) else "",
)
def test_a_format_allows_what_it_says(format: Format, right: list[str], wrong: list[str]) -> None:
    assert [text for text in right if not follows(format, text)] == []
    assert [text for text in wrong if follows(format, text)] == []


def vocabulary(dice: random.Random, texts: tuple[str, ...]) -> Tokenizer:
    """Bytes, pieces of the texts joined as a tokenizer learns them, and an end token."""
    words, merges = {letter for text in texts for letter in text}, []
    for _ in range(dice.randrange(60)):
        text = dice.choice(texts)
        first, last = sorted(dice.choices(range(len(text) + 1), k=2))
        cut = dice.randint(first, last)
        one, other = text[first:cut], text[cut:last]
        if one in words and other in words and one + other not in words:
            words.add(one + other)
            merges.append(f"{one} {other}")
    return Tokenizer(bpe(merges, {"<end>": CONTROL}, eos_token_id=256 + len(merges)))


def test_ten_thousand_masks_equal_those_of_a_slow_oracle() -> None:
    """The oracle tries every token at every place. Where only one text can follow, its first token is the mask."""
    dice, masks, forced = random.Random(1), 0, 0
    while masks < 10_000:
        texts = tuple("".join(dice.choices("abc,", k=dice.randint(1, 12))) for _ in range(dice.randint(1, 6)))
        tokenizer = vocabulary(dice, texts)
        grammar = Grammars(tokenizer).grammar(Format("choice", texts))
        for _ in range(20):
            matcher, so_far = grammar.matcher(), ""
            while not matcher.complete:
                ways = [text[len(so_far) :] for text in set(texts) if text.startswith(so_far)]
                viable = [
                    t
                    for t in range(tokenizer.vocab)
                    if t not in tokenizer.ends and any(way.startswith(tokenizer.text_of(t)) for way in ways)
                ]
                viable += sorted(tokenizer.ends) if "" in ways else []
                allowed = ids_of(matcher, tokenizer.vocab)
                known = matcher.forced()
                if known is None:
                    assert allowed == sorted(viable), (texts, so_far)
                else:
                    forced += 1
                    common = ways[0][
                        : next(
                            n for n in range(len(ways[0]), 0, -1) if all(way.startswith(ways[0][:n]) for way in ways)
                        )
                    ]
                    assert allowed == [known] and known in viable, (texts, so_far)
                    assert tokenizer.encode_within(common)[0] == known, (texts, so_far)
                masks += 1
                token = dice.choice(allowed)
                if token in tokenizer.ends:
                    break
                matcher.take(token)
                so_far += tokenizer.text_of(token)
            assert so_far in texts
    assert forced > 500


def constrained(
    format: Format,
    *,
    seed: int = 1,
    tokens: int = 80,
    logprobs: int | None = None,
    prompt: tuple[int, ...] = (3, 1, 4),
    stop: tuple[str, ...] = (),
    sampling: Sampling = WARM,
) -> Sequence:
    how = AnswerOptions(
        sampling=sampling,
        seed=seed,
        ends=frozenset((END,)),
        text=TextStream(LETTERS, stop, exact=True),
        logprobs=LogprobOptions(logprobs) if logprobs is not None else None,
        matcher=GRAMMARS.grammar(format).matcher(),
    )
    return Sequence(prompt, limit=len(prompt) + tokens, answer=how)


def engine_of(**sizes: int) -> Engine:
    return Engine(Fake(vocab=LETTERS.vocab, **sizes))


def text_of(events: list[object]) -> str:
    return "".join(event.text for event in events if isinstance(event, Text))


@pytest.mark.parametrize(
    "sampling",
    [WARM, Sampling(temperature=0.0), replace(WARM, repetition_penalty=1.3)],
    ids=["warm", "cold", "penalty"],
)
def test_forced_tokens_are_those_that_would_have_been_drawn(sampling: Sampling) -> None:
    """With likelihoods each token takes a step, and without them forced tokens take none; the tokens are equal."""
    for seed in range(10):
        quick, slow = engine_of(), engine_of()
        events = answer(quick, constrained(PERSON, seed=seed, sampling=sampling))
        other = answer(slow, constrained(PERSON, seed=seed, sampling=sampling, logprobs=1))
        assert said(events) == said(other)
        assert end_of(events).usage.completion_tokens == end_of(other).usage.completion_tokens
        assert end_of(events).reason == end_of(other).reason
        assert quick.tally.steps < slow.tally.steps / 2
        likely = [row for event in other if isinstance(event, Text) for row in event.logprobs]
        assert [row.token for row in likely] == said(other), "and every token has its likelihood"


def test_an_answer_ends_where_its_format_does() -> None:
    for seed in range(20):
        events = answer(engine_of(), constrained(PERSON, seed=seed, tokens=200))
        assert end_of(events).reason == "stop"
        value = json.loads(text_of(events))
        assert value["name"] in ("Ann", "Bob") and type(value["age"]) is int
        assert END not in said(events), "nothing but the end could follow, so no step was spent on it"


def test_an_end_token_ends_an_answer_where_the_format_may_end() -> None:
    format = Format("regex", "(ab)*")
    ends = [answer(engine_of(), constrained(format, seed=seed, tokens=250)) for seed in range(30)]
    assert all(re.fullmatch("(ab)*", text_of(events)) for events in ends)
    assert {said(events)[-1] for events in ends} == {END}


def test_an_answer_is_cut_at_its_limit_in_the_middle_of_forced_tokens() -> None:
    single_step = text_of(answer(engine_of(), constrained(PERSON)))
    for tokens in (1, 5, 20):
        events = answer(engine_of(), constrained(PERSON, tokens=tokens))
        assert (text_of(events), end_of(events).reason) == (single_step[:tokens], "length")
        assert end_of(events).usage.completion_tokens == tokens


def test_a_stop_text_ends_an_answer_also_among_forced_tokens() -> None:
    events = answer(engine_of(), constrained(PERSON, stop=('"kind"',)))
    assert re.fullmatch(r'\{"name":"(Ann|Bob)",', text_of(events))
    assert end_of(events).reason == "stop"


def test_among_others_and_put_back_an_answer_is_the_same() -> None:
    """With few pages sequences are put back; they begin again with their tokens and their place in the grammar."""
    formats = [PERSON, Format("regex", "[a-z ]{30,60}"), Format("choice", ANIMALS), None]
    for seed in range(8):
        dice = random.Random(seed)
        crowd = [(dice.choice(formats), dice.randrange(100), (3, 1, dice.randrange(9))) for _ in range(9)]

        def sequence(format: Format | None, seed: int, prompt: tuple[int, ...]) -> Sequence:
            return (
                constrained(format, seed=seed, prompt=prompt) if format else asked(list(prompt), tokens=40, seed=seed)
            )

        alone = [said(answer(engine_of(), sequence(*one))) for one in crowd]
        engine = engine_of(pages=26, rows=8, wants=3, sequences=3)
        streams = [engine.add(sequence(*one)) for one in crowd]
        work_off(engine)
        assert [said(list(stream)) for stream in streams] == alone


def test_a_row_that_is_picked_in_numpy_has_its_mask() -> None:
    engine = Engine(Fake(vocab=LETTERS.vocab))
    events = answer(engine, constrained(PERSON, seed=4))
    assert said(events) == said(answer(engine_of(), constrained(PERSON, seed=4)))


def test_a_grammar_that_leads_nowhere_fails_the_answer_with_a_reason() -> None:
    meta = bpe([], {"<end>": CONTROL}) | {
        "tokenizer.ggml.tokens": ["a", "b", "<end>"],
        "tokenizer.ggml.token_type": np.array([1, 1, 3], np.int32),
        "tokenizer.ggml.eos_token_id": 2,
    }
    few = Tokenizer(meta)  # its vocabulary has no token for "c"
    matcher = Grammars(few).grammar(Format("choice", ("acb", "aac"))).matcher()
    sequence = Sequence([0], limit=9, answer=AnswerOptions(WARM, ends=few.ends, matcher=matcher))
    last = answer(Engine(Fake(vocab=few.vocab)), sequence)[-1]
    assert isinstance(last, Failed) and "format" in last.error.message
    assert last.error.code == "generation_error"


def test_a_file_without_an_end_token_ends_where_the_format_does() -> None:
    assert not BYTES.ends
    matcher = Grammars(BYTES).grammar(Format("choice", ANIMALS)).matcher()
    how = AnswerOptions(WARM, text=TextStream(BYTES, exact=True), matcher=matcher)
    sequence = Sequence([1], limit=99, answer=how)
    events = answer(Engine(Fake(vocab=BYTES.vocab)), sequence)
    assert text_of(events) in ANIMALS and end_of(events).reason == "stop"


def test_a_tokenizer_that_puts_a_space_before_a_text_forces_none_and_takes_none_away() -> None:
    tokenizer = Tokenizer(spm())
    assert tokenizer.add_space_prefix
    for text in ("hello hell he", " hello", "  hell"):
        matcher = Grammars(tokenizer).grammar(Format("choice", (text, text + "zz"))).matcher()
        stream = TextStream(tokenizer, after=1, exact=True)
        how = AnswerOptions(WARM, ends=tokenizer.ends, text=stream, matcher=matcher)
        sequence = Sequence([1], limit=99, answer=how)
        assert text_of(answer(Engine(Fake(vocab=tokenizer.vocab)), sequence)) in (text, text + "zz")
    matcher = Grammars(tokenizer).grammar(Format("choice", ("hello hello hello",))).matcher()
    assert matcher.forced() == tokenizer.encode_within("hello hello hello")[0] != tokenizer.encode("hello")[0]


def test_masks_ahead_are_those_that_the_tokens_lead_to() -> None:
    dice = random.Random(3)
    for _ in range(50):
        matcher = GRAMMARS.grammar(Format("choice", ANIMALS)).matcher()
        draft = list(dice.choice(ANIMALS).encode())
        if dice.random() < 0.5:
            draft[dice.randrange(len(draft))] = ord("?")
        masks = np.zeros((len(draft) + 1, matcher.words), np.uint32)
        written = matcher.fill_ahead(list(masks), draft)
        assert written - 1 == matcher.accepts(draft)
        for row, token in zip(range(written), [*draft, None], strict=False):
            assert (mask_of(matcher) == masks[row]).all(), "and nothing was taken before"
            if token is not None and row + 1 < written:
                matcher.take(token)


def test_h16_grammars_are_compiled_once_and_the_oldest_are_forgotten() -> None:
    grammars = Grammars(LETTERS)
    first = grammars.grammar(Format("choice", ("a",)))
    assert grammars.grammar(Format("choice", ["a"])) is first
    for number in range(KEPT):
        grammars.grammar(Format("choice", (f"{number}",)))
    assert grammars.grammar(Format("choice", ("a",))) is not first


@pytest.mark.parametrize(
    ("format", "message"),
    [
        (Format("schema", {"type": "object", "properties": {"a": {"not": {}}}}), "'not'"),
        (Format("schema", {"type": "array", "uniqueItems": True}), "'uniqueItems'"),
        (Format("schema", {"if": {}, "then": {}}), "'if', 'then'"),
        (Format("schema", {"type": "string", "format": "colour"}), "'format' with 'colour'"),
        (Format("schema", {"type": "string", "pattern": "(?=a)b"}), "look-around"),
        (Format("schema", {"$ref": "https://example.com/a.json"}), "'$ref' with 'https://example.com"),
        (Format("schema", {"oneOf": [{"type": "string"}, {"minLength": 2}]}), "'oneOf'"),
        (Format("schema", {"x-guidance": {"lenient": True}, "not": {}}), "x-guidance"),
        (Format("regex", "(a"), "regex"),
        (Format("lark", "start: nothing"), "nothing"),
        (Format("gbnf", 'root ::= "a"\nb ::= c'), "line 2"),
    ],
    ids=str,
)
def test_a_format_that_cannot_be_kept_to_is_refused_with_what_is_in_the_way(format: Format, message: str) -> None:
    with pytest.raises(RequestError) as caught:
        GRAMMARS.grammar(format)
    assert message in caught.value.message and "\n" not in caught.value.message
    assert caught.value.param == "format"


def test_a_schema_that_is_not_strict_is_kept_to_as_far_as_can_be_and_the_rest_is_named() -> None:
    loose = Format(
        "schema",
        {
            "type": "object",
            "properties": {"a": {"type": "integer", "not": {"const": 1}}},
            "required": ["a"],
            "additionalProperties": False,
        },
        strict=False,
    )
    assert left_out(loose) == ("the keyword 'not'",)
    assert follows(loose, '{"a":1}') and not follows(loose, '{"a":"x"}')
    foreign = Format("schema", {"$ref": "https://example.com/a.json"}, strict=False)
    assert len(left_out(foreign)) == 1 and "example.com" in left_out(foreign)[0]
    assert follows(foreign, '{"any":1}') and not follows(foreign, "1")
    assert left_out(replace(PERSON, strict=False)) == left_out(PERSON) == ()


HERMES = "<tool_call>"
HARMONY = "<|channel|><|message|>"
GLIMMER = "<atem:function_calls>"
RECIPIENTS = ["<|start|>", "<|message|>", "<|eom|>", "<|eot|>"]
CHANNELS = ["<|start|>", "<|end|>", "<|channel|>", "<|message|>", "<|return|>", "<|call|>"]


@pytest.mark.parametrize(
    ("template", "control", "prompt", "think", "right", "wrong"),
    [
        (HERMES, [], "user: hi", None, ["ab"], ["<think>x</think>ab"]),
        (
            HERMES,
            ["<think>", "</think>"],
            "user: hi",
            None,
            ["ab", "<think>cab</think>ab", "<think></think>\n\nab"],
            ["<think>ab", "<think></think>"],
        ),
        (HERMES, ["<think>", "</think>"], "user: hi", False, ["ab"], ["<think>x</think>ab"]),
        (
            HERMES,
            ["<think>", "</think>"],
            "user: hi<think>\n",
            None,
            ["x</think>ab", "</think>\nab"],
            ["ab", "x</think>c"],
        ),
        (HERMES, [], "user: hi<think>\n", None, ["x < y</think>ab", "</think>\n\nab"], ["ab", "x</think>c"]),
        (
            HARMONY,
            CHANNELS,
            "user: hi<|start|>assistant",
            None,
            [
                "<|channel|>final<|message|>ab",
                "<|channel|>analysis<|message|>cab<|end|><|start|>assistant<|channel|>final<|message|>ab",
            ],
            ["ab", "<|channel|>analysis<|message|>ab", "<|call|><|channel|>final<|message|>ab"],
        ),
        (
            GLIMMER,
            RECIPIENTS,
            "user: hi<|start|>assistant",
            None,
            [
                " to=user<|message|>ab",
                " to=self<|message|>cab<|eom|><|start|>assistant to=user<|message|>ab",
            ],
            [
                "ab",
                " to=self<|message|>cab<|eom|> to=user<|message|>ab",
                "<|eom|> to=user<|message|>ab",
                " to=self<|message|>cab<|eom|><|start|>assistant<|eot|> to=user<|message|>ab",
            ],
        ),
    ],
    ids=["no thoughts", "may think", "may not", "opened", "opened in plain text", "harmony", "glimmer"],
)
def test_the_format_begins_after_the_thought(
    template: str, control: list[str], prompt: str, think: bool | None, right: list[str], wrong: list[str]
) -> None:
    special = dict.fromkeys((*control, "<stop>"), CONTROL)
    tokenizer = Tokenizer(bpe([], special, eos_token_id=255 + len(special)))
    frame = frame_of(find_output(template, tokenizer), tokenizer, prompt, think=think)
    grammar = Grammars(tokenizer).grammar(Format("choice", ("ab",)), frame)

    def is_complete(text: str) -> bool:
        matcher, ids = grammar.matcher(), tokenizer.encode(text, special=True)
        if matcher.accepts(ids) < len(ids):
            return False
        for token in ids:
            matcher.take(token)
        return bool(tokenizer.ends & set(ids_of(matcher, tokenizer.vocab)))

    assert [text for text in right if not is_complete(text)] == []
    assert [text for text in wrong if is_complete(text)] == []
