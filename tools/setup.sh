#!/bin/sh
# Sets up what the Makefile needs:  setup.sh build | dev | san | requirements
#
#   build   a virtual environment with what Woolly needs, and the package in it: of the instruction sets the plain one
#           and the best of this machine are compiled, or all where `dev` has been here
#   dev     the same, all instruction sets, and the tools of `make test`
#   requirements   prints what these install
#   san     a second environment whose native core is compiled with the sanitizers; exit 3 where the compiler has none
#
# What is already there is not done again, and then no network is needed. What cannot be done ends in one line that
# says what to do. PYTHON, CXX and VENV may name others than those found. LOCKED=1 installs exactly the files whose
# hashes are in requirements.lock, instead of the newest that pyproject.toml allows.
set -eu

venv=${VENV:-.venv}
log=build/setup.log
python=$venv/bin/python
mkdir -p build

say() { printf 'woolly: %s\n' "$1" >&2; }
fail() { say "$1"; exit 1; }

# --- what must be on the machine -------------------------------------------------------------------------------------

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

find_python() {
    if [ -n "${PYTHON:-}" ]; then
        command -v "$PYTHON" >/dev/null 2>&1 || fail "PYTHON=$PYTHON is not there; name a Python of 3.11 or newer"
        new_enough "$PYTHON" || fail "PYTHON=$PYTHON is older than Python 3.11; name a newer one"
        found=$PYTHON
        return
    fi
    for found in python3 python3.14 python3.13 python3.12 python3.11 python; do
        if new_enough "$found"; then return; fi
    done
    fail "no Python 3.11 or newer was found; install one (Debian, Ubuntu: apt install python3), or name it: make PYTHON=/path/to/python3"
}

find_compiler() {
    if [ -n "${CXX:-}" ]; then
        command -v "$CXX" >/dev/null 2>&1 || fail "CXX=$CXX is not there; name a C++ compiler, or leave CXX out"
    fi
    for cxx in ${CXX:-c++ g++ clang++}; do
        if command -v "$cxx" >/dev/null 2>&1; then
            printf '#include <bit>\n#include <span>\nint main() {}\n' | "$cxx" -std=c++20 -x c++ -fsyntax-only - 2>/dev/null ||
                fail "the compiler $cxx cannot read C++20; install g++ 11 or clang 14 or newer, or name another: make CXX=..."
            keep_build_of "$(command -v "$cxx") $("$cxx" --version | head -n 1)"
            return
        fi
    done
    fail "no C++ compiler was found; install one (Debian, Ubuntu: apt install g++; Fedora: dnf install gcc-c++; macOS: xcode-select --install)"
}

# CMake remembers the compiler it began with: a build begun with another one is thrown away.
keep_build_of() {
    if [ "$(cat build/compiler 2>/dev/null)" != "$1" ]; then
        rm -rf build/cp* build/san
        printf '%s\n' "$1" >build/compiler
    fi
}

check_python() {
    version=$("$found" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    "$found" -c 'import ensurepip, venv' 2>/dev/null ||
        fail "the venv module of $found is missing; install it (Debian, Ubuntu: apt install python$version-venv)"
    "$found" -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))' ||
        fail "the C headers of $found are missing; install them (Debian, Ubuntu: apt install python$version-dev; Fedora: dnf install python3-devel)"
}

# --- the steps -------------------------------------------------------------------------------------------------------

make_venv() {
    find_compiler
    if [ -x "$python" ] && new_enough "$python"; then
        if [ -z "${PYTHON:-}" ]; then return; fi
        find_python
        check_python
        if [ "$("$python" -c 'import sys; print(sys.version)')" = "$("$found" -c 'import sys; print(sys.version)')" ]; then return; fi
    else
        find_python
        check_python
    fi
    say "making $venv with Python $version"
    rm -rf "$venv" build/cp* build/san
    "$found" -m venv "$venv" >"$log" 2>&1 || fail "$found could not make $venv: $(tail -n 1 "$log")"
}

