"""engine: who computes what next.

In: a Runner and Sequences (prompts with their wishes). Out: a Stream of events for each.
One thread takes turns: schedule missing tokens into a Batch, run it, choose tokens, send text. Sequences share whole
pages of equal beginnings, and with a shelf these outlive the process. Never looks into a model or a tensor, knows no
family, and reads no files but its shelf's. Read engine.py's `turn` first; sampling.py defines how a token is chosen.
"""

from woolly.engine.adapters import Adapters
from woolly.engine.calling import calling_of, check_tools, is_required
from woolly.engine.constrain import Grammar, Grammars, Terms, frame_of, left_out
from woolly.engine.engine import Engine
from woolly.engine.pages import page_names
from woolly.engine.runner import Runner
from woolly.engine.sampling import STAGES, pick
from woolly.engine.sequence import Sequence
from woolly.engine.shelf import ModelShelf, Shelf, name_of
from woolly.engine.stream import Read, Stream
from woolly.engine.tally import Figures

__all__ = [
    "STAGES",
    "Adapters",
    "Engine",
    "Figures",
    "Grammar",
    "Grammars",
    "ModelShelf",
    "Read",
    "Runner",
    "Sequence",
    "Shelf",
    "Stream",
    "Terms",
    "calling_of",
    "check_tools",
    "frame_of",
    "is_required",
    "left_out",
    "name_of",
    "page_names",
    "pick",
]
