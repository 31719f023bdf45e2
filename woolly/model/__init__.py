"""model: the graph language, one file per family, and the NumPy reference.

In: an open GgufFile. Out: a Graph, which says what the model computes and holds no bytes of it; OPS, the definition of
every operation to the bit; the Reference, which runs a graph before and after every pass.
Never plans, packs or schedules, and never guesses: an unknown architecture, a missing or left over tensor, a wrong
shape and a switch that the family does not know are refused by name.
Read families/llama.py first, then the groups of `ops`.
"""

from __future__ import annotations

from woolly.model.adapters import Adapter, is_adapter, read_adapter, read_pairs
from woolly.model.builder import Builder
from woolly.model.families import ENCODERS, FAMILIES
from woolly.model.graph import Graph, check
from woolly.model.keys import Keys
from woolly.model.load import build
from woolly.model.meta import POOLINGS, Meta
from woolly.model.operands import INPUTS, Dtype, Node, Rows, State, Weight
from woolly.model.ops import GATES, OPS, Op, Shape
from woolly.model.ops.cache import Cache, Lines
from woolly.model.ops.numerics import NUMERICS_VERSION, Quantized, exp32
from woolly.model.ops.weights import Matrix
from woolly.model.reference.exact import EXACT
from woolly.model.reference.reference import Reference, run_reference
from woolly.model.tables import RopeTable, Table, TemperatureTable

__all__ = [
    "ENCODERS",
    "EXACT",
    "FAMILIES",
    "GATES",
    "INPUTS",
    "NUMERICS_VERSION",
    "OPS",
    "POOLINGS",
    "Adapter",
    "Builder",
    "Cache",
    "Dtype",
    "Graph",
    "Keys",
    "Lines",
    "Matrix",
    "Meta",
    "Node",
    "Op",
    "Quantized",
    "Reference",
    "RopeTable",
    "Rows",
    "Shape",
    "State",
    "Table",
    "TemperatureTable",
    "Weight",
    "build",
    "check",
    "exp32",
    "is_adapter",
    "read_adapter",
    "read_pairs",
    "run_reference",
]
