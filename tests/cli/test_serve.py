"""`woolly serve` as a user starts it: a process that answers at once, refuses what is wrong, and ends when told to."""

from __future__ import annotations

import dataclasses
import errno
import http.client
import json
import os
import re
import signal
import socket
import ssl
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.chat.terminal import Terminal
from tests.cli.conftest import Woolly
from tests.cli.llama_server_options import LIST
from tests.server.background import Background
from tests.server.process import Process
from tests.server.raw import Raw, ask, status
from tests.server.stand_in import until
from tests.server.tls import certificate, needs_openssl
from tests.tiny import damaged, tiny
from woolly.cli import serve
from woolly.config import read_config
from woolly.config.serving import SERVING
from woolly.errors import BusyError
from woolly.llm.llm import Tokenizer
from woolly.server import App
from woolly.server.settings import read_settings
from woolly.server.sockets import bind


@pytest.fixture
def server(environ: dict[str, str]) -> Iterator[Process]:
    with Process(environ, "tiny-talker", fresh=True) as process:
        yield process


def test_a_server_answers_says_how_to_reach_it_and_ends_with_success(server: Process) -> None:
    assert server.ask("GET", "/health")[0] == 200
    assert "OPENAI_BASE_URL" in server.lines[1]
    assert "Open WebUI" in server.lines[2]
    assert "Ole" in server.lines[3]
    body = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 6, "temperature": 0}
    status, _, first = server.ask("POST", "/v1/chat/completions", body)
    assert (status, first["model"], first["usage"]["completion_tokens"]) == (200, "tiny-talker", 6)
    assert server.ask("POST", "/v1/chat/completions", body)[2]["choices"] == first["choices"]
    code, errors = server.end()
    assert (code, errors) == (0, "")


def test_a_second_signal_ends_at_once(environ: dict[str, str], model: Path) -> None:
    ends = Tokenizer(model).encode("<|endoftext|><|im_end|>", special=True)
    body = {"prompt": "Hello", "max_tokens": 60000, "stream": True, "logit_bias": {str(token): -100 for token in ends}}
    with Process(environ, "tiny-talker") as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        connection.request("POST", "/v1/completions", json.dumps(body).encode())
        assert connection.getresponse().read(100)
        server.process.send_signal(signal.SIGTERM)
        assert until(lambda: server.ask("GET", "/health/ready")[0] == 503, 30)
        assert server.process.poll() is None
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(30) == 0


def test_a_wrong_model_ends_before_the_port_is_taken(woolly: Woolly, tmp_path: Path) -> None:
    assert woolly("serve", "nobody").returncode == 3
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(b"GGUF")
    done = woolly("serve", str(bad))
    assert done.returncode == 4
    assert "listening" not in done.stdout


def test_f29_a_model_of_the_start_that_cannot_be_loaded_ends_the_server_with_its_exit_code(
    woolly: Woolly, tmp_path: Path
) -> None:
    bad = damaged(tmp_path / "bad.gguf")
    done = woolly("serve", str(bad), str(bad), "--port", "0")
    assert done.returncode == 4
    assert "listening" in done.stdout  # the weights are read while it listens
    assert done.stderr.count("\n") == 1 and "bad.gguf: tensor 'blk.0.attn_k.weight' holds" in done.stderr


def test_f29_a_model_of_the_start_without_room_ends_the_server_with_its_exit_code(woolly: Woolly) -> None:
    done = woolly("serve", "tiny-talker", "--context", "65536", "--cache", str(2**45), "--port", "0")
    assert (done.returncode, done.stderr.count("\n")) == (5, 1)
    assert "not enough memory" in done.stderr


def test_too_many_threads_and_too_long_a_context_are_told_once_in_the_log_and_at_health(
    environ: dict[str, str], tmp_path: Path, model: Path
) -> None:
    small, log = tiny(tmp_path / "small.gguf", context=64), tmp_path / "log.txt"
    words = (str(small), str(model), "--threads", "900", "--context", "128", "--sequences", "1")
    with Process(environ | {"WOOLLY_LOGGING__FILE": str(log)}, *words) as server:
        assert until(lambda: server.ask("GET", "/health/ready")[0] == 200)
        (warning,) = server.ask("GET", "/health")[2]["warnings"]
        assert warning.startswith("small was trained for a context of 64 tokens, and 128 are asked for")
        assert server.end() == (0, "")
    lines = log.read_text()
    assert lines.count(warning) == lines.count("900 threads are asked for") == 1


