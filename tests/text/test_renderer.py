"""The child process: sealed, replaced when it dies, gone when its parent is."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread

import pytest
from jinja2.defaults import DEFAULT_FILTERS

from woolly.errors import NativeError, RequestError
from woolly.io.cancellation import AbandonedError, Cancellation
from woolly.io.sandbox import Child
from woolly.io.sandbox_pool import ChildPool
from woolly.text import ChatTemplate
from woolly.text.template import worker
from woolly.text.template.renderer import RENDERER

HI = [{"role": "user", "content": "hi"}]
TEMPLATE = ChatTemplate("{{ messages[0].content }}")

linux = pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="reads /proc")


def child() -> int:
    assert TEMPLATE.render(HI).plain == "hi"
    process = RENDERER._free[0]._process
    assert process is not None
    return process.pid


def gone(pid: int) -> bool:
    """Whether a process that is no child of ours has ended, within half a minute."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        time.sleep(0.01)
    return False


def ticks(pid: int) -> int:
    """How long a process has computed."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11])


@linux
def test_s13_the_process_is_sealed() -> None:
    limits = {}
    for line in Path(f"/proc/{child()}/limits").read_text().splitlines()[1:]:
        limits[line[:26].strip()] = line[26:].split()[:2]
    size = int(Path(f"/proc/{child()}/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    assert limits["Max open files"] == ["3", "3"]
    for name in ("Max file size", "Max processes", "Max core file size"):
        assert limits[name] == ["0", "0"], name
    assert int(limits["Max address space"][1]) <= size + (64 << 20)
    assert sorted(os.listdir(f"/proc/{child()}/fd")) == ["0", "1", "2"]
    assert b"PATH" not in Path(f"/proc/{child()}/environ").read_bytes()


@pytest.mark.parametrize("name", sorted(DEFAULT_FILTERS))
def test_a_filter_needs_nothing_that_the_sealed_process_cannot_load(name: str) -> None:
    for value in ("<b>é</b> &amp; x", 1.5, [2, 1], {"a": "b"}):
        try:
            ChatTemplate(f"{{{{ value | {name} }}}}").render(HI, value=value)
        except RequestError as error:  # the filter does not take such a value
            assert "process does not have" not in error.message
            assert "/" not in error.message.replace("</b>", "")


def test_it_is_one_process_for_all_templates_that_take_no_time() -> None:
    first = child()
    for text in "xyz":
        assert ChatTemplate(text).render(HI).plain == text
    assert child() == first
    assert len(RENDERER._children) == 1


def test_a_process_that_was_killed_is_replaced() -> None:
    first = child()
    os.kill(first, signal.SIGKILL)
    process = RENDERER._free[0]._process
    assert process is not None
    process.wait()
    assert child() != first


@linux
def test_a_process_that_is_replaced_leaves_no_zombie() -> None:
    first = child()
    with pytest.raises(Exception, match="64 MiB"):
        ChatTemplate("{{ 'x' * 10 ** 10 }}").render(HI)
    assert not Path(f"/proc/{first}").exists()
    assert child() != first


CODE = """
import os, sys, time
from woolly.text import ChatTemplate
from woolly.text.template.renderer import RENDERER
template = ChatTemplate("{{ messages[0].content }}")
hi = [{"role": "user", "content": "hi"}]
assert template.render(hi).plain == "hi"
print(RENDERER._free[0]._process.pid, flush=True)
"""


def python(code: str) -> subprocess.Popen[str]:
    root = Path(__file__).resolve().parents[2]
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", CODE + code], stdout=-1, stderr=-1, stdin=-1, text=True, cwd=root
    )


@linux
def test_it_ends_with_a_parent_that_ends() -> None:
    program = python("")
    out, err = program.communicate(timeout=60)
    assert (program.returncode, err) == (0, "")
    assert gone(int(out))


@linux
def test_it_ends_with_a_parent_that_is_killed() -> None:
    program = python("time.sleep(60)")
    assert program.stdout is not None
    worker = int(program.stdout.readline())
    program.kill()
    program.communicate()
    assert gone(worker)


@linux
def test_it_ends_although_a_render_runs_when_the_parent_is_killed() -> None:
    loops = "{% for a in range(99999) %}" * 3 + "{% endfor %}" * 3
    program = python(f"print(flush=True); ChatTemplate({loops!r}).render(hi)")
    assert program.stdout is not None
    worker = int(program.stdout.readline())
    program.stdout.readline()
    before = ticks(worker)
    while ticks(worker) < before + 3:  # it works
        time.sleep(0.01)
    program.kill()
    program.communicate()
    assert gone(worker)


@linux
def test_a_forked_child_gets_a_process_of_its_own_and_does_not_keep_the_parents_alive() -> None:
    program = python(
        """
