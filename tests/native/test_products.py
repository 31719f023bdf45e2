"""Products with packed weights against their definitions: those ops of test_ops.py that take the longest."""

from __future__ import annotations

import pytest

from tests.native.test_ops import PRODUCTS, compare
from woolly.device.cpu import machine

pytestmark = pytest.mark.native


@pytest.mark.parametrize("isa", machine()["sets"])
@pytest.mark.parametrize("op", sorted(PRODUCTS))
def test_every_set_gives_the_bits_of_the_reference(op: str, isa: str) -> None:
    compare(op, isa)
