"""docs/kubernetes: the manifests are valid and name settings that Woolly has; their probes and deletion work."""

from __future__ import annotations

import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_every import parser_of
from tests.server.fleets import CHAT, WORDS, fleet, frames, talker
from tests.server.pods import FOLDER, SECRETS, Pod, manifest, manifests
from tests.server.raw import ask
from tests.server.stand_in import until
from woolly.config import SETTINGS
from woolly.config.serving import SERVING

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")

WORKLOADS = {"woolly-gate": "StatefulSet", "woolly-replica": "Deployment"}
PAGE = FOLDER.parent / "kubernetes.md"


def pod_of(name: str) -> dict[str, Any]:
    spec: dict[str, Any] = manifest(WORKLOADS[name], name)["spec"]["template"]["spec"]
    return spec


def container_of(name: str) -> dict[str, Any]:
    (one,) = pod_of(name)["containers"]
    return dict(one)


@pytest.mark.parametrize("version", ["1.30", "1.34", "1.37"])
def test_the_manifests_are_valid(version: str) -> None:
    validator = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
    for one in manifests():
        validator.validate(one, version, strict=True)


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl here")
def test_one_command_applies_all_of_them() -> None:
    done = subprocess.run(["kubectl", "kustomize", str(FOLDER)], capture_output=True, text=True, check=True)
    applied = [one for one in yaml.safe_load_all(done.stdout) if one]
    assert sorted((one["kind"], one["metadata"]["name"]) for one in applied) == sorted(
        (one["kind"], one["metadata"]["name"]) for one in manifests()
    )


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_options_and_variables_of_a_pod_are_woollys(name: str) -> None:
    container = container_of(name)
    woolly, command = container["command"]
    assert woolly == "woolly"
    parser_of(command).parse_intermixed_args(container["args"])
    known = {one.environ for one in SETTINGS} | {f"WOOLLY_{one.key.upper().replace('.', '__')}" for one in SETTINGS}
    assert {row["name"] for row in container["env"]} <= known | {"WOOLLY_HOME"}


@pytest.mark.parametrize("name", WORKLOADS)
def test_secrets_are_references_and_the_page_makes_them(name: str) -> None:
    rows = {row["name"]: row for row in container_of(name)["env"]}
    for variable in ("WOOLLY_API_KEY", "WOOLLY_FLEET_KEY"):
        reference = rows[variable]["valueFrom"]["secretKeyRef"]
        assert reference["key"] in SECRETS
        assert f"--from-literal={reference['key']}=" in PAGE.read_text("utf-8")


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_pod_may_do_nothing_but_its_work(name: str) -> None:
    """The restricted standard of Kubernetes, and a disk that cannot be written."""
    pod, container = pod_of(name), container_of(name)
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["runAsUser"] > 0
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_grace_is_longer_than_what_a_pod_takes_to_end(name: str) -> None:
    container, pod = container_of(name), pod_of(name)
    rows = {row["name"]: row.get("value", "") for row in container["env"]}
    hook = container.get("lifecycle", {}).get("preStop", {"exec": {"command": ["sleep", "0"]}})
    sleep, seconds = hook["exec"]["command"]
    drain_s = float(rows.get("WOOLLY_LIMITS__DRAIN_S", SERVING.drain_s))
    assert sleep == "sleep"
    assert float(seconds) + drain_s + 5 <= pod["terminationGracePeriodSeconds"]


@pytest.mark.parametrize("name", WORKLOADS)
def test_labels_lead_to_the_pods_they_mean(name: str) -> None:
    workload = manifest(WORKLOADS[name], name)["spec"]
    labels = workload["template"]["metadata"]["labels"]
    assert workload["selector"]["matchLabels"] == labels
    assert manifest("PodDisruptionBudget", name)["spec"]["selector"]["matchLabels"] == labels
    if name == "woolly-gate":
        for service in ("woolly", "woolly-gates"):
            assert manifest("Service", service)["spec"]["selector"] == labels
        assert workload["serviceName"] == "woolly-gates"


def test_a_replica_joins_every_gateway_by_a_name_that_the_gateway_answers_to() -> None:
    args = container_of("woolly-replica")["args"]
    joined = [args[at + 1] for at, word in enumerate(args) if word == "--join"]
    count = manifest("StatefulSet", "woolly-gate")["spec"]["replicas"]
    names = [f"woolly-gate-{number}.woolly-gates" for number in range(count)]
    assert joined == [f"http://{name}:8080" for name in names]
    rows = {row["name"]: row.get("value", "") for row in container_of("woolly-gate")["env"]}
    assert set(names) <= set(rows["WOOLLY_SERVER__ALLOWED_HOSTS"].split(","))


