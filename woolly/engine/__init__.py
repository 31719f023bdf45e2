"""engine: decides what is computed next.

In: a Runner and Sequences (prompts with their options). Out: a Stream of events for each. One thread takes turns:
schedule missing tokens into a Batch, run it, choose tokens, send text. Sequences share whole pages of equal beginnings,
and with a disk store these outlive the process. Never looks into a model or a tensor, knows no family, and reads no
files but those of its disk store. Read engine.py's `turn` first; sampling/stages.py defines how a token is chosen.
"""

from woolly.engine.adapters import Adapters
from woolly.engine.answer import AnswerOptions, Resumed
from woolly.engine.cache.disk import DiskStore, ModelDiskStore, name_of
from woolly.engine.cache.names import page_names
from woolly.engine.engine import Engine
from woolly.engine.grammar.calls import call_grammar_of, check_tools, is_required, notes_of_tools
from woolly.engine.grammar.compiler import Budget
from woolly.engine.grammar.constrain import Grammar, Grammars, Terms, frame_of, left_out
from woolly.engine.likelihoods import LogprobOptions
from woolly.engine.sampling.stages import STAGES, pick
from woolly.engine.sequence import Scores, Sequence
from woolly.engine.stream import Read, Stream
from woolly.engine.tally import Figures

__all__ = [
    "STAGES",
    "Adapters",
    "AnswerOptions",
    "Budget",
    "DiskStore",
    "Engine",
    "Figures",
    "Grammar",
    "Grammars",
    "LogprobOptions",
    "ModelDiskStore",
    "Read",
    "Resumed",
    "Scores",
    "Sequence",
    "Stream",
    "Terms",
    "call_grammar_of",
    "check_tools",
    "frame_of",
    "is_required",
    "left_out",
    "name_of",
    "notes_of_tools",
    "page_names",
    "pick",
]
