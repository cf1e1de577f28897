#!/usr/bin/env bash
# What docs/studies/kappa was made from; writes into $1, skips what is there. From the repository.
set -euo pipefail
out=$1
mkdir -p "$out/kappa" "$out/bf16" "$out/lm"
probe() {
  local file=$1
  shift
  [ -f "$file" ] || hrm-deeploop kappa --init --out "$file" "$@"
}
for seed in 0 1 2; do
  for arm in vanilla deepnorm deeploop; do
    probe "$out/kappa/$arm-s$seed.json" --rounds 1,2,4,8,16 --rates 1e-5,1e-4,2e-3 \
      "experiment=mini_$arm" arch.grad_scope=last_cycle "seed=$seed"
    for carry in compute float32; do
      for sum in float32 compute; do
        words=("experiment=mini_$arm" arch.forward_dtype=bfloat16 "arch.carry_dtype=$carry"
          "arch.residual_sum=$sum" "seed=$seed")
        probe "$out/bf16/mini-$arm-$carry-$sum-s$seed.json" --precision run --batch-size 16 \
          "${words[@]}"
        probe "$out/bf16/wide-$arm-$carry-$sum-s$seed.json" --precision run --batch-size 2 \
          "${words[@]}" arch.hidden_size=512 arch.num_heads=8 arch.H_layers=4 arch.L_layers=4
      done
    done
  done
  for arm in base deeploop deepnorm; do
    probe "$out/lm/$arm-s$seed.json" --rounds 1,2,4,8 --rates 1e-5,1e-4,2e-3 --batch-size 8 \
      "experiment=lm_tiny_$arm" "seed=$seed"
  done
done