def test_the_autoscaler_scales_what_is_there_by_metrics_that_are_there(tmp_path: Path) -> None:
    spec = manifest("HorizontalPodAutoscaler", "woolly-replica")["spec"]
    assert manifest(spec["scaleTargetRef"]["kind"], spec["scaleTargetRef"]["name"])
    assert "replicas" not in manifest("Deployment", "woolly-replica")["spec"]  # the autoscaler sets it
    with fleet(tmp_path, talker(tmp_path, layers=1), 1) as deployment:
        replica = deployment.replicas[0].ask("GET", "/metrics")[2].decode()
        gateway = ask(deployment.port, "GET", "/metrics")[2].decode()
    for metric in spec["metrics"]:
        kind = metric["type"].lower()
        name = metric[kind]["metric"]["name"]
        ours = name.replace("woolly_", "woolly:")
        assert re.search(rf"^{ours}{{.*}} ", {"pods": replica, "external": gateway}[kind], re.M)
        assert f'as: "{name}"' in PAGE.read_text("utf-8") and ours in PAGE.read_text("utf-8")


class Pods:
    """The gateways and replicas of the folder, as processes."""

    def __init__(self, home: Path, stack: ExitStack) -> None:
        self._home, self._stack = home, stack
        (home / "models").mkdir()
        talker(home / "models", "model.gguf")
        self.gateways = [self._begin("woolly-gate", {}) for _ in range(2)]
        self.names = {f"woolly-gate-{number}.woolly-gates": one.port for number, one in enumerate(self.gateways)}
        self.replicas = [self._begin("woolly-replica", self.names) for _ in range(2)]
        for pod in (*self.gateways, *self.replicas):
            pod.wait_until_ready()
        for gateway in self.gateways:
            assert until(lambda gateway=gateway: len(self.state(gateway)) == 2)  # type: ignore[misc]

    def _begin(self, name: str, names: dict[str, int]) -> Pod:
        own = self._home / f"pod-{len(list(self._home.iterdir()))}"
        mounts = {"/data": own / "data", "/tmp": own / "tmp", "/models": self._home / "models"}
        for folder in mounts.values():
            folder.mkdir(parents=True, exist_ok=True)
        pod = Pod(manifest(WORKLOADS[name], name), names, mounts)
        self._stack.callback(pod.kill)
        return pod

    def state(self, gateway: Pod) -> list[dict[str, Any]]:
        """The replicas that a gateway knows for the model, with their state; empty before any has reported it."""
        state = ask(gateway.port, "GET", "/woolly/v1/fleet", headers=AUTH)[2]
        return [one for one in state["replicas"] if state["models"] and one["models"] and one["state"] == "here"]


AUTH = {"Authorization": f"Bearer {SECRETS['api-key']}"}


@pytest.fixture(scope="module")
def pods(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pods]:
    """Two gateways and two replicas. One test deletes the first gateway, the other a replica."""
    with ExitStack() as stack:
        yield Pods(tmp_path_factory.mktemp("pods"), stack)


def test_a_replica_that_is_deleted_finishes_its_stream_and_ends_by_itself(pods: Pods) -> None:
    gateway = pods.gateways[1]
    undisturbed = frames(gateway.port, "sampled", headers=AUTH, tokens=600)
    ends = []

    def seen(count: int) -> None:
        if count == 20:
            url = next(one["url"] for one in pods.state(gateway) if one["answers"])
            (busy,) = [one for one in pods.replicas if url.endswith(f":{one.port}")]
            thread = threading.Thread(target=lambda: ends.append(busy.delete()))
            thread.start()
            deleting.append(thread)

    deleting: list[threading.Thread] = []
    assert frames(gateway.port, "sampled", seen, headers=AUTH, tokens=600) == undisturbed
    deleting[0].join()
    assert ends[0].code == 0
    assert ends[0].unready_s is not None and ends[0].unready_s < ends[0].seconds  # before it ended
    assert ends[0].seconds < pod_of("woolly-replica")["terminationGracePeriodSeconds"]
    assert ask(gateway.port, "POST", CHAT, {"messages": WORDS, "max_tokens": 3}, AUTH)[0] == 200  # the other one


def test_a_gateway_that_is_deleted_finishes_its_streams_and_the_other_goes_on(pods: Pods) -> None:
    gateway, other = pods.gateways
    undisturbed = frames(other.port, "sampled", headers=AUTH, tokens=600)
    streams: list[Any] = []
    began = threading.Event()
    client = threading.Thread(
        target=lambda: streams.extend(frames(gateway.port, "sampled", lambda _: began.set(), headers=AUTH, tokens=600))
    )

    def late() -> None:  # a request that comes before the balancer knows of the end
        client.start()
        assert began.wait(60)

    ended = gateway.delete(late)
    client.join()
    assert streams == undisturbed
    assert ended.code == 0
    assert ended.unready_s is not None and ended.signal_s <= ended.unready_s < ended.seconds
    assert ask(other.port, "POST", CHAT, {"messages": WORDS, "max_tokens": 3}, AUTH)[0] == 200
