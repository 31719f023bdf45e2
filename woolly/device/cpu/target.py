"""TARGET: what the compiled core offers to plan, as kernels.h has it."""

from __future__ import annotations

from woolly.plan import Target

TARGET = Target(
    "cpu",
    page=64,
    panel=16,
    small_step=8,
    fused=frozenset(("take_early", "fuse_gate_up", "fuse_epilogues", "merge_siblings", "fuse_quantize", "fuse_store")),
)
