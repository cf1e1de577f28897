#!/usr/bin/env bash
# One GPU, no network, under 8 minutes: runs scripts/gpu_check.py with the Python at hand
# (PYTHON=..., default python3, or .venv's where that has no torch), which needs torch 2.9+, numpy,
# einops, safetensors.
# Prints JSON; with a file name as argument also writes it there.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=${PYTHON:-python3}
has_torch() { "$python" -c 'import torch' 2>/dev/null; }
if ! has_torch && [ -z "${PYTHON:-}" ] && [ -x .venv/bin/python ]; then
    python=.venv/bin/python
fi
if ! has_torch; then
    echo "gpu_check: $python has no torch; give one that has with PYTHON=..." >&2
    exit 2
fi
PYTHONPATH=$PWD exec "$python" scripts/gpu_check.py "$@"
