#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# train_gpt on two nodes under Flux, over TCP. Submit it in a folder that all nodes see; its arguments are options of train_gpt:
#
#   TRAIN_GPT=$HOME/weft/build/release/examples/04_train_gpt flux batch flux.sh --tp 2 --data corpus.txt
#
# When a rank is lost, the ranks start again on the same nodes. A job submitted again with the same RUN continues, too.
#flux: --job-name=train_gpt
#flux: --nodes=2
#flux: --nslots=4
#flux: --cores-per-slot=1
#flux: --time-limit=4h
program=${TRAIN_GPT:?is the path of 04_train_gpt}
job=$(flux getattr jobid)
run=${RUN:-runs/$job}

umask 077  # only this user reads the secret
mkdir -p "$run"
head -c 32 /dev/urandom | base64 > "$run/secret"
export WEFT_SECRET_FILE=$run/secret OMP_NUM_THREADS=1 MASTER_ADDR MASTER_PORT WEFT_JOB
MASTER_ADDR=$(flux hostlist --nth=0 instance)                              # rank 0's node
MASTER_PORT=$((20000 + $(printf '%s' "$job" | cksum | cut -d ' ' -f 1) % 10000))  # jobs that share a node get different ports

# weft does not read Flux's own names, and PMI's would make train_gpt take MPI.
rank='unset PMI_RANK PMI_SIZE PMI_FD
  export RANK=$FLUX_TASK_RANK WORLD_SIZE=$FLUX_JOB_SIZE LOCAL_WORLD_SIZE=$((FLUX_JOB_SIZE / FLUX_JOB_NNODES))
  exec "$@"'
for restart in 0 1 2 3 4 5; do
  WEFT_JOB=flux-$job-$restart
  flux run --nodes=2 --ntasks=4 --cores-per-task=1 -o pmi=off bash -c "$rank" - \
    "$program" --output "$run" --checkpoint "$run/checkpoints" --every "${EVERY:-100}" --resume "$@"
  code=$?
  case $code in
    0 | 2 | 3 | 130) break ;;  # complete, refused, diverged or interrupted
  esac
done
exit $code
