"""store: from a name to a file on this machine.

In: what a user wrote (a path, a name of the catalogue, of the hub, of a model folder, or one that Ollama or LM Studio
uses). Out: the path of a GGUF file. Files of other programs are read in place, never copied, changed or removed.
A model that is not here yet is downloaded and checked against its digest; it appears under its name whole, or not at
all.
Never opens a model, never guesses between two files, never downloads a model that was not asked for by name.
"""

from woolly.store.adapters import AdapterFile, adapter_files
from woolly.store.catalogue import CATALOGUE, DEFAULT, CatalogueEntry
from woolly.store.digest import cached_digest, file_digest
from woolly.store.model import OWNERS, Model, Progress, identity, parts_of
from woolly.store.names import NAME, is_in_catalogue, is_model, is_path, local_model, matching, resolve, stem
from woolly.store.places import installed, model_at, name_of, paths_inside_folders
from woolly.store.pull import PullResult, pull
from woolly.store.remove import check_owned, remove
from woolly.store.secret import read_secret

__all__ = [
    "CATALOGUE",
    "DEFAULT",
    "NAME",
    "OWNERS",
    "AdapterFile",
    "CatalogueEntry",
    "Model",
    "Progress",
    "PullResult",
    "adapter_files",
    "cached_digest",
    "check_owned",
    "file_digest",
    "identity",
    "installed",
    "is_in_catalogue",
    "is_model",
    "is_path",
    "local_model",
    "matching",
    "model_at",
    "name_of",
    "parts_of",
    "paths_inside_folders",
    "pull",
    "read_secret",
    "remove",
    "resolve",
    "stem",
]
