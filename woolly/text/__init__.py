"""text: text to tokens and back, chat templates to prompts, tokens to the text that is sent.

In: the metadata of a GGUF file; text, messages and token ids of a request. Out: token ids; text in whole characters.
Nothing that comes from outside is trusted: tokenizers are checked when they are read, templates are rendered in a
sealed process, and what users write never becomes a control token.
Never touches weights or the engine; never changes text on its own (no normalisation, nothing trimmed).
Read tokenizer.py for the rules; bpe.py, spm.py, wordpiece.py for the ways to cut; template.py and marks.py for chats;
stream.py for the way out; output.py and its table styles.py for telling thoughts, words and calls apart, with calls.py,
heads.py, values.py and schema.py for how each is written.
"""

from __future__ import annotations

from woolly.text.habits import adapted
from woolly.text.output import Output, OutputReader, find_output
from woolly.text.stream import TextStream
from woolly.text.styles import Calls, Form, Part, Style, find_style, with_form
from woolly.text.template import ChatTemplate, Rendered, chat_template, start_renderer
from woolly.text.tokenizer import Tokenizer
from woolly.text.values import finite

__all__ = [
    "Calls",
    "ChatTemplate",
    "Form",
    "Output",
    "OutputReader",
    "Part",
    "Rendered",
    "Style",
    "TextStream",
    "Tokenizer",
    "adapted",
    "chat_template",
    "find_output",
    "find_style",
    "finite",
    "start_renderer",
    "with_form",
]
