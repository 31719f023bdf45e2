"""OPS: every operation a graph may use, defined to the bit.

An op is a NumPy function in a file of its group. Its positional parameters are the tensors, their annotations say of
which kind; its keyword-only parameters are the attributes; its docstring is the documentation; its body is the result.
The rule in the decorator gives the shape and checks sizes: it takes the same parameters, but for each tensor its
description (a Node, Weight, State or table) in place of its value. `Builder` and `check` both ask the rule.

Fused ops are ordinary rows whose body is the composition of their parts, so a graph means the same before and after it
was fused.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from woolly.model.ops.kinds import KINDS
from woolly.model.ops.shapes import Shape


@dataclass(frozen=True, slots=True)
class Op:
    """A row of the table."""

    name: str
    function: Callable[..., Any]
    rule: Callable[..., Shape]
    tensors: Mapping[str, frozenset[str]]  # parameter: the kinds it takes
    optional: frozenset[str]  # tensors that may be left out
    attrs: Mapping[str, type]

    def __call__(self, *tensors: Any, **attrs: int | float) -> Any:
        """The result; overflow and NaN are values here, not warnings."""
        with np.errstate(all="ignore"):
            return self.function(*tensors, **attrs)

    def shape(self, operands: Sequence[Any], attrs: Mapping[str, int | float]) -> Shape:
        """The shape of the result from descriptions of the operands (None: left out), or ValueError."""
        if len(operands) != len(self.tensors):
            raise ValueError(f"{self.name} takes {len(self.tensors)} operands, not {len(operands)}")
        for (name, kinds), operand in zip(self.tensors.items(), operands, strict=True):
            kind = None if operand is None else operand.kind
            if kind not in kinds and not (kind is None and name in self.optional):
                raise ValueError(f"{self.name} takes {' or '.join(sorted(kinds))} as {name}, not {kind or 'nothing'}")
        if set(attrs) != set(self.attrs):
            raise ValueError(f"{self.name} has the attributes {sorted(self.attrs)}, not {sorted(attrs)}")
        for name, value in attrs.items():
            if type(value) is not self.attrs[name]:
                raise ValueError(f"{self.name}: {name} must be {self.attrs[name].__name__}, not {value!r}")
        return self.rule(*operands, **attrs)


OPS: dict[str, Op] = {}


_Function = TypeVar("_Function", bound=Callable[..., Any])


def op(rule: Callable[..., Shape]) -> Callable[[_Function], _Function]:
    """Enter a function into OPS under its own name."""

    def enter(function: _Function) -> _Function:
        tensors: dict[str, frozenset[str]] = {}
        optional, attrs = set(), {}
        for name, parameter in inspect.signature(function).parameters.items():
            words = [word.strip() for word in str(parameter.annotation).split("|")]
            if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
                attrs[name] = {"int": int, "float": float}[words[0]]
                continue
            tensors[name] = frozenset(KINDS[word] for word in words if word != "None")
            if "None" in words:
                optional.add(name)
        name = function.__name__.rstrip("_")
        OPS[name] = Op(name, function, rule, tensors, frozenset(optional), attrs)
        return function

    return enter
