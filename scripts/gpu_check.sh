#!/usr/bin/env bash
# One GPU, no network, under 8 minutes: runs scripts/gpu_check.py with the Python at hand
# (PYTHON=..., default python3), which needs torch 2.9+, numpy, einops, safetensors.
# Prints JSON; with a file name as argument also writes it there.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
PYTHONPATH=$PWD exec "${PYTHON:-python3}" scripts/gpu_check.py "$@"