def test_f20_a_port_in_use_is_exit_7(woolly: Woolly) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = woolly("serve", "--port", str(taken.getsockname()[1]))
    assert done.returncode == 7
    assert "--port 0" in done.stderr


def test_f20_an_address_of_another_machine_is_exit_7(woolly: Woolly) -> None:
    done = woolly("serve", "--host", "192.0.2.1", WOOLLY_API_KEY="a-key-of-thirty-two-characters-x")
    assert (done.returncode, done.stderr.count("\n")) == (7, 1)
    assert "192.0.2.1" in done.stderr


def test_f20_a_port_that_is_not_ours_to_take_is_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refused(socket.socket):
        def bind(self, address: object) -> None:
            raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(socket, "socket", Refused)
    with pytest.raises(BusyError, match=r"127\.0\.0\.1:80: Permission denied") as caught:
        bind("127.0.0.1", 80)
    assert caught.value.code == "address_in_use"


def test_s02_an_open_server_says_so_loudly(environ: dict[str, str]) -> None:
    with Process(environ, "--insecure", "--host", "0.0.0.0") as server:
        assert server.ask("GET", "/health")[2]["insecure"] is True
        code, errors = server.end()
    assert (code, "--insecure: everybody" in errors) == (0, True)


def test_a_host_that_cannot_be_is_one_line_about_the_host(woolly: Woolly) -> None:
    done = woolly("serve", "--insecure", "--port", "0", "--host", "a" * 70)
    assert done.returncode == 7
    assert "look at --host" in done.stderr and done.stderr.count("\n") == 1


def test_s02_another_address_without_a_key_is_exit_2(woolly: Woolly) -> None:
    done = woolly("serve", "--host", "0.0.0.0")
    assert done.returncode == 2
    assert "WOOLLY_API_KEY" in done.stderr


def test_s14_s24_a_log_holds_no_prompt_and_no_key(environ: dict[str, str], tmp_path: Path) -> None:
    key = "marker-of-a-key-marker-of-a-key"
    settings = {"WOOLLY_API_KEY": key, "WOOLLY_LOG_FORMAT": "json", "WOOLLY_LOG_LEVEL": "debug"}
    server = Process(environ | settings, fresh=True)
    try:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        body = {
            "messages": [{"role": "user", "content": "marker-of-a-prompt"}],
            "max_tokens": 2,
            "model": "tiny-talker",
        }
        headers = {"Authorization": f"Bearer {key}", "X-Odd": "marker-of-a-header", "Connection": "close"}
        connection.request("POST", "/v1/chat/completions?q=marker-of-a-query", json.dumps(body).encode(), headers)
        assert connection.getresponse().status == 200
        m = "marker-of-a-field"
        fields = {"user": m, "stop": [m], "metadata": {m: m}, m: m, "seed": m, "temperature": m, "logit_bias": {m: 1}}
        fields |= {"tools": [{m: m}], "model": m, "chat_template": m, "chat_template_kwargs": {m: m}}
        fields |= {"messages": [{"role": m, "content": m, "name": m}], "prompt": m, "text": m, "token": m, "user_id": m}
        known = {"Authorization": f"Bearer {key}"}
        for path in ("/v1/chat/completions", "/v1/completions", "/api/generate", "/api/v1/auth/token"):
            for name, value in fields.items():
                sent = body | {"prompt": "x", "options": {"num_predict": 2}} | {name: value}
                assert server.ask("POST", path, sent, known | {"User-Agent": m, "Cookie": m, "X-API-Key": m})[0] < 500
            assert server.ask("POST", path, b'{"marker-of-bad-json', known)[0] == 400
        assert server.ask("GET", "/v1/models", headers={"Authorization": f"Bearer {m}.{m}.{m}"})[0] == 401
        assert b"marker" not in server.ask("GET", "/metrics", headers=known)[2]
        assert key.encode() not in Path(f"/proc/{server.process.pid}/cmdline").read_bytes()
        server.process.send_signal(signal.SIGTERM)
        out, errors = server.process.communicate(timeout=30)
    finally:
        if server.process.poll() is None:
            server.process.kill()
    assert b"marker" not in out + errors
    rows = [json.loads(line) for line in out.splitlines() if line.startswith(b"{")]
    assert ("/v1/chat/completions", 200) in [(row.get("path"), row.get("status")) for row in rows]
    assert os.fspath(tmp_path).encode() not in out


