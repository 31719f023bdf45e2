"""What docs/ has for systemd and compose: it is valid, says what Woolly knows, and its commands make a fleet."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_every import parser_of
from tests.server.pods import free_port
from tests.server.process import environ
from tests.server.raw import ask
from tests.server.stand_in import until
from tests.tiny import tiny
from woolly.config import SETTINGS
from woolly.config.serving import SERVING

DOCS = Path(__file__).resolve().parents[2] / "docs"
UNITS = sorted(DOCS.glob("*.service"))
KNOWN = {one.environ for one in SETTINGS} | {f"WOOLLY_{one.key.upper().replace('.', '__')}" for one in SETTINGS}
SPARE_S = 5


def lines_of(unit: Path, name: str) -> list[str]:
    """The values of a key, in their order."""
    return re.findall(rf"^{name}=(.*)$", unit.read_text("utf-8"), re.M)


def command_of(unit: Path) -> list[str]:
    """What a unit starts, after the name of the program."""
    (line,) = lines_of(unit, "ExecStart")
    program, *words = shlex.split(line)
    assert program == "/opt/woolly/bin/woolly"
    return words


def names_in(unit: Path) -> set[str]:
    return {word.partition("=")[0] for line in lines_of(unit, "Environment") for word in line.split()}


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze here")
@pytest.mark.parametrize("name", [*(unit.name for unit in UNITS), "woolly-replica@1.service"])
def test_systemd_finds_no_fault_in_a_unit(name: str, tmp_path: Path) -> None:
    for unit in UNITS:  # with a program that is here
        text = unit.read_text("utf-8").replace("/opt/woolly/bin/woolly", "/bin/true")
        (tmp_path / unit.name).write_text(text)
    (tmp_path / "woolly-replica@1.service").symlink_to("woolly-replica@.service")
    (drop_in,) = re.findall(r"```ini\n(.*?)```", (DOCS / "systemd.md").read_text("utf-8"), re.S)
    folder = tmp_path / "woolly-replica@1.service.d"
    folder.mkdir()
    (folder / "override.conf").write_text(re.sub("^ +", "", drop_in, flags=re.M))
    done = subprocess.run(
        ["systemd-analyze", "verify", str(tmp_path / name)], capture_output=True, text=True, check=False
    )
    about_it = [line for line in (done.stdout + done.stderr).splitlines() if "woolly" in line]
    assert (done.returncode, about_it) == (0, [])


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_unit_says_what_woolly_knows_and_waits_for_its_end(unit: Path) -> None:
    command, *words = command_of(unit)
    parser_of(command).parse_intermixed_args(words)
    assert names_in(unit) <= KNOWN | {"WOOLLY_HOME"}
    assert float(lines_of(unit, "TimeoutStopSec")[0]) >= SERVING.drain_s + SPARE_S


def test_the_variables_of_the_page_are_woollys() -> None:
    text = (DOCS / "systemd.md").read_text("utf-8")
    assert set(re.findall(r"\bWOOLLY_\w+", text)) <= KNOWN


def test_the_units_of_a_gateway_and_a_replica_make_a_fleet(tmp_path: Path) -> None:
    """Their commands and variables, and those that the page has for the files beside them."""
    tiny(tmp_path / "model.gguf")
    gateway, replica = DOCS / "woolly-gate.service", DOCS / "woolly-replica@.service"
    port = free_port()
    common = environ(tmp_path, tmp_path) | {"WOOLLY_FLEET_KEY": "a secret that both of them know"}
    (page,) = re.findall(r"```\n(WOOLLY_JOIN=.*?)```", (DOCS / "systemd.md").read_text("utf-8"), re.S)
    rows = dict(line.split("=", 1) for line in page.splitlines())
    rows |= {"WOOLLY_JOIN": f"http://127.0.0.1:{port}", "WOOLLY_HOST": "127.0.0.1"}
    (assigned,) = lines_of(replica, "Environment")
    own = dict(word.split("=", 1) for word in assigned.replace("/var/lib", str(tmp_path)).replace("%i", "0").split())
    own |= {name: value for name, value in rows.items() if value != "..."}
    processes = []
    try:
        processes.append(begin(gateway, tmp_path, common | {"WOOLLY_PORT": str(port)}))
        assert until(lambda: is_up(port))
        processes.append(begin(replica, tmp_path, common | own))
        assert until(lambda: ask(port, "GET", "/woolly/v1/fleet")[2]["models"], 30)
        body = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 3}
        assert ask(port, "POST", "/v1/chat/completions", body)[0] == 200
        for process in reversed(processes):
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
    finally:
        for process in processes:
            process.kill()
            process.wait()


def begin(unit: Path, models: Path, env: dict[str, str]) -> subprocess.Popen[bytes]:
    words = [word.replace("/srv/woolly/models", str(models)) for word in command_of(unit)]
    return subprocess.Popen([sys.executable, "-m", "woolly", *words], env=env, stdout=subprocess.DEVNULL)


def is_up(port: int) -> bool:
    try:
        return ask(port, "GET", "/health/ready")[0] == 200
    except OSError:
        return False


def compose() -> dict[str, Any]:
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    return dict(yaml.safe_load((DOCS / "compose.yaml").read_text("utf-8")))


def test_the_compose_file_is_valid() -> None:
    pytest.importorskip("check_jsonschema", reason="check-jsonschema is not installed")
    schema = ["--builtin-schema", "vendor.compose-spec", str(DOCS / "compose.yaml")]
    done = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", *schema],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", ["gate", "replica"])
def test_a_service_of_compose_says_what_woolly_knows_and_has_time_to_end(name: str) -> None:
    service = compose()["services"][name]
    woolly, command = service["entrypoint"]
    assert woolly == "woolly"
    parser_of(command).parse_intermixed_args(service["command"])
    assert service["environment"].keys() <= KNOWN
    assert all(value.startswith("${") for key, value in service["environment"].items() if key.endswith("_KEY"))
    assert float(service["stop_grace_period"].removesuffix("s")) >= SERVING.drain_s + SPARE_S


def test_replicas_of_compose_join_the_gateway_by_a_name_that_it_answers_to() -> None:
    services = compose()["services"]
    words = services["replica"]["command"]
    assert words[words.index("--join") + 1] == "http://gate:8080"
    assert services["gate"]["environment"]["WOOLLY_SERVER__ALLOWED_HOSTS"] == "gate"
    assert "8080" in services["gate"]["command"]
