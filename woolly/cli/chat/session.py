"""A chat: messages are read, answered and shown until the user has had enough.

Ctrl-C stops an answer and keeps what there is of it; pressed again with nothing typed, it leaves. An error is a line,
and the chat goes on as if the message had not been sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from woolly.cli.chat import saved
from woolly.cli.chat.answer import show
from woolly.cli.chat.attach import attach
from woolly.cli.chat.commands import run_command
from woolly.cli.chat.conversation import Conversation, answered, asked, messages
from woolly.cli.chat.figures import Tally, about, after, counted, cut, full
from woolly.cli.chat.reader import Reader
from woolly.cli.chat.screen import Screen
from woolly.cli.chat.tools import Tools
from woolly.cli.chat.typed import command, message
from woolly.cli.interrupt import stops
from woolly.cli.words import checked
from woolly.errors import ContextError, UnsupportedError, WoollyError, printable
from woolly.limits import LIMITS
from woolly.request import Completion

if TYPE_CHECKING:
    from woolly.cli.chat.remote import Remote
    from woolly.llm import LLM

Find = Callable[[str], Any]
Load = Callable[[Any], "LLM | Remote"]

INTERRUPTED = 130


class Session:
    """One chat at one terminal.

    find: from a name to a file, or to a name at a server. load: from there to a model. folder: where chats are saved.
    hide: thoughts are not shown. hush: keeps the terminal from drawing keys into an answer. tools: what the model may
    call, in the first answer to each question as `tool_choice` says.
    """

    def __init__(
        self,
        screen: Screen,
        find: Find,
        load: Load,
        model: str,
        *,
        system: str = "",
        options: Mapping[str, Any],
        folder: Path,
        hide: bool = False,
        quiet: bool = False,
        hush: Callable[[], AbstractContextManager[None]] = nullcontext,
        tools: Tools | None = None,
        tool_choice: str = "auto",
    ) -> None:
        self.screen = screen
        self.model = model
        self.folder = folder
        self.options: dict[str, Any] = dict(options)
        self.conversation = Conversation(system)
        self.tally = Tally()
        self.over = False
        self._code = 0
        self._hide, self._quiet, self._hush = hide, quiet, hush
        self._find, self._load = find, load
        self._tools = tools if tools is not None and tools.box.offered else None
        self._tool_choice = tool_choice
        self._kept: Path | None = None
        self.llm = load(find(model))
        self._check()

    def greet(self) -> None:
        self.screen.note(f"{about(self.llm)}; /help lists what can be done, Ctrl-D leaves")

    def keep(self, name: str) -> None:
        """Go on with the chat that was saved under a name, if there is one, and save it after each answer."""
        self._kept = saved.place(name, self.folder)
        if self._kept.exists():
            run_command(self, "load", name)

    def talk(self, read: Reader) -> int:
        """Until the user leaves; the exit code."""
        warned = False  # a Ctrl-C more leaves
        while not self.over:
            try:
                typed = read()
            except EOFError:
                break
            except KeyboardInterrupt:
                if warned:
                    return INTERRUPTED
                self.screen.note("Ctrl-C again, or Ctrl-D, leaves")
                warned = True
                continue
            try:
                warned = self.take(typed)
            except KeyboardInterrupt:
                warned = True
            except WoollyError as error:
                warned = False
                self.screen.say(f"error: {error}")
        return self._code

    def take(self, typed: str) -> bool:
        """Do what was typed: a command, or a message to answer. Whether it was stopped."""
        text = checked(message(typed), "the message")
        if not text:
            return False
        if slash := command(typed):
            run_command(self, *slash)
            return False
        attached = attach(text)
        for word in attached.words:
            self.screen.note(f"there is no file '{word}': '@{word}' stays a word")
        if attached.files:
            self.screen.note(f"with {', '.join(attached.files)}")
        return self.answer(self.conversation, attached.text)

    def answer(self, before: Conversation, question: str) -> bool:
        """Answer a question that follows on a conversation, with tools where there are some. Whether it was stopped."""
        conversation, choice = asked(before, question), self._tool_choice
        for left in range(LIMITS.mcp_rounds, -1, -1):
            said = self._given(conversation, choice if left else "none")
            if said is None:
                return self.over
            given = said
            calls = given.calls if self._tools is not None and left and given.finish_reason == "calls" else ()
            conversation = answered(conversation, given.text, given.thought, calls)
            if self._tools is None or not calls:
                break
            turns = tuple(self._tools.use(calls, self.screen))
            conversation, choice = replace(conversation, turns=(*conversation.turns, *turns)), "auto"
        stopped = given.finish_reason == "cancelled"
        if stopped and not given.text:
            self.conversation = before
            self.screen.note("stopped before the answer began; the question was not kept")
        else:
            self.conversation = conversation
            if stopped:
                self.screen.note("stopped; Ctrl-C again leaves")
            if self._kept is not None:
                saved.save(self._kept, saved.Saved(self.conversation, self.model, self.options))
        if why := cut(given, self.llm):
            self.screen.say(why)
        elif not stopped and not self._quiet:
            self.screen.note(after(given, self.llm.info))
        return stopped

    def _given(self, conversation: Conversation, choice: str) -> Completion | None:
        """What the model says next, shown; None where it cannot, or is not to be waited for."""
        options = self.llm.card.sampling | self.options
        if self._tools is not None:
            options |= {"tools": self._tools.box.tools, "tool_choice": choice}
        with stops() as stop, self._hush():
            try:
                stream = self.llm.chat_stream(messages(conversation), **options)
            except ContextError as error:
                self.screen.say(full(error, self.llm))
                return None
            stop.then(stream.cancel)
            try:
                given = show(stream, self.screen, hide=self._hide, notes=not self._quiet)
            except KeyboardInterrupt:  # the second one
                self.over, self._code = True, INTERRUPTED
                return None
        self.tally = counted(self.tally, given)
        return given

    @property
    def tools(self) -> str:
        """What `/tools` says."""
        return self._tools.lines() if self._tools is not None else "  (there are no tools; [mcp.servers] names some)"

    def change_model(self, name: str) -> None:
        """Another model goes on with the conversation. If it cannot be had, the one we had is loaded again."""
        old, path = self.llm.card.path, self._find(name)
        self.llm.close()  # before the other is loaded: there may not be room for both
        try:
            self.llm = self._load(path)
            self._check()
            self.model = name
        except (WoollyError, KeyboardInterrupt):
            self.llm.close()
            self.llm = self._load(old)
            self.screen.note(f"{printable(self.model)} goes on")
            raise

    def close(self) -> None:
        self.llm.close()

    def _check(self) -> None:
        """A model that cannot talk, or not as it is asked to, is refused before anything is typed."""
        if not self.llm.card.chat:
            self.llm.close()
            raise UnsupportedError(
                f"{self.llm.card.name} has no chat template, so there is no talking with it",
                suggestion='give a text to go on with: woolly run MODEL "Once upon a time"',
            )
        self.check_think(self.options)

    def check_think(self, options: Mapping[str, Any]) -> None:
        """A model that has no switch for thinking is not told to think or not to."""
        if options.get("think") is not None:
            self.llm.render([{"role": "user", "content": "?"}], think=options["think"])
