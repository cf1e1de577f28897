#!/usr/bin/env bash
# One run on the 8 GPUs of this machine (GPUS=4 for four), begun or gone on with.
#   bash scripts/torchrun_8gpu.sh experiment=arc1_deeploop hardware=8gpu seed=0
#   bash scripts/torchrun_8gpu.sh resume=RUN_DIR
# SIGTERM, SIGINT and SIGUSR1 save and end; torchrun waits 100 s for that.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PET_SIGNALS_TO_HANDLE=SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1 PET_SHUTDOWN_TIMEOUT=100
exec "${PYTHON:-.venv/bin/python}" -m torch.distributed.run \
    --standalone --nproc-per-node "${GPUS:-8}" -m hrm_deeploop.cli.train "$@"
