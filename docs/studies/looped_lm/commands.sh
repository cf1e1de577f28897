#!/usr/bin/env bash
# The studies of this folder; every command goes on where it stopped. Two runs at a time, a thread each.
set -euo pipefail
hrm-deeploop lm data stdlib --validation-share 0.015
common=(optim.lr_warmup_steps=20 log_every_steps=10 --parallel 2 --threads 1)
looks=diagnostics.validation_rows=64
hrm-deeploop sigma launch experiment=lm_tiny_base arms=base,deeploop lm.rounds=1,3,7 seeds=0-3 out=loops \
    optim.total_steps=150 diagnostics.validation_every_steps=50 $looks "${common[@]}"
same=-lr_warmup_steps=20-total_steps=150
hrm-deeploop sigma loops --contrast "deeploop-R3$same" "base-R3$same" --out report
hrm-deeploop psweep experiment=lm_tiny_deeploop p=0.3,0.375,0.45,0.525,0.6 lm.rounds=3 seeds=0,1 \
    out=psweep optim.total_steps=120 max_steps=120 optim.lr=2e-2 \
    diagnostics.validation_every_steps=25 $looks "${common[@]}"
hrm-deeploop psweep experiment=lm_tiny_base arms=eps_loop,eps_sqrt lm.rounds=1,4,8 seeds=0 out=rates \
    optim.lr=1e-3,3e-3,9e-3,2.7e-2 optim.total_steps=40 max_steps=40 optim.lr_warmup_steps=10 \
    diagnostics.validation_every_steps=20 $looks log_every_steps=10 --parallel 2 --threads 1
