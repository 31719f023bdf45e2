"""text: text to tokens and back, chat templates to prompts, tokens to the text that is sent.

In: the metadata of a GGUF file; text, messages and token ids of a request. Out: token ids; text in whole characters.
Nothing that comes from outside is trusted: tokenizers are checked when they are read, templates are rendered in a
sealed process, and what users write never becomes a control token.
Never touches weights or the engine; never changes text on its own (no normalisation, nothing trimmed).
Read tokenizer.py for the rules; bpe.py, spm.py, wordpiece.py for the ways to cut; template.py and escape.py for chats;
stream.py for the way out; output.py and its table styles.py for telling thoughts, words and calls apart, with calls.py,
heads.py, values.py and schema.py for how each is written.
"""

from __future__ import annotations

from woolly.text.output.output import Output, find_output
from woolly.text.output.reader import OutputReader
from woolly.text.output.stream import TextStream
from woolly.text.output.style import AnswerPart, Calls, Form, Style
from woolly.text.output.styles import find_style, with_form
from woolly.text.output.values import finite
from woolly.text.template.capabilities import fit_to_template
from woolly.text.template.template import ABOUT_THINKING, ChatTemplate, Rendered, chat_template, start_renderer
from woolly.text.tokenizer.tokenizer import Tokenizer, check_text

__all__ = [
    "ABOUT_THINKING",
    "AnswerPart",
    "Calls",
    "ChatTemplate",
    "Form",
    "Output",
    "OutputReader",
    "Rendered",
    "Style",
    "TextStream",
    "Tokenizer",
    "chat_template",
    "check_text",
    "find_output",
    "find_style",
    "finite",
    "fit_to_template",
    "start_renderer",
    "with_form",
]
