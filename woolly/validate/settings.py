"""The settings of a run, what is measured and for how long, from a JSON file with the founding suite's keys.

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


class ServerSettings(Struct, frozen=True):
    """`woolly`: the server. Without a host and a port one is started."""

    host: str = ""
    port: Annotated[int, Meta(ge=0, le=65535)] = 0
    api_key: str = ""
    timeout: Seconds = 600
    request_timeout: Seconds = 300
    inference_timeout: Seconds = 300


class SpeedSettings(Struct, frozen=True):
    """max_tokens: for answers of gate G1; rounds: for every figure; slices: for a comparison with a saved run."""

    max_tokens: Count = 128
    prompt_lengths: tuple[Count, ...] = (16, 128, 512, 2048)
    batch_sizes: tuple[Count, ...] = (1, 2, 4, 8, 16)
    rounds: Count = 5
    slices: Count = 64
    slice_tokens: Count = 64


class ResourceSettings(Struct, frozen=True):
    sample_interval: Seconds = 0.25


class LoadingSettings(Struct, frozen=True):
    iterations: Count = 3


class QualitySettings(Struct, frozen=True):
    """checked_tokens: how many of each answer the reference recomputes; prompts: the most questions of each kind."""

    consistency_runs: Count = 5
    checked_tokens: Count = 12
    checked_prompts: Count = 4
    prompts: Count = 100


class LoadSettings(Struct, frozen=True):
    concurrent_users: tuple[Count, ...] = (1, 5, 10, 20, 50)
    duration: Seconds = 30
    ramp_up_time: Annotated[float, Meta(ge=0, le=3600)] = 1.0
    max_tokens: Count = 100
    think_time: tuple[Annotated[float, Meta(ge=0)], Annotated[float, Meta(ge=0)]] = (0.5, 2.5)


class ComparativeSettings(Struct, frozen=True):
    """compare_with: a URL, or the path of a llama-server program; seconds: of each comparison."""

    compare_with: str = ""
    seconds: Seconds = 60


class ReliabilitySettings(Struct, frozen=True):
    duration: Seconds = 3600
    users: Count = 5
    pause: tuple[Annotated[float, Meta(ge=0)], Annotated[float, Meta(ge=0)]] = (2.0, 5.0)
    check_interval: Seconds = 1.0


class CategorySettings(Struct, frozen=True):
    inference_speed: SpeedSettings = SpeedSettings()
    resource_utilization: ResourceSettings = ResourceSettings()
    model_loading: LoadingSettings = LoadingSettings()
    quality_validation: QualitySettings = QualitySettings()
    load_testing: LoadSettings = LoadSettings()
    comparative: ComparativeSettings = ComparativeSettings()
    reliability: ReliabilitySettings = ReliabilitySettings()


class ModelSettings(Struct, frozen=True):
    name: str = ""
    path: str = ""


class ReportSettings(Struct, frozen=True):
    output_dir: str = "validation_results"


class Settings(Struct, frozen=True):
    """The settings of a run."""

    woolly: ServerSettings = ServerSettings()
    models: tuple[ModelSettings, ...] = ()
    tests: CategorySettings = CategorySettings()
    reporting: ReportSettings = ReportSettings()


def read_settings(path: str | None) -> Settings:
    """The settings of a file; without a file, the built-in ones."""
    if path is None:
        return Settings()
    try:
        return msgspec.json.decode(Path(path).read_bytes(), type=Settings)
    except OSError as error:
        raise NotFoundError(f"{printable(path)} cannot be read: {printable(error.strerror)}") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise RequestError(f"{printable(path)}: {printable(error, 300)}", param="--config") from None


def shortened(settings: Settings) -> Settings:
    """The settings shortened so that a run with the default model takes two minutes."""
    t = settings.tests
    tests = CategorySettings(
        inference_speed=msgspec.structs.replace(
            t.inference_speed, prompt_lengths=(16, 128, 512), batch_sizes=(1, 4), rounds=3, slices=12
        ),
        resource_utilization=t.resource_utilization,
        model_loading=LoadingSettings(iterations=1),
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
