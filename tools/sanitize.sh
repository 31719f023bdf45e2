#!/bin/sh
# Runs the tests of the native core with the address and undefined-behaviour sanitizers, where the compiler has them.
set -eu

status=0
sh tools/setup.sh san || status=$?
if [ "$status" -eq 3 ]; then
    echo 'woolly: the compiler has no sanitizers here; their run is left out' >&2
    exit 0
fi
[ "$status" -eq 0 ] || exit "$status"

# Leaks are not looked for: Python keeps much until its end. A report is written straight to standard error, which
# pytest must therefore leave alone.
LD_PRELOAD=$(cat build/san/preload) ASAN_OPTIONS=detect_leaks=0 \
    exec build/san/venv/bin/python -m pytest -n 2 --dist worksteal -p no:cacheprovider --capture=sys -m native
