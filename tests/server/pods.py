"""A stand-in for Kubernetes: the pods of docs/kubernetes with their own commands, probed and deleted as by kubelet.

What only a cluster has is replaced: a name of a Service to this machine, a port to a free one, a volume to a folder, a
reference to a Secret to its value.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.server.forked import start
from tests.server.raw import ask
from tests.server.stand_in import until

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "kubernetes"
READY_S = 60.0  # for a pod that has started to be ready, on a busy machine
SECRETS = {"api-key": "an API key that is long enough", "fleet-key": "a secret of the fleet, long enough"}


def manifests() -> list[dict[str, Any]]:
    """Every object of the folder."""
    import yaml

    files = sorted(FOLDER.glob("*.yaml"))
    return [
        one for path in files if path.stem != "kustomization" for one in yaml.safe_load_all(path.read_text("utf-8"))
    ]


def manifest(kind: str, name: str) -> dict[str, Any]:
    (match,) = [one for one in manifests() if (one["kind"], one["metadata"]["name"]) == (kind, name)]
    return match


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@dataclass(frozen=True)
class Deleted:
    """How a pod ended. unready_s: when readiness failed, None if never. Seconds count from the deletion."""

    code: int
    seconds: float
    signal_s: float
    unready_s: float | None


class Pod:
    """The one container of a workload's pod. names: the ports behind `NAME:8080`. mounts: folders of the volumes."""

    def __init__(self, workload: dict[str, Any], names: dict[str, int], mounts: dict[str, Path]) -> None:
        self.spec = workload["spec"]["template"]["spec"]
        (self.container,) = self.spec["containers"]
        self.port = free_port()
        self._own = self.container["ports"][0]["containerPort"]
        self._names, self._mounts = names, mounts
        command = [*self.container["command"], *map(self._mapped, self.container["args"])]
        assert command[0] == "woolly"
        self.process = start(command[1:], self._environ(), stdout=subprocess.DEVNULL)

    def _mapped(self, word: str) -> str:
        for name, port in self._names.items():
            if word == f"http://{name}:{self._own}":
                return f"http://127.0.0.1:{port}"
        for mount, folder in self._mounts.items():
            if word == mount or word.startswith(mount + "/"):
                return str(folder) + word.removeprefix(mount)
        return str(self.port) if word == str(self._own) else word

    def _environ(self) -> dict[str, str]:
        variables = {
            row["name"]: SECRETS[row["valueFrom"]["secretKeyRef"]["key"]]
            if "valueFrom" in row
            else self._mapped(row["value"])
            for row in self.container["env"]
        }
        ours = {name: value for name, value in os.environ.items() if not name.startswith("WOOLLY_") and name != "HOME"}
        # a home that cannot be written, as on the container's read-only disk; one thread, as under a limit of one core
        return (
            ours | {"HOME": "/nonexistent", "TMPDIR": str(self._mounts["/tmp"]), "WOOLLY_CPU_THREADS": "1"} | variables
        )

    def probe(self, name: str) -> bool:
        """One probe as kubelet makes it: by the address of the pod, within the timeout of the probe."""
        probe = self.container[name]
        assert probe["httpGet"]["port"] == self.container["ports"][0]["name"]
        try:
            status = ask(
                self.port,
                "GET",
                probe["httpGet"]["path"],
                headers={"Host": f"10.1.2.3:{self.port}"},
                timeout=probe.get("timeoutSeconds", 1),
            )[0]
        except OSError:
            return False
        return 200 <= status < 400

    def wait_until_ready(self) -> None:
        """The startup probe, then the readiness probe."""
        probe = self.container["startupProbe"]
        assert until(lambda: self.probe("startupProbe"), probe["failureThreshold"] * probe["periodSeconds"])
        time.sleep(self.container["readinessProbe"].get("initialDelaySeconds", 0))
        assert until(lambda: self.probe("readinessProbe"), READY_S)  # kubelet repeats the probe until it succeeds
        assert self.probe("livenessProbe")

    def delete(self, signalled: Callable[[], None] = lambda: None) -> Deleted:
        """preStop, SIGTERM, then the rest of the grace period, after which Kubernetes would send SIGKILL."""
        begun, unready = time.monotonic(), list[float]()
        watched = threading.Thread(target=self._watch_readiness, args=(begun, unready))
        hook = self.container.get("lifecycle", {}).get("preStop")
        if hook is not None:
            subprocess.run(hook["exec"]["command"], check=True)
        signalled()
        signal_s = time.monotonic() - begun
        self.process.send_signal(signal.SIGTERM)
        watched.start()
        try:
            code = self.process.wait(self.spec["terminationGracePeriodSeconds"] - signal_s)
        finally:
            ended_s = time.monotonic() - begun
            self.process.kill()
            watched.join()
        return Deleted(code, ended_s, signal_s, unready[0] if unready else None)

    def _watch_readiness(self, begun: float, unready: list[float]) -> None:
        while self.process.poll() is None:
            if not self.probe("readinessProbe") and self.process.poll() is None:
                unready.append(time.monotonic() - begun)
                return
            time.sleep(0.05)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
