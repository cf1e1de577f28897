#!/usr/bin/env bash
# Lint, types and all tests; arguments go to pytest.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
setup dev
.venv/bin/ruff format --check .
.venv/bin/ruff check .
.venv/bin/mypy
command -v chromium >/dev/null ||
    echo "no chromium: the browser tests are skipped (Debian: apt-get install chromium)" >&2
# One thread per worker: two busy torch processes on few cores slow each other many times over.
export OMP_NUM_THREADS=1
.venv/bin/python -m pytest --numprocesses auto --durations 10 "$@"