pip() { "$python" -m pip --disable-pip-version-check --no-input "$@" >"$log" 2>&1; }

# The requirements are written down once, in pyproject.toml; cmake and ninja are what its build backend asks for.
#   tools: what compiles    run: what runs    dev: what tests
requirements() {
    "$python" - "$1" <<'END'
import sys, tomllib

with open("pyproject.toml", "rb") as file:
    table = tomllib.load(file)
match sys.argv[1]:
    case "tools":
        print(*table["build-system"]["requires"], "cmake>=3.26", "ninja", sep="\n")
    case "run":
        print(*table["project"]["dependencies"], sep="\n")
    case "dev":
        print(*table["project"]["optional-dependencies"]["dev"], sep="\n")
END
}

install() {
    if [ -n "${LOCKED:-}" ]; then      # all of them at once
        set -- locked "$2"
        { echo --require-hashes && cat requirements.lock; } >"$venv/$1.txt"
    else
        requirements "$1" >"$venv/$1.txt"
    fi
    if cmp -s "$venv/$1.txt" "$venv/$1.done"; then return; fi
    say "installing $2"
    if ! pip install --no-compile -r "$venv/$1.txt"; then      # Python compiles what it imports, and that is not all
        if grep -q 'connection broken\|Could not find a version' "$log"; then
            fail "the package index cannot be reached; check the network or pip's settings, then run make again ($log)"
        fi
        fail "pip could not install the requirements: $(grep ERROR "$log" | tail -n 1) ($log)"
    fi
    cp "$venv/$1.txt" "$venv/$1.done"
}

compile() {
    sets=$1
    if [ "$(cat "$venv/sets" 2>/dev/null)" = all ]; then sets=all; fi
    say "compiling $2"
    if ! pip install --no-deps --no-build-isolation -C cmake.define.WOOLLY_SETS="$sets" -e .; then
        tail -n 40 "$log" >&2
        fail "the native core did not compile; the whole report is in $log"
    fi
    echo "$sets" >"$venv/sets"
}

# The compiler needs none of the packages that Woolly runs with: they come meanwhile.
build() {
    install tools "what compiles Woolly (once)"
    (log=build/packages.log && install run "what it needs (once)") &
    packages=$!
    compile best "the native core (half a minute to a minute, once)"
    wait "$packages" || exit 1
}

# The second environment borrows the packages of the first through a .pth file, whose own .pth files are not read: so
# the first one's Woolly is not seen, and nothing is downloaded.
sanitize() {
    find_compiler
    asan=$("$cxx" -print-file-name=libasan.so)
    case $asan in /*) ;; *) exit 3 ;; esac
    mkdir -p build/san
    printf 'int main() {}\n' >build/san/try.cpp
    "$cxx" -fsanitize=address,undefined build/san/try.cpp -o build/san/try 2>/dev/null || exit 3
    if [ ! -x build/san/venv/bin/python ]; then
        "$python" -m venv --without-pip build/san/venv
        "$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
            >"$(build/san/venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/borrowed.pth"
    fi
    # Python itself is not instrumented, so the run-time libraries must be there before it starts.
    echo "$asan $("$cxx" -print-file-name=libstdc++.so)" >build/san/preload
    say "compiling the native core with the sanitizers"
    if ! "$python" -m pip --python build/san/venv/bin/python --disable-pip-version-check install --no-deps \
        --no-build-isolation -C cmake.define.SAN=ON -C build-dir=build/san/cmake -e . >"$log" 2>&1; then
        tail -n 40 "$log" >&2
        fail "the native core did not compile with the sanitizers; the whole report is in $log"
    fi
}

case ${1:-} in
build) make_venv && build ;;
dev)
    install dev "what the tests need (once)"
    [ "$(cat "$venv/sets")" = all ] || compile all "the native core for the other instruction sets (once)"
    ;;
san) sanitize ;;
requirements) requirements tools && requirements run && requirements dev ;;
*) fail "usage: setup.sh build | dev | san | requirements" ;;
esac
