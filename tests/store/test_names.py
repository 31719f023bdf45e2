"""store.names: a name means one file or none, and nothing is guessed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from woolly import gguf
from woolly.config import Config, read_config
from woolly.errors import DownloadError, FileError, NotFoundError, RequestError
from woolly.store import Model, installed, is_model, matching, model_at, resolve


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    monkeypatch.chdir(tmp_path)
    home = str(tmp_path / "home")
    ours = {"WOOLLY_MODELS_DIR": str(tmp_path / "gguf"), "WOOLLY_OFFLINE": "1"}
    return read_config(ours | {"HOME": home, "OLLAMA_MODELS": home})


def model(folder: Path, name: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_bytes(b"GGUF")
    return path


def test_an_existing_path_is_that_file(config: Config, tmp_path: Path) -> None:
    path = model(tmp_path / "x", "any.bin")
    assert resolve(path, config=config) == path
    assert resolve("x/any.bin", config=config) == Path("x/any.bin")


@pytest.mark.parametrize("name", ["tiny-q4", "TINY-Q4", "tiny-q4.gguf", "org/Tiny-Q4.gguf"])
def test_a_stem_is_found_whatever_its_case_ending_and_folders(config: Config, name: str) -> None:
    path = model(config.models, "Tiny-Q4.gguf")
    assert resolve(name, config=config) == path


def test_every_model_folder_is_searched(config: Config, tmp_path: Path) -> None:
    one, two = model(tmp_path / "home/.woolly/models", "one.gguf"), model(tmp_path / "models", "two.gguf")
    three = model(config.hub / "models--org--three/snapshots/abc", "three.gguf")
    assert resolve("one", config=config) == one
    assert resolve("two", config=config).resolve() == two
    assert resolve("three", config=config) == three


def test_a_stem_that_fits_two_files_is_refused_with_the_list(config: Config, tmp_path: Path) -> None:
    paths = [model(config.models, "twin.gguf"), model(tmp_path / "home/.woolly/models", "Twin.gguf")]
    with pytest.raises(RequestError) as caught:
        resolve("twin", config=config)
    assert all(str(path) in str(caught.value) for path in paths)


def test_one_file_that_is_reached_in_two_ways_is_no_doubt(config: Config, tmp_path: Path) -> None:
    path = model(config.models, "same.gguf")
    (tmp_path / "models").mkdir()
    (tmp_path / "models/same.gguf").symlink_to(path)
    assert resolve("same", config=config) == path


def test_a_set_of_split_files_is_opened_by_its_first_part(config: Config) -> None:
    parts = [model(config.models, f"big-0000{i}-of-00003.gguf") for i in (1, 2, 3)]
    assert resolve("big", config=config) == parts[0]


@pytest.mark.parametrize(("wrong", "right"), [("smollm", "smollm2"), ("smol-lm2", "smollm2"), ("tinny-q4", "tiny-q4")])
def test_a_name_that_is_not_there_is_answered_with_the_nearest(config: Config, wrong: str, right: str) -> None:
    model(config.models, "tiny-q4.gguf")
    with pytest.raises(NotFoundError, match=f"did you mean '{right}'"):
        resolve(wrong, config=config)


@pytest.mark.parametrize("name", ["zzzzzz", "llama3.2", "bge-small.gguf", "models/none.gguf"])
def test_a_name_without_a_neighbour_is_told_where_models_lie(config: Config, name: str) -> None:
    with pytest.raises(NotFoundError, match=r"give the path of a \.gguf file, put it in .* or use 'smollm2'"):
        resolve(name, config=config)


def test_a_name_of_the_hub_without_its_beginning_is_completed(config: Config) -> None:
    for name in ("org/Tiny-1.1B-GGUF", "org/Tiny-1.1B-GGUF:Q8_0"):
        with pytest.raises(NotFoundError, match=f"did you mean 'hf:{name}', of the hub?"):
            resolve(name, config=config)


@pytest.mark.parametrize("name", ["weights", "weights.gguf"])
def test_a_folder_in_place_of_a_model_is_told_as_such(config: Config, tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    with pytest.raises(NotFoundError, match=r"it is a folder: give the path of a \.gguf file in it"):
        resolve(name, config=config)


def test_a_model_has_its_name_although_a_folder_has_it_too(config: Config, tmp_path: Path) -> None:
    (tmp_path / "tiny-q4").mkdir()
    path = model(config.models, "tiny-q4.gguf")
    assert resolve("tiny-q4", config=config) == path


@pytest.mark.parametrize("name", ["./none.gguf", "/none.gguf", "../none.gguf", "~/none.gguf"])
def test_a_path_that_is_not_there_is_not_looked_for_elsewhere(config: Config, name: str) -> None:
    model(config.models, "none.gguf")
    with pytest.raises(NotFoundError, match="there is no file"):
        resolve(name, config=config)


def test_what_is_there_and_is_no_file_is_left_to_the_reader_to_refuse(config: Config, tmp_path: Path) -> None:
    assert resolve(tmp_path, config=config) == tmp_path
    with pytest.raises(FileError, match="is a directory"):
        gguf.open(resolve(str(tmp_path), config=config))


@pytest.mark.parametrize("name", ["", "a\x1b[2Jb", "x" * 5000, "a\0b", "../" * 2000, "\ud800"])
def test_a_hostile_name_is_not_found_and_cannot_reach_the_terminal(config: Config, name: str) -> None:
    with pytest.raises(NotFoundError) as caught:
        resolve(name, config=config)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 800


@pytest.mark.parametrize("name", ["smollm2", "SmolLM2", "smollm2:135m-q4_1"])
def test_the_default_model_is_known_by_name_and_tag(config: Config, name: str) -> None:
    with pytest.raises(DownloadError, match="smollm2"):
        resolve(name, config=config)


def test_an_unknown_tag_is_not_the_default_model(config: Config) -> None:
    with pytest.raises(NotFoundError):
        resolve("smollm2:7b", config=config)


@pytest.mark.parametrize(
    ("word", "model_"),
    [("smollm2", True), ("nonsense", True), ("hf:a/b c", True), ("What is this?", False), ("two words", True)],
)
def test_a_lone_word_is_a_model_unless_it_has_a_space_and_no_file_has_that_name(
    config: Config, word: str, model_: bool
) -> None:
    model(config.models, "two words.gguf")
    assert is_model(word, config=config) is model_


def model_named(name: str, **facts: object) -> Model:
    return replace(Model(name, Path(f"{name}.gguf"), "woolly", 4, 0.0), **facts)  # type: ignore[arg-type]


def test_a_name_means_what_bears_it_as_it_stands_before_what_has_its_stem() -> None:
    ollama, file = model_named("ann/small:latest", also=("small",)), model_named("small")
    assert matching("ann/small:latest", [ollama, file]) == [ollama]
    assert matching("org/small.gguf", [ollama, file]) == [file]
    assert matching("small", [ollama, file]) == [ollama, file]
    assert matching("smaller", [ollama, file]) == []


def test_the_first_that_was_chosen_is_meant_before_others_of_its_name() -> None:
    file, chosen, second = model_named("small"), model_named("Small", chosen=True), model_named("small", chosen=True)
    assert matching("small", [file, chosen, second]) == [chosen]
    assert matching("other/SMALL.gguf", [file, chosen]) == [chosen]


def test_a_model_that_a_setting_names_comes_first_and_keeps_its_other_names(config: Config) -> None:
    path = model(config.models, "tiny-q4.gguf")
    models = installed(config, [model_at(path, name="mine")])
    assert [(one.name, one.also) for one in models if one.path == path] == [("mine", ("tiny-q4",))]
    assert models[0].path == path
