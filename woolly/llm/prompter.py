"""Prompter: the side of a model that needs none of its weights.

In: the header of its file. A `Request` becomes a `Prepared` one: its prompt rendered, tokenised and checked, its format
compiled. The prompter also makes what turns the tokens of an answer into text, and what reads thoughts and calls out of
that text. An `LLM` has a prompter and an engine, a gateway has a prompter and no engine.

For any thread.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from woolly import text
from woolly.engine import (
    AnswerOptions,
    Budget,
    Grammar,
    Grammars,
    LogprobOptions,
    Read,
    Resumed,
    call_grammar_of,
    check_tools,
    frame_of,
    is_required,
    notes_of_tools,
)
from woolly.errors import ContextError, RequestError, UnsupportedError
from woolly.examine import Card
from woolly.limits import LIMITS
from woolly.request import Request, Sampling, Scalar, read_variables
from woolly.request.messages import Message

ANSWER = 100  # tokens of an answer to a prompt when no number is given
THINKING = "on"  # of the words of models.thinking
NONE: Mapping[str, Scalar] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request whose prompt is rendered, tokenised and checked. Requests that differ in their sampling alone can share
    it: `replace(prepared, request=other)`.

    opened: the part of the output in which the prompt ends, if it has opened one. grammar: that of its format
    or of its calls. certain: a grammar allows valid calls only. notes: what was asked for and has no effect.

    marked: marks of thoughts and calls stay in the text, for others to read. resumed, pieces: the tokens of an answer
    that was begun elsewhere, and how many pieces of its text its reader has; it goes on from there.
    """

    request: Request
    ids: tuple[int, ...]
    max_tokens: int
    opened: text.AnswerPart | None = None
    grammar: Grammar | None = None
    certain: bool = False
    notes: tuple[str, ...] = ()
    marked: bool = False
    resumed: tuple[int, ...] = ()
    pieces: int = 0


