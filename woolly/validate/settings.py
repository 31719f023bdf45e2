"""What is measured and how long: the settings of a run, from a JSON file with the founding suite's keys.

Keys that are not known are left alone, since files of the founding suite have some that mean nothing here; a value of
the wrong kind is refused with its place.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from woolly.errors import NotFoundError, RequestError, printable

Seconds = Annotated[float, Meta(gt=0, le=7 * 86400)]
Count = Annotated[int, Meta(ge=1, le=100_000)]

CATEGORIES = (
    "inference_speed",
    "model_loading",
    "quality_validation",
    "ole",
    "load_testing",
    "resource_utilization",
    "comparative",
    "reliability",
    "regression",
)
QUICK = ("inference_speed", "model_loading", "quality_validation", "ole", "load_testing")


class Place(Struct, frozen=True):
    """`woolly`: the server. Without a host and a port one is started."""

    host: str = ""
    port: Annotated[int, Meta(ge=0, le=65535)] = 0
    api_key: str = ""
    timeout: Seconds = 600
    request_timeout: Seconds = 300
    inference_timeout: Seconds = 300


class Speed(Struct, frozen=True):
    """max_tokens: of the answers of G1; rounds: of every figure; slices: that a comparison with a saved run takes."""

    max_tokens: Count = 128
    prompt_lengths: tuple[Count, ...] = (16, 128, 512, 2048)
    batch_sizes: tuple[Count, ...] = (1, 2, 4, 8, 16)
    rounds: Count = 5
    slices: Count = 64
    slice_tokens: Count = 64


class Resources(Struct, frozen=True):
    sample_interval: Seconds = 0.25


class Loading(Struct, frozen=True):
    iterations: Count = 3


class Quality(Struct, frozen=True):
    """checked_tokens: of each answer that the reference recomputes; prompts: of each kind, all unless said."""

    consistency_runs: Count = 5
    checked_tokens: Count = 12
    checked_prompts: Count = 4
    prompts: Count = 100


class Load(Struct, frozen=True):
    concurrent_users: tuple[Count, ...] = (1, 5, 10, 20, 50)
    duration: Seconds = 30
    ramp_up_time: Annotated[float, Meta(ge=0, le=3600)] = 1.0
    max_tokens: Count = 100
    think_time: tuple[Annotated[float, Meta(ge=0)], Annotated[float, Meta(ge=0)]] = (0.5, 2.5)


class Comparative(Struct, frozen=True):
    """compare_with: a URL, or the path of a llama-server program; seconds: of each comparison."""

    compare_with: str = ""
    seconds: Seconds = 60


class Reliability(Struct, frozen=True):
    duration: Seconds = 3600
    users: Count = 5
    pause: tuple[Annotated[float, Meta(ge=0)], Annotated[float, Meta(ge=0)]] = (2.0, 5.0)
    check_interval: Seconds = 1.0


class Tests(Struct, frozen=True):
    inference_speed: Speed = Speed()
    resource_utilization: Resources = Resources()
    model_loading: Loading = Loading()
    quality_validation: Quality = Quality()
    load_testing: Load = Load()
    comparative: Comparative = Comparative()
    reliability: Reliability = Reliability()


class Model(Struct, frozen=True):
    name: str = ""
    path: str = ""


class Reporting(Struct, frozen=True):
    output_dir: str = "validation_results"


class Settings(Struct, frozen=True):
    """All of a run."""

    woolly: Place = Place()
    models: tuple[Model, ...] = ()
    tests: Tests = Tests()
    reporting: Reporting = Reporting()


def read_settings(path: str | None) -> Settings:
    """The settings of a file; those that are built in where there is none."""
    if path is None:
        return Settings()
    try:
        return msgspec.json.decode(Path(path).read_bytes(), type=Settings)
    except OSError as error:
        raise NotFoundError(f"{printable(path)} cannot be read: {printable(error.strerror)}") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise RequestError(f"{printable(path)}: {printable(error, 300)}", param="--config") from None


def quick(settings: Settings) -> Settings:
    """The same, made short enough for two minutes with the default model."""
    t = settings.tests
    tests = Tests(
        inference_speed=msgspec.structs.replace(
            t.inference_speed, prompt_lengths=(16, 128, 512), batch_sizes=(1, 4), rounds=3, slices=12
        ),
        resource_utilization=t.resource_utilization,
        model_loading=Loading(iterations=1),
        quality_validation=msgspec.structs.replace(
            t.quality_validation, consistency_runs=3, checked_prompts=2, checked_tokens=8, prompts=1
        ),
        load_testing=msgspec.structs.replace(
            t.load_testing, concurrent_users=(1, 5), duration=10.0, max_tokens=50, think_time=(0.2, 0.5)
        ),
        comparative=msgspec.structs.replace(t.comparative, seconds=10.0),
        reliability=msgspec.structs.replace(t.reliability, duration=30.0, pause=(0.0, 0.2)),
    )
    return msgspec.structs.replace(settings, tests=tests)
