"""store: from a name to a file on this machine.

In: what a user wrote (a path, a name of the catalogue, of the hub, of a model folder, or one that Ollama or LM Studio
uses). Out: the path of a GGUF file. What belongs to other programs is read in place, never copied, changed or removed.
A model that is not here yet is downloaded and checked against its digest; it appears under its name whole, or not at
all.
Never opens a model, never guesses between two files, never downloads what was not asked for by name.
"""

from woolly.store.adapters import Adapted, AdapterFile, adapter_files
from woolly.store.catalogue import CATALOGUE, DEFAULT, Entry
from woolly.store.digest import file_digest, known_digest
from woolly.store.model import OWNERS, Model, Progress, identity, parts_of
from woolly.store.names import NAME, is_listed, is_model, is_path, matching, named, resolve, stem
from woolly.store.places import installed, listed, model_at
from woolly.store.pull import Pulled, pull
from woolly.store.remove import check_ours, remove
from woolly.store.secret import secret

__all__ = [
    "CATALOGUE",
    "DEFAULT",
    "NAME",
    "OWNERS",
    "Adapted",
    "AdapterFile",
    "Entry",
    "Model",
    "Progress",
    "Pulled",
    "adapter_files",
    "check_ours",
    "file_digest",
    "identity",
    "installed",
    "is_listed",
    "is_model",
    "is_path",
    "known_digest",
    "listed",
    "matching",
    "model_at",
    "named",
    "parts_of",
    "pull",
    "remove",
    "resolve",
    "secret",
    "stem",
]
