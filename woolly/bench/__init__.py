"""bench: honest speed, with the limits of the machine and its state beside every figure.

In: a model file, or the shape of a real model, which is then written with random weights. Out: a BenchReport: prompts
and tokens a second, the share of a plain read, steps of several sequences, loading, memory, what Python adds, and
ratios to a peer in alternating slices; the limits of the machine; every kernel alone; a loaded model while it serves
(live.py).
Never changes what it measures: it calls the runner as the engine does. A figure that others disturbed is given all the
same and marked noisy.
Read ratios.py for how a ratio comes about, then run.py. What is measured is a dataclass: text.py prints it for people,
`figures` makes it JSON.
"""

from __future__ import annotations

from woolly.bench.diagnosis import Diagnosis, diagnose
from woolly.bench.figures import figures
from woolly.bench.kernels import cases, products
from woolly.bench.machine import measure_roofline
from woolly.bench.peer import find_peer
from woolly.bench.random_model import write_model
from woolly.bench.run import BenchPlan, BenchReport, bench_model
from woolly.bench.shapes import MIXES, SHAPES, read_shape
from woolly.bench.text import PRODUCT_HEAD, case_line, product_line, report_lines, roofline_lines

__all__ = [
    "MIXES",
    "PRODUCT_HEAD",
    "SHAPES",
    "BenchPlan",
    "BenchReport",
    "Diagnosis",
    "bench_model",
    "case_line",
    "cases",
    "diagnose",
    "figures",
    "find_peer",
    "measure_roofline",
    "product_line",
    "products",
    "read_shape",
    "report_lines",
    "roofline_lines",
    "write_model",
]
