#!/usr/bin/env bash
# From a fresh clone to a K ladder: builds mini, trains a small reasoner, votes.
#   bash scripts/demo.sh                      DeepLoop scaling
#   bash scripts/demo.sh residual=vanilla     any overrides of hrm-deeploop train
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
setup
data=()
for override in "$@"; do
    case $override in data*) data+=("$override") ;; esac
done
.venv/bin/hrm-deeploop data build experiment=mini_deeploop "${data[@]}"
.venv/bin/hrm-deeploop train experiment=mini_deeploop "$@"
