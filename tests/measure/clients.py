"""Scripts that drive real client libraries, each run against a small random model of every style of output.

    python -m tests.measure.clients SCRIPT.py ... [--python PYTHON] [--style NAME ...]

A script is given the address of a server, prints `ok` or `FAIL` and the name of a step for each, and last `N of M
steps`. A random model writes noise: a step that forces a call or a format must hold, one that reads the noise may not.
--python: that of an environment with the libraries. The failed steps are told with the styles in which they failed.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from tests.server.process import Process, environ
from tests.tiny import CHATML, tiny
from woolly.text.styles import STYLES

BY_NAME = {style.name: style for style in STYLES}


def steps(python: str, script: Path, url: str) -> tuple[str, list[str]]:
    """`N of M steps`, and the names of those that failed."""
    done = subprocess.run([python, str(script), url], cwd=script.parent, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines() or done.stderr.splitlines() or ["nothing was said"]
    return lines[-1], [re.split(": ", line[5:], maxsplit=1)[0] for line in lines if line.startswith("FAIL ")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scripts", nargs="+", type=Path)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--style", nargs="*", choices=sorted(BY_NAME), default=list(BY_NAME))
    args = parser.parse_args()
    failed: dict[str, list[str]] = defaultdict(list)
    for name in args.style:
        with tempfile.TemporaryDirectory() as folder:
            template = "{# " + " ".join(BY_NAME[name].found_by) + " #}" + CHATML
            meta = {"tokenizer.chat_template": template}
            model = tiny(Path(folder) / f"{name}.gguf", vocab=4096, seed=5, context=8192, meta=meta)
            with Process(environ(Path(folder), model.parent), str(model)) as server:
                for script in args.scripts:
                    counted, wrong = steps(args.python, script.resolve(), f"http://127.0.0.1:{server.port}")
                    print(f"{name:<16} {script.stem:<20} {counted}", flush=True)
                    for step in wrong:
                        failed[f"{script.stem}: {step}"].append(name)
    for step, names in sorted(failed.items(), key=lambda row: -len(row[1])):
        print(f"{len(names):3} {step} ({', '.join(names[:6])}{', …' if len(names) > 6 else ''})")


if __name__ == "__main__":
    main()
