"""Fixtures for the whole suite."""

from __future__ import annotations

import gc
import os
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Before anything imports NumPy: its BLAS starts a thread for each core, which spins while it waits for the others.
# Beside other tests that takes up to three times the CPU time of one thread, and longer.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from woolly.errors import DownloadError, FileError
from woolly.store import resolve

# An example may take as long as it takes: that tells of the machine alone.
settings.register_profile("tests", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("soak", settings.get_profile("tests"), max_examples=1000)
settings.load_profile("tests")

# A shell starts what it runs in the background with Ctrl-C ignored, `nohup` ignores hangups, and children inherit that;
# tests send both to theirs.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_collection_finish() -> None:
    """The thousands of tests themselves stay: no collection need look at them again, which would take half a second."""
    gc.freeze()


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """The default model; downloaded if it is not here, and its tests are skipped where it cannot be had."""
    try:
        return resolve("smollm2")
    except (DownloadError, FileError) as error:
        pytest.skip(f"the default model cannot be had: {error.message}")
