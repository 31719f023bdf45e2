#!/bin/sh
# Installs the wheel of dist as a user would, in a new virtual environment and without a compiler, and lets it answer:
#   try_wheel.sh
#
# Prints the seconds from `pip install` to the first token. The model must be in the store already; the packages that
# Woolly needs come from pip's index or its cache. PYTHON names the Python of the new environment.
set -eu

fail() { printf 'woolly: %s\n' "$1" >&2; exit 1; }

venv=${VENV:-.venv}
python=$("${PYTHON:-$venv/bin/python}" -c 'import sys; print(sys.executable)')
set -- dist/woolly-*.whl
[ -f "$1" ] || fail "there is no wheel in dist; make wheel builds it"
wheel=$(cd dist && pwd)/$(basename "$1")

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT INT TERM

"$python" -m venv "$folder/venv"
# A folder of programs that has all but compilers, so that nothing can be compiled in secret.
mkdir "$folder/bin"
for program in sh env uname ldconfig cat rm mkdir; do
    place=$(command -v "$program") && ln -s "$place" "$folder/bin/$program"
done
now() { "$python" -c 'import time; print(time.monotonic())'; }

cd "$folder"
begin=$(now)
env PATH="$folder/venv/bin:$folder/bin" CC=none CXX=none "$folder/venv/bin/python" -m pip --disable-pip-version-check \
    install --quiet --only-binary :all: "$wheel" || fail "the wheel could not be installed"
installed=$(now)
env PATH="$folder/venv/bin:$folder/bin" "$folder/venv/bin/woolly" run smollm2 "What is wool?" --temperature 0 \
    --max-tokens 1 --quiet >answer </dev/null || fail "the installed command did not answer"
end=$(now)
[ -s answer ] || fail "the answer is empty"
version=$("$folder/venv/bin/woolly" --version)
"$python" - "$version" "$begin" "$installed" "$end" <<'END'
import sys

version, *times = sys.argv[1:]
begin, installed, end = map(float, times)
print(
    f"{version} from a wheel, without a compiler: {end - begin:.1f} s from pip install to the first token "
    f"({installed - begin:.1f} s of them pip's)"
)
END
