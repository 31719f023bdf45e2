"""The command line: `record` and `compare`."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tools import http_transcripts  # noqa: E402
from tools.http_transcripts.cases import CASES, without_case  # noqa: E402
from tools.http_transcripts.cases.faults import faults  # noqa: E402
from tools.http_transcripts.compare import differences  # noqa: E402
from tools.http_transcripts.description import pieces  # noqa: E402
from tools.http_transcripts.recorder import Recorder  # noqa: E402
from tools.http_transcripts.servers import running, write_models  # noqa: E402


def record(checkout: Path, out: Path) -> int:
    with tempfile.TemporaryDirectory(prefix="woolly-transcripts-") as name:
        folder = Path(name)
        write_models(folder)
        with running(checkout.resolve(), folder) as ports:
            recorder = Recorder(ports)
            documents = {server: recorder.openapi(server) for server in ("open", "gateway", "replica")}
            transcripts = recorder.record([*CASES, *faults(documents["open"])])
    for route in sorted({route for document in documents.values() for route in without_case(document)}):
        print(f"no case asks {route}", file=sys.stderr)
    count = len(transcripts)
    for server, document in documents.items():
        transcripts |= {f"openapi.json of {server}: {name}": part for name, part in pieces(document).items()}
    out.write_text(json.dumps(transcripts, indent=1, sort_keys=True) + "\n")
    print(f"{count} transcripts and {len(documents)} descriptions in {out}")
    return 0


def compare(before: Path, after: Path) -> int:
    rows = list(differences(json.loads(before.read_text()), json.loads(after.read_text())))
    print("\n".join([*rows, f"{len(rows)} transcripts differ"]))
    return 1 if rows else 0


def main() -> int:
    assert http_transcripts.__doc__ is not None
    parser = argparse.ArgumentParser(prog="python -m tools.http_transcripts", description=http_transcripts.__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("record", help="ask the servers of a checkout")
    one.add_argument("--checkout", type=Path, required=True)
    one.add_argument("--out", type=Path, required=True)
    one.set_defaults(run=lambda args: record(args.checkout, args.out))
    two = commands.add_parser("compare", help="exit 1 where two recordings differ")
    two.add_argument("before", type=Path)
    two.add_argument("after", type=Path)
    two.set_defaults(run=lambda args: compare(args.before, args.after))
    args = parser.parse_args()
    return int(args.run(args))


if __name__ == "__main__":
    sys.exit(main())
