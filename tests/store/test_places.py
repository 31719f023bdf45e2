"""store.places: what other programs have on this machine is found by name, read in place, and never trusted."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from woolly.config import Config, read_config
from woolly.errors import NotFoundError, RequestError
from woolly.limits import LIMITS
from woolly.store import CATALOGUE, Model, installed, local_model, model_at, name_of, places, remove, resolve
from woolly.store.folders import walk

WEIGHTS = b"GGUF and the rest"
DIGEST = hashlib.sha256(WEIGHTS).hexdigest()
LAYER = {"mediaType": "application/vnd.ollama.image.model", "digest": f"sha256:{DIGEST}", "size": len(WEIGHTS)}


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    monkeypatch.chdir(tmp_path)
    home = tmp_path / "home"
    environ = {"HOME": str(home), "OLLAMA_MODELS": str(home / ".ollama/models"), "WOOLLY_OFFLINE": "1"}
    return read_config(environ)


def put(path: Path, data: bytes = WEIGHTS) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def manifest(config: Config, name: str, content: Any = None) -> Path:
    """A manifest of Ollama's; by default one whose weights are the blob of these tests."""
    layers = [{"mediaType": "application/vnd.ollama.image.template", "digest": "sha256:" + "1" * 64, "size": 3}, LAYER]
    content = {"schemaVersion": 2, "layers": layers} if content is None else content
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    return put(config.ollama[0] / "manifests" / name, data)


def blob(config: Config) -> Path:
    return put(config.ollama[0] / "blobs" / f"sha256-{DIGEST}")


def snapshot(config: Config, repo: str, commit: str, file: str, data: bytes = WEIGHTS) -> Path:
    """A file in the hub cache: a link from the snapshot to a blob."""
    folder = config.hub / f"models--{repo.replace('/', '--')}"
    content = put(folder / "blobs" / hashlib.sha256(data).hexdigest(), data)
    link = folder / "snapshots" / commit / file
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(os.path.relpath(content, link.parent))
    return link


def test_a_file_that_a_setting_names_goes_by_the_name_of_its_place_unless_the_setting_has_one(config: Config) -> None:
    manifest(config, "registry.ollama.ai/library/llama3.2/latest")
    plain = replace(model_at(blob(config)), name="")
    assert [model.name for model in installed(config, [plain])] == ["llama3.2:latest"]
    (model,) = installed(config, [replace(plain, name="mine"), plain])
    assert (model.name, "llama3.2" in model.also, "" in model.also) == ("mine", True, False)
    elsewhere = put(config.models.parent / "other.gguf")
    assert installed(config, [replace(model_at(elsewhere), name="")])[0].name == "other"


def test_a_file_of_the_catalogue_goes_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = replace(CATALOGUE[0], nbytes=len(WEIGHTS))
    monkeypatch.setattr(places, "CATALOGUE", (row,))
    assert name_of(put(tmp_path / row.file)) == row.name
    assert name_of(put(tmp_path / row.file, b"another one")) == row.file.removesuffix(".gguf")
    assert name_of(put(tmp_path / "some-00001-of-00002.gguf")) == "some"
    assert name_of(put(tmp_path / "sha256-0123")) == ""


def names(config: Config) -> list[str]:
    return [model.name for model in installed(config)]


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("registry.ollama.ai/library/llama3.2/3b", ["llama3.2:3b", "LLAMA3.2:3B", "library/llama3.2:3b"]),
        (
            "registry.ollama.ai/library/llama3.2/latest",
            ["llama3.2", "llama3.2:latest", "library/llama3.2"],
        ),
        ("registry.ollama.ai/ann/tuned/latest", ["ann/tuned", "ann/tuned:latest"]),
        ("hf.co/org/repo-GGUF/Q4_K_M", ["hf.co/org/repo-GGUF:Q4_K_M"]),
    ],
)
def test_a_model_of_ollama_is_found_by_its_names_and_read_in_place(
    config: Config, place: str, words: list[str]
) -> None:
    manifest(config, place)
    path = blob(config)
    before = sorted(config.models.parent.rglob("*")) if config.models.parent.exists() else []
    assert [resolve(word, config=config) for word in words] == [path] * len(words)
    assert (sorted(config.models.parent.rglob("*")) if config.models.parent.exists() else []) == before
    (model,) = installed(config)
    assert (model.owner, model.nbytes) == ("ollama", len(WEIGHTS))


