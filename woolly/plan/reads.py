"""What a program reads of its weights: all that a token needs, and the largest product of them."""

from __future__ import annotations

from collections.abc import Iterator

from woolly.plan.program import WEIGHT, Program


def token_bytes(program: Program) -> int:
    """Bytes of weights that every token reads whole: those that a product or a norm takes."""
    return sum({place: nbytes for _, place, nbytes in _weights(program)}.values())


def largest_product(program: Program) -> int:
    """The instruction that reads the largest weight."""
    return max(_weights(program), key=lambda row: row[2], default=(0, 0, 0))[0]


def _weights(program: Program) -> Iterator[tuple[int, int, int]]:
    """Instruction, place and bytes of each weight that is read whole; an embedding gives one row."""
    names = [op.name for op in program.ops]
    for index, row in enumerate(program.code):
        if names[int(row["op"])] == "embed":
            continue
        for operand in row["inputs"]:
            if operand["kind"] == WEIGHT:
                yield index, int(operand["place"]), int(operand["nbytes"])
