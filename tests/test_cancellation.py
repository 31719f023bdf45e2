"""Work that nobody waits for any more: its loops, its waits and its sockets end."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from woolly.io.cancellation import AbandonedError, Cancellation, check, held, pause, stopping


def abandoned(work: Callable[[Callable[[], None]], object]) -> None:
    """Do work that says when it waits; it is cancelled then, from another thread, and ends."""
    cancellation, waits = Cancellation(), threading.Event()
    other = threading.Thread(target=lambda: waits.wait() and cancellation.cancel())
    other.start()
    with pytest.raises(AbandonedError):
        cancellation.run(lambda: work(waits.set))
    other.join()


def test_l20_a_pause_ends() -> None:
    def work(begun: Callable[[], None]) -> None:
        begun()
        pause(100_000)

    abandoned(work)


def test_l20_whoever_waits_for_a_lock_goes() -> None:
    lock = threading.Lock()

    def work(begun: Callable[[], None]) -> None:
        begun()
        with held(lock):
            raise AssertionError

    with lock:
        abandoned(work)
    with held(lock):
        assert lock.locked()
    assert not lock.locked()


def test_l20_what_ends_a_wait_is_called_once_it_is_to_end_and_at_no_other_time() -> None:
    event = threading.Event()

    def work(begun: Callable[[], None]) -> None:
        with stopping(event.set):
            begun()
            event.wait()
        check()

    abandoned(work)
    calls: list[str] = []
    cancellation = Cancellation()

    def later() -> None:
        with stopping(lambda: calls.append("over")):
            pass
        cancellation.cancel()
        with stopping(lambda: calls.append("at once")):
            check()

    with pytest.raises(AbandonedError):
        cancellation.run(later)
    assert calls == ["at once"]


def test_outside_of_such_work_nothing_is_called() -> None:
    with stopping(lambda: pytest.fail("nobody has gone")), held(threading.Lock()):
        pause(0.0)
