#!/usr/bin/env bash
# Make .venv with everything that development needs, in the exact versions of constraints.txt.
# Running it again brings an existing .venv up to date.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

venv=.venv
python="$venv/bin/python"

fail() {
    printf 'setup: %s\n' "$*" >&2
    exit 1
}

new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

# The default python3 first; a name may exist (as a shim) without an interpreter behind it.
find_python() {
    local name
    for name in python3 python3.14 python3.13 python3.12 python3.11 python; do
        if command -v "$name" >/dev/null 2>&1 && new_enough "$name"; then
            printf '%s\n' "$name"
            return
        fi
    done
    fail "Python 3.11 or newer is needed, and none is on PATH. Hint: install it, or install uv, which brings its own."
}

create_with_uv() {
    [ -x "$python" ] || uv venv --quiet --python '>=3.11' "$venv"
}

create_with_pip() {
    local base
    if [ ! -x "$python" ]; then
        base=$(find_python)
        "$base" -m venv "$venv" ||
            fail "'$base -m venv' failed. Hint: on Debian and Ubuntu, install python3-venv."
    fi
    # Only an environment made by something else lacks pip.
    "$python" -m pip --version >/dev/null 2>&1 || "$python" -m ensurepip >/dev/null
}

install() {
    if command -v uv >/dev/null 2>&1; then
        uv pip install --quiet --python "$python" --constraint constraints.txt --editable '.[dev]'
    else
        "$python" -m pip install --quiet --disable-pip-version-check \
            --constraint constraints.txt --editable '.[dev]'
    fi
}

if command -v uv >/dev/null 2>&1; then
    create_with_uv
else
    create_with_pip
fi
new_enough "$python" || fail "$venv holds a Python older than 3.11. Hint: run 'make clean' and try again."

printf 'setup: installing into %s (a few minutes the first time)\n' "$venv" >&2
install