def test_two_names_of_ollama_for_one_blob_are_one_model(config: Config) -> None:
    manifest(config, "registry.ollama.ai/library/a/latest")
    manifest(config, "registry.ollama.ai/library/a/3b")
    blob(config)
    assert len(installed(config)) == 1
    assert resolve("a", config=config) == resolve("a:3b", config=config)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"layers": [' + b" " * LIMITS.manifest + b"]}",
        [],
        {"layers": {}},
        {"layers": [None, 7, "x"]},
        {"layers": [LAYER, LAYER]},
        {"layers": [LAYER | {"digest": "sha256:../../../etc/passwd"}]},
        {"layers": [LAYER | {"digest": DIGEST}]},
        {"layers": [LAYER | {"digest": 7}]},
        {"layers": [LAYER | {"size": True}]},
        {"layers": [LAYER | {"size": len(WEIGHTS) + 1}]},
        {"layers": [LAYER | {"size": str(len(WEIGHTS))}]},
        {"layers": [LAYER | {"digest": "sha256:" + "0" * 64}]},
    ],
)
def test_a_hostile_or_unfinished_manifest_is_no_model_and_no_error(config: Config, content: Any) -> None:
    blob(config)
    manifest(config, "registry.ollama.ai/library/bad/latest", content)
    manifest(config, "registry.ollama.ai/library/good/latest")
    assert names(config) == ["good:latest"]


def test_a_manifest_in_an_odd_place_or_a_pipe_is_passed_over(config: Config) -> None:
    blob(config)
    manifest(config, "registry.ollama.ai/library/too/deep/latest")
    manifest(config, "registry.ollama.ai/short")
    manifest(config, "registry.ollama.ai/library/bad name/latest")
    folder = config.ollama[0] / "manifests/registry.ollama.ai/library/pipe"
    folder.mkdir()
    os.mkfifo(folder / "latest")
    assert names(config) == []


def test_a_blob_or_a_manifest_that_leads_out_is_not_followed(config: Config, tmp_path: Path) -> None:
    secret = put(tmp_path / "secret")
    manifest(config, "registry.ollama.ai/library/out/latest")
    (config.ollama[0] / "blobs").mkdir()
    (config.ollama[0] / "blobs" / f"sha256-{DIGEST}").symlink_to(secret)
    assert names(config) == []
    (config.ollama[0] / "blobs" / f"sha256-{DIGEST}").unlink()
    blob(config)
    real = config.ollama[0] / "manifests/registry.ollama.ai/library/out/latest"
    real.rename(tmp_path / "manifest")
    real.symlink_to(tmp_path / "manifest")
    assert names(config) == []


def test_a_folder_of_models_that_is_itself_a_link_is_read(config: Config, tmp_path: Path) -> None:
    manifest(config, "registry.ollama.ai/library/moved/latest")
    blob(config)
    config.ollama[0].rename(tmp_path / "big-disk")
    config.ollama[0].symlink_to(tmp_path / "big-disk")
    assert names(config) == ["moved:latest"]


@pytest.mark.parametrize("place", [0, 1])
def test_a_model_of_lm_studio_is_found_by_its_file_and_by_its_repo(config: Config, place: int) -> None:
    path = put(config.lm_studio[place] / "bartowski/Tiny-GGUF/Tiny-Q4_K_M.gguf")
    put(config.lm_studio[place] / "bartowski/Tiny-GGUF/mmproj-Tiny-f16.gguf")
    for word in ("tiny-q4_k_m", "Tiny-Q4_K_M.gguf", "bartowski/Tiny-GGUF", "hf:bartowski/Tiny-GGUF:Q4_K_M"):
        assert resolve(word, config=config) == path
    assert [model.owner for model in installed(config)] == ["lm_studio"]


def test_a_file_of_lm_studio_that_leads_out_is_not_followed(config: Config, tmp_path: Path) -> None:
    put(tmp_path / "elsewhere.gguf")
    folder = config.lm_studio[0] / "a/b"
    folder.mkdir(parents=True)
    (folder / "link.gguf").symlink_to(tmp_path / "elsewhere.gguf")
    (tmp_path / "elsewhere").mkdir()
    put(tmp_path / "elsewhere/other.gguf")
    (folder / "folder").symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    assert names(config) == []


def test_the_hub_cache_is_read_in_place_without_a_network(config: Config) -> None:
    path = snapshot(config, "org/Tiny-GGUF", "c1", "Tiny-Q4_K_M.gguf")
    other = snapshot(config, "org/Tiny-GGUF", "c1", "sub/Tiny-Q8_0.gguf", b"GGUF other")
    assert resolve("hf:org/Tiny-GGUF", config=config) == path
    assert resolve("hf:Org/tiny-gguf:q8_0", config=config) == other
    assert resolve("hf:org/Tiny-GGUF:Tiny-Q8_0.gguf", config=config) == other
    assert resolve("hf:org/Tiny-GGUF/sub/Tiny-Q8_0.gguf", config=config) == other
    assert resolve("tiny-q8_0", config=config) == other


