"""Turns: one at a time, and in the order in which they were asked for."""

from __future__ import annotations

import os
import time
from threading import Barrier, Thread

import pytest

from woolly.engine.turns import MACHINE, Turns


def test_busy_ones_have_their_turns_in_a_circle() -> None:
    turns, order, together = Turns(), list[int](), Barrier(4)

    def live(number: int) -> None:
        together.wait()
        for _ in range(20):
            with turns.mine():
                time.sleep(0.001)
                order.append(number)

    threads = [Thread(target=live, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    middle = order[8:-8]  # all of them have come, and none has gone
    assert all(sorted(middle[at : at + 4]) == [0, 1, 2, 3] for at in range(len(middle) - 3))


def test_a_step_that_fails_gives_its_turn_back() -> None:
    turns = Turns()
    with pytest.raises(ValueError), turns.mine():
        raise ValueError
    with turns.mine():
        pass


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_in_the_middle_of_a_turn_can_take_its_own() -> None:
    with MACHINE.mine():
        child = os.fork()
        if child == 0:
            with MACHINE.mine():
                os._exit(0)
    end = time.monotonic() + 10
    while (found := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < end:
        time.sleep(0.01)
    if found == (0, 0):
        os.kill(child, 9)
        os.waitpid(child, 0)
    assert found == (child, 0)
