#!/usr/bin/env bash
# Makes or reuses .venv with the locked dependencies; sourced by the other scripts.
# A second run installs nothing: the lock files' hash is noted in .venv once all is installed.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
export PIP_DISABLE_PIP_VERSION_CHECK=1

python=${PYTHON:-python3}
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    echo "needs Python 3.11 or newer as python3 (or PYTHON=/path/to/python); found:" \
        "$("$python" --version 2>&1 || true)" >&2
    exit 2
fi
if [ ! -x .venv/bin/python ]; then
    "$python" -m venv .venv
fi
python=$root/.venv/bin/python

# setup EXTRA: installs the package, with EXTRA (dev or nothing) beside its own needs.
setup() {
    local extra=${1:-} mark stamp
    mark=$(cat pyproject.toml constraints.txt | sha256sum | cut -d' ' -f1)
    stamp=.venv/installed${extra:+-$extra}
    if [ "$(cat "$stamp" 2>/dev/null)" = "$mark $root" ]; then
        return
    fi
    # A torch that is there already is kept, whatever build it is.
    local constraints=constraints.txt
    if "$python" -c 'import torch' 2>/dev/null; then
        constraints=.venv/constraints.txt
        grep -v '^torch==' constraints.txt >"$constraints"
        "$python" -m pip freeze | grep '^torch==' >>"$constraints"
    else
        echo "installing torch 2.13.0: on Linux the public build carries CUDA (some GB)" >&2
        "$python" -m pip install --quiet torch==2.13.0
    fi
    echo "installing the other dependencies" >&2
    "$python" -m pip install --quiet --constraint "$constraints" --editable ".${extra:+[$extra]}"
    echo "$mark $root" >"$stamp"
}
