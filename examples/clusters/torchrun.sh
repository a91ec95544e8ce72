#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# train_gpt on the nodes of a list, without a batch system: torchrun on each of them by ssh, over TCP. Start it in a folder that
# all nodes see; the arguments after the nodes are options of train_gpt:
#
#   TRAIN_GPT=$HOME/weft/build/release/examples/04_train_gpt NODES="node1 node2" ./torchrun.sh --tp 2 --data corpus.txt
#
# When a rank is lost, torchrun starts all ranks again. With NNODES=1:2 it does so on the nodes that are left, if at least MIN
# of them are: their world is smaller. The same command with the same RUN continues an earlier run.
program=${TRAIN_GPT:?is the path of 04_train_gpt}
read -ra nodes <<< "${NODES:?is the list of nodes}"
nnodes=${NNODES:-${#nodes[@]}}  # or MIN:MAX
run=${RUN:-$PWD/runs/train_gpt}
port=${PORT:-29500}  # of torchrun; weft's store takes the next one

umask 077  # only this user reads the secret
mkdir -p "$run"
head -c 32 /dev/urandom | base64 > "$run/secret"
# WEFT_JOB: torchrun's count of restarts, which is part of the default name, may differ between nodes.
job=torchrun-$(date +%s)
command=(env "WEFT_SECRET_FILE=$run/secret" "WEFT_JOB=$job" "WEFT_STORE_PORT=$((port + 1))" OMP_NUM_THREADS=1
  "${TORCHRUN:-torchrun}" --no-python --nnodes "$nnodes" --nproc-per-node 2 --max-restarts 5
  --rdzv-backend c10d --rdzv-endpoint "${nodes[0]}:$port" --rdzv-id "$job"
  "$program" --output "$run" --checkpoint "$run/checkpoints" --every "${EVERY:-100}" --resume "$@")
pids=()
for node in "${nodes[@]}"; do
  ssh "$node" "cd $(printf '%q' "$PWD") && exec $(printf '%q ' "${command[@]}")" &
  pids+=($!)
done
code=0 complete=no
for pid in "${pids[@]}"; do
  if wait "$pid"; then complete=yes; else code=$?; fi
done
case $nnodes,$complete in *:*,yes) exit 0 ;; esac  # a node was lost, and the others have done all steps
exit $code
