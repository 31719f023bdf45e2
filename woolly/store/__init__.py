"""store: from a name to a file on this machine.

In: what a user wrote (a path, a name of the catalogue, the stem of a file in a model folder).
Out: the path of a GGUF file. A model of the catalogue that is not here yet is downloaded and checked against its
digest; it appears under its name whole, or not at all.
Never opens a model, never guesses between two files, never downloads anything but the catalogue's own rows.
"""

from woolly.store.catalogue import CATALOGUE, DEFAULT, Entry
from woolly.store.download import Progress, fetch, find
from woolly.store.names import NAME, entry, identity, is_model, listed, resolve

__all__ = [
    "CATALOGUE",
    "DEFAULT",
    "NAME",
    "Entry",
    "Progress",
    "entry",
    "fetch",
    "find",
    "identity",
    "is_model",
    "listed",
    "resolve",
]
