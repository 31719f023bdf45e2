#!/bin/sh
# Writes requirements.lock anew:  lock.sh
#
# Every package that Woolly needs to run, to be built and to be tested, and all that these need, for every Python and
# system that Woolly supports: one version each, with the hashes of its files. LOCKED=1 installs these and no others.
set -eu

venv=build/lock
log=build/lock.log
mkdir -p build

fail() { printf 'woolly: %s\n' "$1" >&2; exit 1; }

"${VENV:-.venv}/bin/python" -m venv "$venv" && "$venv/bin/python" -m pip --disable-pip-version-check install uv >"$log" 2>&1 ||
    fail "uv, which finds the versions, could not be installed ($log)"
sh tools/setup.sh requirements >build/lock.in
# No address of an index: pip's own settings say where the files come from, the hashes what they are.
"$venv/bin/uv" pip compile build/lock.in --universal --generate-hashes --python-version 3.11 --upgrade --quiet \
    --no-emit-index-url --no-emit-find-links --no-annotate --no-header -o requirements.lock >"$log" 2>&1 ||
    fail "the versions could not be found: $(tail -n 1 "$log") ($log)"
