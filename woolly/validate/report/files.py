"""The files of a report: JSON as it was measured, and Markdown and HTML made from the JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from woolly.errors import FileError, printable
from woolly.validate.report.markdown import markdown
from woolly.validate.report.page import html


def write_report(report: Mapping[str, Any], folder: Path) -> list[Path]:
    """results_DATE_TIME.json, .md and .html in the folder, which is created."""
    stem = datetime.fromisoformat(report["metadata"]["timestamp"]).strftime("results_%Y%m%d_%H%M%S")
    text = json.dumps(report, ensure_ascii=False, indent=1) + "\n"
    again = json.loads(text)
    files = {".json": text, ".md": markdown(again), ".html": html(again)}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        paths = []
        for ending, content in files.items():
            path = folder / f"{stem}{ending}"
            path.write_text(content, "utf-8")
            paths.append(path)
        return paths
    except OSError as error:
        raise FileError(
            f"the report cannot be written to {printable(folder, 300)}: {printable(error.strerror)}",
            suggestion="name another folder with --output",
        ) from None


def save(report: Mapping[str, Any], path: Path) -> None:
    """The JSON under a name of the user's choice."""
    try:
        path.write_text(json.dumps(report, ensure_ascii=False, indent=1) + "\n", "utf-8")
    except OSError as error:
        raise FileError(f"{printable(path, 300)} cannot be written: {printable(error.strerror)}") from None
