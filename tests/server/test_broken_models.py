"""F25 over HTTP: a model whose steps fail or hang is reported as broken, and the others answer."""

from __future__ import annotations

import threading
from typing import Any

from tests.server.conftest import Live
from tests.server.stand_in import Talker, until
from woolly.engine.watchdog import Watchdog


def fails(talker: Talker) -> None:
    def run(size: Any) -> Any:
        raise RuntimeError("a worker died")

    talker.runner.run = run  # type: ignore[method-assign]


def ready(live: Live) -> tuple[int, str]:
    status, _, body = live.ask("GET", "/health/ready")
    return status, body["checks"]["inference_engine"]["message"]


def test_f25_a_model_whose_steps_fail_is_loaded_again_once(live: Live) -> None:
    assert live.chat()[0] == 200
    fails(live.loader.talkers[0])
    assert [live.chat()[0] for _ in range(2)] == [500, 500]
    assert until(lambda: ready(live)[0] == 503) and "a worker died" in ready(live)[1]
    assert live.chat()[0] == 200  # by a newly loaded model
    assert [talker.closed for talker in live.loader.talkers] == [True, False]
    assert ready(live)[0] == 200

    fails(live.loader.talkers[1])
    for _ in range(4):  # not loaded a second time
        status, _, body = live.chat()
        assert status == 500 and "a worker died" in body["error"]["message"]
    assert len(live.loader.talkers) == 2 and ready(live)[0] == 503

    assert live.ask("POST", "/api/v1/models/beta/load", {})[0] == 200  # a request to load it does load it again
    assert live.chat()[0] == 200 and len(live.loader.talkers) == 3


def test_f25_a_model_that_hangs_is_broken_and_another_answers(live: Live) -> None:
    assert live.chat()[0] == 200
    talker, let_go = live.loader.talkers[0], threading.Event()
    hung = talker.runner.run

    def run(size: Any) -> Any:
        let_go.wait(20)
        return hung(size)

    talker.runner.run = run  # type: ignore[method-assign]
    talker.engine.watchdog = Watchdog(talker.engine._give_up, least_s=0.3, first_s=0.3, look_s=0.01)
    talker.engine.watchdog.start()
    try:
        status, _, body = live.chat()
        assert status == 500 and "has not come back" in body["error"]["message"]
        assert live.chat()[0] == 500 and len(live.loader.talkers) == 1  # its hung step still holds threads
        assert ready(live)[0] == 503
        assert live.ask("GET", "/health/live")[0] == 200
        assert live.chat(model="Alpha.Q4")[0] == 200
    finally:
        let_go.set()