def test_settings_come_from_a_file_under_the_environment_under_flags(environ: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    file.write_text('bind = "127.0.0.1:1"\n[limits]\nmax_body_size = 100\n[cors]\nfrobnicate = 1\n')
    server = Process(environ | {"WOOLLY_PORT": "2"}, "--config", str(file))
    try:
        assert server.ask("POST", "/v1/completions", {"prompt": "x" * 200})[0] == 413
    finally:
        code, errors = server.end()
    assert code == 0
    assert "cors.frobnicate" in errors


@pytest.mark.parametrize("way", ["option", "variable", "file"])
def test_a_folder_that_the_settings_name_is_the_only_one(
    environ: dict[str, str], model: Path, tmp_path: Path, way: str
) -> None:
    del environ["WOOLLY_MODELS_DIR"]
    (tmp_path / ".woolly" / "models").mkdir(parents=True)
    tiny(tmp_path / ".woolly" / "models" / "other.gguf")
    words = {"option": ["--models-dir", str(model.parent)], "file": ["--config", str(tmp_path / "server.toml")]}
    (tmp_path / "server.toml").write_text(f'[models]\nmodels_dir = "{model.parent}"\n')
    more = {"WOOLLY_MODELS__MODELS_DIR": str(model.parent)} if way == "variable" else {}
    with Process(environ | more, *words.get(way, [])) as server:
        offered = server.ask("GET", "/v1/models")[2]["data"]
    assert [row["id"] for row in offered] == ["tiny-talker"]


def test_a_folder_for_all_commands_leaves_a_server_the_others(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / ".woolly" / "models").mkdir(parents=True)
    tiny(tmp_path / ".woolly" / "models" / "other.gguf")
    with Process(environ) as server:
        offered = server.ask("GET", "/v1/models")[2]["data"]
    assert sorted(row["id"] for row in offered) == ["other", "tiny-talker"]


def test_h24_a_shorter_time_in_a_settings_file_is_the_time_that_counts(environ: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    file.write_text("[limits]\nheader_s = 1\n")
    settings = read_settings({"ports": (0,), "log_level": "error"}, environ, file=file)
    with Background(App(settings, read_config(environ))) as background:
        raw = Raw(background.port).send(b"GET /hea")
        assert until(lambda: background._listener.server_state.connections)
        background.forward(1)  # and not the ten seconds that are shipped
        assert status(raw.rest()) == 408
        assert ask(background.port, "GET", "/health")[0] == 200


def test_f15_a_hangup_opens_the_log_anew_and_a_stopped_process_goes_on(
    environ: dict[str, str], model: Path, tmp_path: Path
) -> None:
    log = tmp_path / "log.txt"
    with Process(environ | {"WOOLLY_LOGGING__FILE": str(log), "WOOLLY_LIMITS__REQUEST_TIMEOUT": "60"}) as server:
        assert server.ask("GET", "/health")[0] == 200
        assert until(lambda: log.exists() and "/health" in log.read_text())
        log.rename(tmp_path / "old.txt")
        server.process.send_signal(signal.SIGHUP)
        server.process.send_signal(signal.SIGUSR1)
        assert server.ask("GET", "/health/live")[0] == 200
        assert until(lambda: log.exists() and "/health/live" in log.read_text())
        assert "/health/live" not in (tmp_path / "old.txt").read_text()
        ends = Tokenizer(model).encode("<|endoftext|><|im_end|>", special=True)
        body = {"prompt": "Hi", "max_tokens": 1000, "stream": True, "logit_bias": {str(end): -100 for end in ends}}
        raw = Raw(server.port).post("/v1/completions", body)
        data = raw.read(2000)
        server.process.send_signal(signal.SIGSTOP)
        time.sleep(0.1)
        server.process.send_signal(signal.SIGCONT)
        while b"[DONE]" not in data:
            piece = raw.read()
            assert piece
            data += piece
        assert server.end() == (0, "")


def test_f15_a_hangup_ends_a_server_whose_terminal_is_closed(environ: dict[str, str]) -> None:
    with Terminal("serve", "tiny-talker", "--port", "0", environ=environ) as person:
        person.until("listening")
        person.process.send_signal(signal.SIGHUP)
        assert person.process.wait(30) == 0


def test_a_hangup_has_keys_and_rate_limits_read_again_and_wrong_settings_change_nothing(
    environ: dict[str, str], tmp_path: Path
) -> None:
    file, log = tmp_path / "server.toml", tmp_path / "log.txt"
    old, fresh, constant = ({"X-API-Key": letter * 32} for letter in "onc")

    def write(key: dict[str, str], rate: str) -> None:
        file.write_text(
            f'[auth]\napi_keys = ["{key["X-API-Key"]}"]\nallow_anonymous = false\n'
            f'[rate_limit]\nauthenticated_rpm = {rate}\nburst_capacity = 1\n[logging]\nfile = "{log}"\n'
        )

    def asked(server: Process, *keys: dict[str, str]) -> list[int]:
        return [server.ask("GET", "/v1/models", headers=key)[0] for key in keys]

    def hung_up(server: Process, word: str) -> bool:
        before = log.read_text().count(word) if log.exists() else 0
        server.process.send_signal(signal.SIGHUP)
        return until(lambda: log.read_text().count(word) > before)

    write(old, "0")
    with Process(environ, "--config", str(file)) as server:
        assert asked(server, old, old, fresh) == [200, 200, 401]
        write(fresh, "1")
        assert hung_up(server, "are read again")
        assert asked(server, old, fresh, fresh) == [401, 200, 429]
        write(fresh, '"many"')
        assert hung_up(server, "stay as they were")
        write(fresh, "0")
        assert hung_up(server, "are read again")
        assert asked(server, fresh, fresh) == [200, 200]
    with Process(environ | {"WOOLLY_API_KEY": constant["X-API-Key"]}, "--config", str(file)) as server:
        assert hung_up(server, "are read again")
        assert asked(server, constant, fresh) == [200, 401]  # the environment is that of the start


def test_a_log_that_nobody_reads_stops_the_log_and_not_the_answers(environ: dict[str, str]) -> None:
    request = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
    with Process(environ) as server:
        for _ in range(15):  # 1,500 lines of 110 bytes: a pipe holds 64 KiB
            raw = Raw(server.port).send((request + b"\r\n") * 99 + request + b"Connection: close\r\n\r\n")
            assert raw.rest().count(b"HTTP/1.1 200 OK") == 100
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(60) == 0


def test_an_alias_is_the_name_of_the_model_for_clients(environ: dict[str, str], woolly: Woolly) -> None:
    with Process(environ, "tiny-talker", "--alias", "Our/Model,other") as server:
        assert [row["id"] for row in server.ask("GET", "/v1/models")[2]["data"]] == ["Our/Model", "other"]
        assert server.ask("GET", "/props")[2]["model_alias"] == "Our/Model"
        for name in ("our/model", "other", "tiny-talker", "gpt-4"):
            answer = server.ask("POST", "/v1/completions", {"prompt": "x", "max_tokens": 1, "model": name})[2]
            assert answer["model"] == ("Our/Model" if name == "gpt-4" else name)
    assert woolly("serve", "tiny-talker", "--alias", "right,no name").returncode == 2
    assert woolly("serve", "--alias", "name").returncode == 2


def test_every_limit_is_shown_as_a_file_would_have_it(woolly: Woolly) -> None:
    done = woolly("serve", "--show-limits", "--max-connections", "9", "--timeout", "5")
    assert done.returncode == 0
    shown = tomllib.loads(done.stdout)["limits"]
    assert shown == dataclasses.asdict(dataclasses.replace(SERVING, connections=9, request_timeout=5.0))


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[App]:
    """Servers that would listen now, and do not."""
    apps: list[App] = []
    monkeypatch.setattr(serve, "listen", lambda settings, app, on_listening=None: apps.append(app))
    return apps


def test_options_say_what_requests_leave_unsaid(woolly: Woolly, begun: list[App]) -> None:
    done = woolly("serve", "--temperature", "0.3", "--top-k", "5", "--seed", "9", "--max-tokens", "70")
    assert done.returncode == 0, done.stderr
    settings = begun[0].settings
    assert (settings.defaults, settings.limits.answer_tokens) == ({"temperature": 0.3, "top_k": 5, "seed": 9}, 70)


def test_a_command_line_of_llama_server_starts_with_every_option_that_it_takes(
    woolly: Woolly, begun: list[App], model: Path, tmp_path: Path
) -> None:
    (tmp_path / "keys.txt").write_text("a-key-of-thirty-two-characters-y\n\n another-key-of-twenty-characters \n")
    values = {"-m": str(model), "--api-key-file": str(tmp_path / "keys.txt"), "--models-dir": str(model.parent)}
    words: list[str] = []
    for option in LIST:
        if option.fate != "refused" and option.names[0] not in ("-hf", "-hff", "--pooling"):
            value = values.get(option.names[0])
            words += [option.names[0], *(option.values if value is None else [value])]
    done = woolly("llama-server", *words)
    assert done.returncode == 0, done.stderr
    settings, config = begun[0].settings, begun[0].config
    assert (settings.models, len(settings.keys), settings.log_file) == ((model,), 3, Path("log.txt"))
    engine = config.engine
    assert (engine.thinking, config.offline, engine.kv, engine.context) == ("off", True, "q8", 4096)
    assert settings.limits.answer_tokens == 128 and settings.defaults["temperature"] == 0.5
    notes = [line for line in done.stderr.splitlines() if line.startswith("woolly: note: ")]
    assert len(notes) == len({note.partition(" here: ")[2] for note in notes}) > 20


def test_a_model_that_pools_otherwise_than_asked_is_refused(woolly: Woolly, begun: list[App], tmp_path: Path) -> None:
    encoder = str(tiny(tmp_path / "encoder.gguf", meta={"llama.pooling_type": 1}))
    assert woolly("llama-server", "-m", encoder, "--embedding", "--pooling", "mean").returncode == 0
    for words, says in (
        ((encoder, "--pooling", "last"), "encoder.gguf pools by 'mean', and --pooling is 'last'"),
        (("tiny-talker", "--pooling", "mean"), "tiny-talker.gguf continues texts, and --pooling is 'mean'"),
        (("--pooling", "mean"), "--pooling needs a MODEL"),
    ):
        done = woolly("serve", *words)
        assert (done.returncode, len(begun)) == (2, 1) and says in done.stderr, done.stderr


def test_a_file_without_keys_opens_no_server(woolly: Woolly, begun: list[App], tmp_path: Path) -> None:
    (tmp_path / "keys.txt").write_text(" \n\n")
    done = woolly("serve", "--api-key-file", str(tmp_path / "keys.txt"))
    assert (done.returncode, begun) == (2, []) and "has no key; write one on each line" in done.stderr
    done = woolly("serve", "--api-key-file", str(tmp_path / "none.txt"))
    assert (done.returncode, begun) == (3, []) and "there is no file" in done.stderr


def test_thinking_and_variables_of_templates_reach_the_models(woolly: Woolly, begun: list[App]) -> None:
    done = woolly("serve", "--thinking", "off", "--chat-template-kwargs", '{"mood": "calm"}')
    assert done.returncode == 0, done.stderr
    assert (begun[0].config.engine.thinking, begun[0].config.engine.chat_template_kwargs) == ("off", {"mood": "calm"})


def test_one_process_listens_at_several_ports(environ: dict[str, str]) -> None:
    with Process(environ, "--port", "0") as server:
        listening = re.findall(r"http://127\.0\.0\.1:(\d+)", server.lines[0])
        assert len(set(listening)) == 2
        for port in listening:
            assert ask(int(port), "GET", "/health")[0] == 200


@needs_openssl
def test_a_certificate_makes_it_https(environ: dict[str, str], tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    tls = {"WOOLLY_TLS__CERT_PATH": str(cert), "WOOLLY_TLS__KEY_PATH": str(key)}
    with Process(environ | tls) as server:
        assert "https://127.0.0.1" in server.lines[0]
        trusted = ssl.create_default_context(cafile=str(cert))
        for path, body in (("/health", None), ("/v1/completions", b'{"prompt":"x","max_tokens":3,"stream":true}')):
            connection = http.client.HTTPSConnection("127.0.0.1", server.port, context=trusted, timeout=30)
            connection.request("GET" if body is None else "POST", path, body)
            answer = connection.getresponse()
            assert answer.status == 200
            assert body is None or answer.read().endswith(b"data: [DONE]\n\n")
        assert Raw(server.port).send(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n").rest()[:5] != b"HTTP/"


def test_a_certificate_that_cannot_be_used_ends_before_the_port_is_taken(woolly: Woolly, tmp_path: Path) -> None:
    (tmp_path / "bad.pem").write_text("no certificate")
    bad = str(tmp_path / "bad.pem")
    done = woolly("serve", WOOLLY_TLS__CERT_PATH=bad, WOOLLY_TLS__KEY_PATH=bad)
    assert done.returncode == 2
    assert "cannot be used" in done.stderr
    assert woolly("serve", WOOLLY_TLS__CERT_PATH=bad).returncode == 2
    gone = str(tmp_path / "gone.pem")
    assert woolly("serve", WOOLLY_TLS__CERT_PATH=gone, WOOLLY_TLS__KEY_PATH=gone).returncode == 3
