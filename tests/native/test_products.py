"""Products with packed weights against their definitions: those ops of test_ops.py that take the longest."""

from __future__ import annotations

import pytest

from tests.native.sketch import every_set
from tests.native.test_ops import PRODUCTS, compare
from woolly.device import Device

pytestmark = pytest.mark.native


@every_set
@pytest.mark.parametrize("op", sorted(PRODUCTS))
def test_every_set_gives_the_bits_of_the_reference(op: str, device: Device, isa: str) -> None:
    compare(op, device, isa)
