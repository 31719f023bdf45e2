"""Turns: one at a time, and in the order in which they were asked for."""

from __future__ import annotations

import os
import time
from threading import Thread

import pytest

from woolly.device import DEVICES, DeviceQueue


def test_busy_ones_have_their_turns_in_a_circle() -> None:
    """Each thread keeps its turn until all others wait, so the order comes from the queue, not from their speed."""
    queue, order, living = DeviceQueue(), list[int](), 4

    def live(number: int) -> None:
        nonlocal living
        for turn in range(20):
            with queue.turn():
                while len(queue._line) < living - 1:
                    time.sleep(0.0001)
                order.append(number)
                living -= turn == 19

    threads = [Thread(target=live, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(order[:4]) == [0, 1, 2, 3] and order == order[:4] * 20


def test_a_step_that_fails_gives_its_turn_back() -> None:
    queue = DeviceQueue()
    with pytest.raises(ValueError), queue.turn():
        raise ValueError
    with queue.turn():
        pass


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_in_the_middle_of_a_turn_can_take_its_own() -> None:
    with DEVICES["cpu"].queue.turn():
        child = os.fork()
        if child == 0:
            with DEVICES["cpu"].queue.turn():
                os._exit(0)
    end = time.monotonic() + 60
    while (status := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < end:
        time.sleep(0.01)
    if status == (0, 0):
        os.kill(child, 9)
        os.waitpid(child, 0)
    assert status == (child, 0)