if os.fork() == 0:
    mine = template.render(hi).plain
    print(mine, RENDERER._free[0]._process.pid, flush=True)
    sys.stdin.read()
    RENDERER.close()
    os._exit(0)
assert template.render(hi).plain == "hi"
RENDERER.close()
os._exit(0)
"""
    )
    assert program.stdout is not None and program.stdin is not None
    parents = int(program.stdout.readline())
    text, own = program.stdout.readline().split()
    assert text == "hi"
    assert int(own) != parents
    assert gone(parents)
    program.stdin.close()
    assert gone(int(own))
    program.wait()
    program.stdout.close()
    assert program.stderr is not None
    program.stderr.close()


def test_a_process_that_cannot_start_is_an_error_with_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = Child("renders", Path("worker.py"), ("jinja2",), (), 1.0)
    monkeypatch.setattr(sys, "executable", "/bin/true" if Path("/bin/true").exists() else "/usr/bin/true")
    with pytest.raises(NativeError, match=r"did not start.*jinja2"):
        broken.ask(b"{}")


ENDLESS = "{% for a in range(99999) %}" * 4 + "{% endfor %}" * 4


def patient_child() -> Child:
    """A process that may work for hours."""
    return Child("renders", Path(worker.__file__), ("jinja2", "markupsafe"), (64 << 20, 8 << 20, 10_000), 10_000.0)


@pytest.fixture
def patient() -> Iterator[Child]:
    child = patient_child()
    yield child
    child.close()


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Iterator[ChildPool]:
    """What templates are rendered by: processes that may work for hours."""
    pool = ChildPool(patient_child)
    monkeypatch.setattr("woolly.text.template.template.RENDERER", pool)
    yield pool
    pool.close()


def asked(source: str) -> bytes:
    return json.dumps({"source": source, "now": "2026-02-03", "variables": {}}).encode()


@contextmanager
def waiting(work: Callable[[], object]) -> Iterator[Thread]:
    """A thread that waits for the answer to a request, which nobody waits for any more in the end."""
    cancellation = Cancellation()

    def wait() -> None:
        with suppress(AbandonedError):
            cancellation.run(work)

    thread = Thread(target=wait, daemon=True)
    thread.start()
    yield thread
    cancellation.cancel()
    thread.join(60)
    assert not thread.is_alive()


@linux
def test_l20_when_nobody_waits_for_a_render_any_more_its_process_ends(patient: Child) -> None:
    assert patient.ask(asked("hi")) == ("T", "hi")
    assert patient._process is not None
    first = patient._process.pid
    with waiting(lambda: patient.ask(asked(ENDLESS))):
        before = ticks(first)
        while ticks(first) < before + 3:  # it works
            time.sleep(0.01)
    assert not Path(f"/proc/{first}").exists()
    assert patient.ask(asked("next")) == ("T", "next")


def test_l20_who_waits_for_the_process_can_go_while_it_works_for_another(patient: Child) -> None:
    assert patient.ask(asked("hi")) == ("T", "hi")
    process = patient._process
    with waiting(lambda: patient.ask(asked(ENDLESS))) as first:
        while not patient._lock.locked():
            time.sleep(0.01)
        with waiting(lambda: patient.ask(asked("never"))):
            pass
        assert first.is_alive() and patient._process is process


def test_a_template_that_takes_its_time_delays_no_chat_with_another(pool: ChildPool) -> None:
    assert TEMPLATE.render(HI).plain == "hi"
    slow = ChatTemplate(ENDLESS)
    with waiting(lambda: slow.render(HI)) as first:
        while slow.source not in pool._owners:
            time.sleep(0.01)
        with waiting(lambda: slow.render(HI)) as second:  # chats with the same one wait for it
            for text in "xyz":
                assert ChatTemplate(text).render(HI).plain == text
            assert first.is_alive() and second.is_alive()
    assert len(pool._children) == 2
    assert not pool._owners and len(pool._free) == 2


def test_templates_need_no_numpy() -> None:
    code = CODE + "assert 'numpy' not in sys.modules"
    subprocess.run(
        [sys.executable, "-c", code], check=True, cwd=Path(__file__).resolve().parents[2], capture_output=True
    )