class Prompter:
    """The text side of one model: its tokenizer and chat template, and the context that it was loaded with. Without a
    tokenizer it takes token ids alone."""

    def __init__(
        self,
        card: Card,
        context: int,
        tokenizer: text.Tokenizer | None,
        template: text.ChatTemplate | None,
        *,
        thinking: str = THINKING,
        variables: Mapping[str, Scalar] = NONE,
    ) -> None:
        """thinking, variables: for chats that say nothing of them; `on` and `off` are for templates with a switch."""
        self.card = card
        self.context = context
        self.tokenizer = tokenizer
        self.template = template
        self._think = {"on": True, "off": False}.get(thinking)
        self._defaults = read_variables(variables)
        self.output: text.Output | None = None
        if template is not None and tokenizer is not None:
            self.output = text.find_output(template.source, tokenizer)
        self.grammars = Grammars(tokenizer) if tokenizer is not None else None

    @property
    def ends(self) -> frozenset[int]:
        """Tokens that end an answer."""
        return frozenset(self.tokenizer.ends) if self.tokenizer is not None else frozenset()

    def prepare(self, request: Request) -> Prepared:
        """Render, tokenise and check the prompt of a request: once, however many answers to it are wanted."""
        ids, rendered = self._prompt(request)
        self.check(ids)
        room = self.context - len(ids)
        if room < _least(request):
            raise ContextError(len(ids), self.context, _number(request))
        answer = request.max_tokens or (room if request.messages is not None else ANSWER)
        opened = self.output.opened(rendered) if self.output is not None and rendered is not None else None
        budget = Budget()
        grammar, certain = self._grammar(request, rendered, budget)
        notes = self._notes(request, budget)
        return Prepared(request, ids, min(answer, room), opened, grammar, certain, notes)

    def answer_options(self, prepared: Prepared) -> AnswerOptions:
        """How the answer to a request is made; where the request has no seed, one is drawn."""
        request, sampling = prepared.request, self.sampling(prepared.request.sampling)
        logprobs = resumed = None
        if request.logprobs is not None:
            logprobs = LogprobOptions(request.logprobs, request.prompt_logprobs, request.post_sampling)
        if prepared.resumed or prepared.pieces:
            resumed = Resumed(prepared.resumed, prepared.pieces)
        return AnswerOptions(
            sampling=sampling,
            seed=drawn_seed() if sampling.seed is None else sampling.seed,
            ends=self.ends,
            text=self._text_stream(prepared),
            spell=self.spell,
            matcher=prepared.grammar.matcher() if prepared.grammar is not None else None,
            logprobs=logprobs,
            resumed=resumed,
        )

    def _text_stream(self, prepared: Prepared) -> text.TextStream | None:
        """A stream that turns the tokens of an answer into its text; None for a model without a tokenizer."""
        request, ids = prepared.request, prepared.ids
        if self.tokenizer is None:
            if request.stop:
                raise RequestError("stop needs a tokenizer, and the model was loaded without one", param="stop")
            return None
        marked = self.output is not None and (prepared.marked or request.messages is not None)
        return text.TextStream(
            self.tokenizer,
            request.stop,
            after=ids[-1] if ids else None,
            shown=self.output.tokens if marked and self.output is not None else frozenset[int](),
            exact=prepared.grammar is not None,
            indent=request.indent,
        )

    def reader(self, prepared: Prepared) -> Read | None:
        """A function that splits an answer into thoughts, text and calls; None where all is text."""
        request, output = prepared.request, self.output
        if output is None or request.messages is None:
            return None
        tools = request.tools if request.tool_choice != "none" else ()
        if is_required(request):
            output = replace(output, style=text.with_form(output.style))
        return text.OutputReader(output, prepared.opened, tools, certain=prepared.certain).feed

    def spell(self, token: int) -> bytes:
        return self.tokenizer.bytes_of(token) if self.tokenizer is not None else b""

    def render(self, request: Request, *, add_generation_prompt: bool = True) -> str:
        """The prompt that the chat template writes for a conversation, as text. add_generation_prompt: with the
        beginning of an answer."""
        return self._rendered(request, add_generation_prompt).plain

    def encode(self, text: str, *, special: bool = True, bos: bool | None = None) -> list[int]:
        """The ids of a text. special: texts of control tokens become these tokens. bos: None is the file's rule."""
        return self._known_tokenizer().encode(text, special=special, bos=bos)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids; control tokens have none, except for the marks of thoughts."""
        return self._known_tokenizer().decode(ids)

    def _grammar(self, request: Request, rendered: str | None, budget: Budget) -> tuple[Grammar | None, bool]:
        """The grammar of the answer, and whether it covers calls. rendered: the prompt of a chat. Refuses a strict tool
        whose schema cannot be kept to."""
        grammars, compiled = self.grammars, frozenset[str]()
        grammar, certain = None, False
        if self.output is not None and self.tokenizer is not None and grammars is not None and rendered is not None:
            several = self.template is not None and self.template.capabilities.tools if request.tools else False
            call_grammar = call_grammar_of(self.output, self.tokenizer, request, several=several)
            if call_grammar is not None:
                frame = frame_of(self.output, self.tokenizer, rendered, think=request.think, marked=False)
                grammar, certain = call_grammar.compiled(grammars, frame, request, budget), True
                compiled = call_grammar.tools
        if grammars is not None:
            check_tools(grammars, request, budget, compiled)
        return grammar if certain else self._format(request, rendered, budget), certain

    def _notes(self, request: Request, budget: Budget) -> tuple[str, ...]:
        """What a request asks for that has no effect."""
        notes: list[str] = []
        if request.tools and self.grammars is not None and self.template is not None:
            notes += notes_of_tools(request, budget)
            if not self.template.capabilities.tools:
                notes.append("tools (described in the system message)")
        if self.template is not None and request.messages and request.messages[0]["role"] == "system":
            notes += [] if self.template.capabilities.system else ["system (told in the first message of the user)"]
        if request.chat_template_kwargs and self.template is not None:
            notes += self.template.unknown(request.chat_template_kwargs)
            effort = request.chat_template_kwargs.get("reasoning_effort")
            if (shown := self.template.effort(effort)) != effort:
                notes.append(f"reasoning_effort (told as {shown})")
        return tuple(notes)

    def _format(self, request: Request, rendered: str | None, budget: Budget) -> Grammar | None:
        if request.format is None:
            return None
        if self.grammars is None or self.tokenizer is None:
            raise RequestError("format needs a tokenizer, and the model was loaded without one", param="format")
        if self.output is None or rendered is None:
            return self.grammars.grammar(request.format, budget=budget)
        frame = frame_of(self.output, self.tokenizer, rendered, think=request.think)
        return self.grammars.grammar(request.format, frame, budget=budget)

    def _prompt(self, request: Request) -> tuple[tuple[int, ...], str | None]:
        """The ids of a request's prompt, and the text that a chat was rendered to."""
        if request.tokens is not None:
            if not request.tokens:
                raise RequestError("there are no tokens to continue; give at least one", param="tokens")
            return request.tokens, None
        tokenizer = self._known_tokenizer()
        if request.prompt is not None and request.suffix is not None:
            if not tokenizer.gap:
                raise UnsupportedError(
                    f"{self.card.name} does not support insert: it has no tokens for a gap", param="suffix"
                )
            texts = (*(text for _, text in request.files), request.prompt, request.suffix)
            self._fits(tokenizer, "".join(texts), request)
            return tuple(tokenizer.encode_gap(request.prompt, request.suffix, request.begun, request.files)), None
        if request.mixed is not None:
            self._fits(tokenizer, "".join(part for part in request.mixed if isinstance(part, str)), request)
            if not (ids := tokenizer.encode_mixed(request.mixed, special=True)):
                raise RequestError("there is nothing to continue; give a token at least", param="prompt")
            return tuple(ids), None
        if request.prompt is not None:
            self._fits(tokenizer, request.prompt, request)
            ids = tokenizer.encode(request.prompt, special=True, bos=None)
            if not ids:
                raise RequestError("the prompt is empty, and the model has no token to begin with", param="prompt")
            return tuple(ids), None
        self._fits(tokenizer, _asked(request), request)
        rendered = self._rendered(request).followed_by(request.begun)
        self._fits(tokenizer, rendered.plain, request)
        return tuple(tokenizer.encode_chat(rendered.text, rendered.escape)), rendered.plain

    def _fits(self, tokenizer: text.Tokenizer, prompt: str, request: Request) -> None:
        """Refuse a prompt that its size alone makes too long, before the time is spent to cut it into tokens."""
        context = self.context
        if 4 * len(prompt) > context:  # else it fits even if every byte is a token
            fewest = tokenizer.fewest(prompt)
            if fewest + _least(request) > context:
                raise ContextError(fewest, context, _number(request), least=True)

    def _rendered(self, request: Request, add_generation_prompt: bool = True) -> text.Rendered:
        if self.template is None:
            raise UnsupportedError(
                f"{self.card.name} has no chat template", suggestion="use generate or stream", calls=("generate",)
            )
        assert request.messages is not None
        messages: Iterable[Message] = request.messages
        tools = None
        if request.tools or any(m["role"] in ("system", "tool") or m.get("tool_calls") for m in messages):
            messages, tools = text.fit_to_template(
                request.messages, request.tools, self.template.capabilities, self._written
            )
        variables = self._variables(request, self.template)
        return self.template.render(
            list(messages), add_generation_prompt=add_generation_prompt, tools=tools, **variables
        )

    def _variables(self, request: Request, template: text.ChatTemplate) -> dict[str, Any]:
        """What the template is told: what the request says, and where it says nothing what the settings do."""
        variables: dict[str, Any] = {**self._defaults, **request.chat_template_kwargs}
        if request.think is not None:
            switch = template.thinking(request.think)
            if not switch:
                raise RequestError(
                    f"the chat template of {self.card.name} has no switch for thinking",
                    suggestion="leave think out; the model thinks or not as it was trained",
                    param="think",
                    model=self.card.name,
                )
            variables |= switch
        elif self._think is not None and not variables.keys() & text.ABOUT_THINKING:
            variables |= template.thinking(self._think)
        if "reasoning_effort" in variables:
            variables["reasoning_effort"] = template.effort(variables["reasoning_effort"])
        return variables

    def _written(self, calls: Iterable[tuple[str, str]]) -> str:
        """Calls as the model writes them, of names and JSON."""
        style = text.find_style(self.template.source if self.template is not None else "")
        form_calls = text.with_form(style).calls
        assert form_calls is not None and form_calls.form is not None
        return form_calls.form.write(list(calls))

    def sampling(self, sampling: Sampling) -> Sampling:
        """The sampling of an answer: what nobody chose is as the model's card recommends; biases are of token ids
        alone: a text stands for each of its tokens, and of two the last counts. Tokens that would end an answer that is
        not to end have one too."""
        sampling = sampling.recommended(self.card.sampling)
        biases: dict[int | str, float] = {}
        for what, bias in sampling.logit_bias.items():
            for token in self._known_tokenizer().encode(what) if isinstance(what, str) else (what,):
                if token >= self.card.vocab:
                    raise RequestError(
                        f"logit_bias names token {token}, but the vocabulary has {self.card.vocab:,}",
                        param="logit_bias",
                    )
                biases[token] = bias
        if sampling.ignore_eos:
            biases |= dict.fromkeys(self.ends, -LIMITS.bias)
        return replace(sampling, logit_bias=biases, ignore_eos=False) if biases else sampling

    def _known_tokenizer(self) -> text.Tokenizer:
        if self.tokenizer is None:
            raise RequestError(
                "the model was loaded without its tokenizer", suggestion="give token ids", param="prompt"
            )
        return self.tokenizer

    def check(self, ids: Iterable[int]) -> None:
        for index, token in enumerate(ids):
            if not 0 <= token < self.card.vocab:
                raise RequestError(
                    f"token {index} is {token}, expected a whole number from 0 to {self.card.vocab - 1:,}",
                    param=f"tokens[{index}]",
                    index=index,
                )


def drawn_seed() -> int:
    """A seed for a request without one; 53 bits are exact in every JSON reader."""
    return secrets.randbits(53)


def _asked(request: Request) -> str:
    """What every chat template writes, whatever it leaves out: the texts of messages that are not the model's own, and
    the beginning of the answer. White space around a text may be left out too."""
    assert request.messages is not None
    texts = (message["content"].strip() for message in request.messages if message["role"] != "assistant")
    return "".join((*texts, request.begun))


def _least(request: Request) -> int:
    """Tokens that the context must have room for after the prompt."""
    return 1 if request.shorten or request.max_tokens is None else request.max_tokens


def _number(request: Request) -> int:
    """The tokens of an answer that may not be shorter; 0 where no number was asked for."""
    return 0 if request.shorten else request.max_tokens or 0
