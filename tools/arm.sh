#!/bin/sh
# Compiles the native core for ARM (aarch64) and runs its tests under an emulator:  arm.sh [arguments of pytest]
#
# On a machine with apt (Debian, Ubuntu). A Python for ARM is taken apart into build/arm/root, with the packages that the
# tests need beside it; nothing is installed into the system, and what is there already is not fetched again.
# The emulator is right to the bit and tells nothing about speed.
set -eu

venv=${VENV:-.venv}
arm=$PWD/build/arm
root=$arm/root
log=$arm/log
mkdir -p "$arm/bin" "$arm/site" "$arm/include"

say() { printf 'woolly: %s\n' "$1" >&2; }
fail() { say "$1"; exit 1; }

# --- what must be on the machine -------------------------------------------------------------------------------------

missing=
command -v aarch64-linux-gnu-g++ >/dev/null 2>&1 || missing="$missing g++-aarch64-linux-gnu"
qemu=$(command -v qemu-aarch64 || command -v qemu-aarch64-static) || missing="$missing qemu-user"
[ -z "$missing" ] || fail "an emulator and a compiler for ARM are needed; install them (Debian, Ubuntu: apt install$missing)"
{ command -v apt-get && command -v dpkg-deb; } >/dev/null 2>&1 || fail "apt-get and dpkg-deb are needed, to fetch a Python for ARM"
for tool in g++ c++ objdump nm; do
    from=$tool
    if [ "$tool" = c++ ]; then from=g++; fi
    ln -sf "$(command -v "aarch64-linux-gnu-$from")" "$arm/bin/$tool"
done

# --- a Python for ARM ------------------------------------------------------------------------------------------------

# apt with a state of its own: it knows one architecture and no installed package, so it fetches all that Python needs.
apt() {
    apt-get -qq -y --no-install-recommends -o APT::Architecture=arm64 -o APT::Architectures::=arm64 \
        -o APT::Sandbox::User="$(id -un)" -o Debug::NoLocking=1 -o Dir::Cache="$arm/apt/cache" -o Dir::Log="$arm/apt" \
        -o Dir::State="$arm/apt/state" -o Dir::State::status="$arm/apt/status" "$@" >>"$log" 2>&1
}

get_python() {
    say "fetching a Python for ARM (once)"
    rm -rf "$root" "$arm/apt" "$arm/root.new"
    mkdir -p "$arm/apt/cache/archives/partial" "$arm/apt/state/lists/partial" "$arm/root.new"
    : >"$arm/apt/status"
    : >"$log"
    apt update || fail "apt could not read the lists of arm64: $(tail -n 1 "$log") ($log)"
    apt install --download-only python3 libstdc++6 ||
        fail "apt could not fetch a Python for arm64: $(tail -n 1 "$log") ($log); on Ubuntu a source of the ports is needed"
    for package in "$arm"/apt/cache/archives/*.deb; do dpkg-deb -x "$package" "$arm/root.new"; done
    name=$(basename "$(readlink "$arm/root.new/usr/bin/python3")")
    (cd "$arm/apt" && apt download "lib$name-dev") || fail "apt could not fetch lib$name-dev: $(tail -n 1 "$log") ($log)"
    dpkg-deb -x "$arm"/apt/lib"$name"-dev_*.deb "$arm/root.new"
    rm -rf "$arm/apt"
    mv "$arm/root.new" "$root"
}

[ -d "$root" ] || get_python
name=$(basename "$(readlink "$root/usr/bin/python3")")
version=${name#python}

# Children that a test starts are emulated too; `import woolly._core` finds what is compiled here.
write_wrapper() {
    cat >"$arm/python" <<END
#!/bin/sh
export PYTHONPATH=$arm/site PYTHONNOUSERSITE=1 PATH=$arm/bin:\$PATH
exec $qemu -cpu "\${QEMU_CPU:-cortex-a76}" -L $root $root/usr/bin/$name "\$@"
END
    chmod +x "$arm/python"
    cat >"$arm/site/sitecustomize.py" <<END
import sys
from importlib.util import spec_from_file_location


class Compiled:
    @staticmethod
    def find_spec(name, path=None, target=None):
        return spec_from_file_location(name, "$arm/_core.so") if name == "woolly._core" else None


sys.executable = "$arm/python"
sys.meta_path.insert(0, Compiled)
END
}
write_wrapper

"$venv/bin/python" - >"$arm/requirements" <<'END'
import tomllib

with open("pyproject.toml", "rb") as file:
    table = tomllib.load(file)
project, build = table["project"], table["build-system"]["requires"]
used = ("nanobind", "pytest", "hypothesis")
print(*project["dependencies"], sep="\n")
print(*(row for row in [*build, *project["optional-dependencies"]["dev"]] if row.startswith(used)), sep="\n")
END
if ! cmp -s "$arm/requirements" "$arm/requirements.done"; then
    say "fetching the packages that the tests need (once)"
    "$venv/bin/python" -m pip --disable-pip-version-check --no-input install --upgrade --target "$arm/site" \
        --only-binary=:all: --platform manylinux_2_28_aarch64 --platform manylinux2014_aarch64 --python-version "$version" \
        -r "$arm/requirements" >"$log" 2>&1 || fail "pip could not fetch them: $(grep ERROR "$log" | tail -n 1) ($log)"
    cp "$arm/requirements" "$arm/requirements.done"
    write_wrapper      # pip leaves the file beside its packages; a package of that name must not win
fi

# --- compile, and test -----------------------------------------------------------------------------------------------

say "compiling the native core for ARM (a minute or two, once)"
mkdir -p "$arm/include/aarch64-linux-gnu"
ln -sfn "$root/usr/include/aarch64-linux-gnu/$name" "$arm/include/aarch64-linux-gnu/$name"
cmake=$venv/bin/cmake
{
    "$cmake" -G Ninja -S . -B "$arm/cmake" -DCMAKE_MAKE_PROGRAM="$PWD/$venv/bin/ninja" -DCMAKE_BUILD_TYPE=Release \
        -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++ \
        -DCMAKE_CXX_FLAGS="-I$arm/include -Werror" -DPython_EXECUTABLE="$arm/python" \
        -DPython_INCLUDE_DIR="$root/usr/include/$name" &&
        "$cmake" --build "$arm/cmake" ${JOBS:+-j "$JOBS"}
} >"$log" 2>&1 || { tail -n 40 "$log" >&2; fail "the native core did not compile for ARM; the whole report is in $log"; }
cp "$arm"/cmake/_core.*.so "$arm/_core.so"

# A processor without the dot product must be offered the plain set alone, and not meet an instruction that it lacks.
offered() { QEMU_CPU=$1 "$arm/python" -c 'from woolly.device.cpu import machine; print(*machine()["sets"])'; }
[ "$(offered cortex-a53)" = scalar ] || fail "a processor without the dot product is offered '$(offered cortex-a53)'"
[ "$(offered cortex-a76)" = 'scalar neon' ] || fail "a processor with the dot product is offered '$(offered cortex-a76)'"
say "a Cortex-A53 is offered scalar; a Cortex-A76, and what follows runs on it, scalar and neon"
if [ $# -eq 0 ]; then
    QEMU_CPU=cortex-a53 "$arm/python" -m pytest -p no:cacheprovider tests/native/test_models.py -k every_family
    # All but the one that is about time. One after the other: emulators and forks of many threads do not go together well.
    set -- --timeout 1800 -m native --deselect tests/engine/test_turn.py::test_a_turn_of_one_sequence_costs_less_than_150_microseconds
fi
exec "$arm/python" -m pytest -p no:cacheprovider "$@"
