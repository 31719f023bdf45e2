#!/bin/sh
# Builds the wheel into dist:  wheel.sh
#
# The wheel holds the compiled core with the kernels of every instruction set: who installs it needs no compiler.
set -eu

venv=${VENV:-.venv}
log=build/wheel.log
mkdir -p build dist

fail() { printf 'woolly: %s\n' "$1" >&2; exit 1; }

rm -f dist/woolly-*.whl
if ! "$venv/bin/python" -m pip --disable-pip-version-check wheel --no-deps --no-build-isolation -w dist . >"$log" 2>&1; then
    tail -n 40 "$log" >&2
    fail "the wheel was not built; the whole report is in $log"
fi
for wheel in dist/woolly-*.whl; do
    printf 'woolly: %s, %s bytes; install it with: pip install %s\n' "$wheel" "$(wc -c <"$wheel" | tr -d ' ')" "$wheel"
done
