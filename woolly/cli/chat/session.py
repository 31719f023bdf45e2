"""A chat: its model, its conversation, and how a question is answered and shown.

Ctrl-C stops an answer and keeps the part that has come; a second Ctrl-C leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from woolly.cli.chat import saved
from woolly.cli.chat.answer import show_answer
from woolly.cli.chat.conversation import Conversation, count, messages, with_answer, with_question
from woolly.cli.chat.figures import Tally, add_answer, answer_line, context_full, cut_reason, describe
from woolly.cli.chat.screen import Screen
from woolly.cli.chat.tools import Tools
from woolly.cli.interrupt import ctrl_c_cancels
from woolly.errors import ContextError, RequestError, UnsupportedError, WoollyError, printable
from woolly.limits import LIMITS
from woolly.request import Completion

if TYPE_CHECKING:
    from woolly.cli.chat.remote import ServerModel
    from woolly.llm.llm import LLM

FindModel = Callable[[str], Any]
LoadModel = Callable[[Any], "LLM | ServerModel"]

INTERRUPTED = 130


class Session:
    """One chat at one terminal.

    find_model: turns a name into a file, or a name at a server. load: loads the model found. folder: where chats are
    saved. hide: thoughts are not shown. no_echo: keeps the terminal from drawing keys into an answer. tools: what the
    model may call, in the first answer to each question as `tool_choice` says.
    """

    def __init__(
        self,
        screen: Screen,
        find_model: FindModel,
        load: LoadModel,
        model: str,
        *,
        system: str = "",
        options: Mapping[str, Any],
        folder: Path,
        hide: bool = False,
        quiet: bool = False,
        no_echo: Callable[[], AbstractContextManager[None]] = nullcontext,
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
        self.code = 0  # the exit code
        self._hide, self._quiet, self._no_echo = hide, quiet, no_echo
        self._find, self._load = find_model, load
        self._tools = tools if tools is not None and tools.box.offered else None
        self._tool_choice = tool_choice
        self._save_path: Path | None = None
        self.llm = load(find_model(model))
        self._check()

    def greet(self) -> None:
        self.screen.note(f"{describe(self.llm)}; /help lists what can be done, Ctrl-D leaves")

    def save_as(self, name: str) -> None:
        """Go on with the chat that was saved under a name, if there is one, and save it after each answer."""
        self._save_path = saved.path_of(name, self.folder)
        if self._save_path.exists():
            self.resume(self._save_path)

    def resume(self, path: Path) -> None:
        """Go on with a saved chat, with the model that is loaded."""
        chat = saved.load(path)
        options = dict(chat.options)
        try:
            self.check_think(options)
        except RequestError:
            del options["think"]
            self.screen.note("this model has no switch for thinking; that setting was left out")
        self.conversation, self.options = chat.conversation, options
        self.screen.note(f"loaded {count(chat.conversation)}")
        if chat.model and chat.model != self.model:
            self.screen.note(f"it was with {chat.model}; /model {chat.model} goes back to it")

    def answer(self, before: Conversation, question: str) -> bool:
        """Answer a question at the end of a conversation, with tools if any. Returns whether it was stopped."""
        conversation, choice = with_question(before, question), self._tool_choice
        for left in range(LIMITS.mcp_rounds, -1, -1):
            completion = self._complete(conversation, choice if left else "none")
            if completion is None:
                return self.over
            last = completion
            calls = last.calls if self._tools is not None and left and last.finish_reason == "calls" else ()
            conversation = with_answer(conversation, last.text, last.thought, calls)
            if self._tools is None or not calls:
                break
            turns = tuple(self._tools.use(calls, self.screen))
            conversation, choice = replace(conversation, turns=(*conversation.turns, *turns)), "auto"
        stopped = last.finish_reason == "cancelled"
        if stopped and not last.text:
            self.conversation = before
            self.screen.note("stopped before the answer began; the question was not kept")
        else:
            self.conversation = conversation
            if stopped:
                self.screen.note("stopped; Ctrl-C again leaves")
            if self._save_path is not None:
                saved.save(self._save_path, saved.SavedChat(self.conversation, self.model, self.options))
        if why := cut_reason(last, self.llm):
            self.screen.say(why)
        elif not stopped and not self._quiet:
            self.screen.note(answer_line(last, self.llm.info))
        return stopped

    def _complete(self, conversation: Conversation, choice: str) -> Completion | None:
        """Generate the model's next message and show it; None where the context is full or Ctrl-C came twice."""
        options = self.options
        if self._tools is not None:
            options = options | {"tools": self._tools.box.tools, "tool_choice": choice}
        with ctrl_c_cancels() as stop, self._no_echo():
            try:
                stream = self.llm.chat_stream(messages(conversation), **options)
            except ContextError as error:
                self.screen.say(context_full(error, self.llm))
                return None
            stop.then(stream.cancel)
            try:
                completion = show_answer(stream, self.screen, hide=self._hide, notes=not self._quiet)
            except KeyboardInterrupt:  # the second one
                self.over, self.code = True, INTERRUPTED
                return None
        self.tally = add_answer(self.tally, completion)
        return completion

    @property
    def tools(self) -> str:
        """The text of `/tools`."""
        return self._tools.lines() if self._tools is not None else "  (there are no tools; [mcp.servers] names some)"

    def change_model(self, name: str) -> None:
        """Load another model, which goes on with the conversation. Where that fails, the old one is loaded again."""
        old, path = self.llm.card.path, self._find(name)
        self.llm.close()  # closed first: there may not be memory for both
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
        """Refuse a model without a chat template, or without a switch for thinking that the options ask for."""
        if not self.llm.card.chat:
            self.llm.close()
            raise UnsupportedError(
                f"{self.llm.card.name} has no chat template, so there is no talking with it",
                suggestion='give a text to go on with: woolly run MODEL "Once upon a time"',
            )
        self.check_think(self.options)

    def check_think(self, options: Mapping[str, Any]) -> None:
        """Refuse the option `think` where the model has no switch for thinking."""
        if options.get("think") is not None:
            self.llm.render([{"role": "user", "content": "?"}], think=options["think"])