def test_of_two_commits_the_one_that_main_names_counts(config: Config) -> None:
    old = snapshot(config, "org/repo", "aaa", "m-Q4_0.gguf", b"GGUF old")
    new = snapshot(config, "org/repo", "bbb", "m-Q4_0.gguf", b"GGUF new")
    for main, path in (("aaa", old), ("bbb", new)):
        put(config.hub / "models--org--repo/refs/main", main.encode())
        assert resolve("m-q4_0", config=config) == path


def test_a_snapshot_that_leads_out_of_the_cache_is_not_followed(config: Config, tmp_path: Path) -> None:
    folder = config.hub / "models--org--repo/snapshots/c1"
    folder.mkdir(parents=True)
    (folder / "m.gguf").symlink_to(put(tmp_path / "elsewhere.gguf"))
    assert names(config) == []


def test_a_name_of_the_hub_that_fits_several_files_is_refused_with_the_list(config: Config) -> None:
    for kind in ("Q4_K_S", "Q8_0"):
        snapshot(config, "org/repo", "c1", f"m-{kind}.gguf", kind.encode())
    with pytest.raises(RequestError, match=r"m-Q4_K_S\.gguf, m-Q8_0\.gguf"):
        resolve("hf:org/repo", config=config)


@pytest.mark.parametrize(
    "name", ["hf:", "hf:org", "hf:org/", "hf:../x", "hf:org/..", "hf:org/repo:../../x", "hf:a b/c", "hf:o/r:\x1b[2J"]
)
def test_a_wrong_name_of_the_hub_is_refused(config: Config, name: str) -> None:
    with pytest.raises(RequestError, match="is no name of the hub"):
        resolve(name, config=config)


def test_a_wrong_name_offers_the_nearest_of_every_place(config: Config) -> None:
    manifest(config, "registry.ollama.ai/library/llama3.2/3b")
    blob(config)
    put(config.lm_studio[0] / "a/b/Mistral-7B-Q4_0.gguf")
    with pytest.raises(NotFoundError, match=r"did you mean 'llama3.2:3b'\?"):
        resolve("llama3.2:1b", config=config)
    with pytest.raises(NotFoundError, match="did you mean 'mistral-7b-q4_0'"):
        resolve("mistral-7b", config=config)


def test_a_folder_without_end_is_looked_at_within_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for i in range(50):
        put(tmp_path / f"{i % 5}/{i}.gguf")
    assert len(list(walk(tmp_path))) == 50
    assert list(walk(tmp_path, 0)) == []
    monkeypatch.setattr("woolly.store.folders.LIMITS", type("L", (), {"folder_entries": 20, "folder_depth": 6}))
    assert 0 < len(list(walk(tmp_path))) <= 20


def model_of(config: Config, owner: str) -> Model:
    return next(model for model in installed(config) if model.owner == owner)


@pytest.mark.parametrize(
    ("owner", "expected"), [("ollama", "Ollama"), ("lm_studio", "LM Studio"), ("hub", "Hugging Face")]
)
def test_s08_what_belongs_to_another_program_is_never_removed(config: Config, owner: str, expected: str) -> None:
    manifest(config, "registry.ollama.ai/library/a/latest")
    blob(config)
    put(config.lm_studio[0] / "a/b/c.gguf")
    snapshot(config, "org/repo", "c1", "d.gguf")
    model = model_of(config, owner)
    with pytest.raises(RequestError, match=expected):
        remove(model, config)
    assert model.path.exists()


def test_a_set_of_ours_is_removed_whole_and_alone(config: Config) -> None:
    for i in (1, 2, 3):
        put(config.models / f"hf/org/repo/big-0000{i}-of-00003.gguf")
    put(config.models / "other.gguf")
    model = local_model("hf:org/repo", config)
    assert model.nbytes == 3 * len(WEIGHTS)
    assert len(remove(model, config)) == 3
    assert [path.name for path in config.models.iterdir()] == ["other.gguf"]


def test_s08_a_link_of_ours_is_removed_and_not_what_it_leads_to(config: Config, tmp_path: Path) -> None:
    real = put(tmp_path / "real.gguf")
    config.models.mkdir(parents=True)
    (config.models / "link.gguf").symlink_to(real)
    model = local_model("link", config)
    assert model.outside
    remove(model, config)
    assert real.exists() and not (config.models / "link.gguf").is_symlink()
