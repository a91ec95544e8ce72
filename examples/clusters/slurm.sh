#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# train_gpt on two nodes under Slurm, over TCP. Submit it in a folder that all nodes see; its arguments are options of train_gpt:
#
#   TRAIN_GPT=$HOME/weft/build/release/examples/04_train_gpt sbatch slurm.sh --tp 2 --data corpus.txt
#
# A lost rank, a lost node, a preemption and the time limit all lead to a requeue, which continues from the newest checkpoint.
#SBATCH --job-name=train_gpt
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --cpus-per-task=1
#SBATCH --time=04:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=TERM@120
# --signal: 120 s before the time limit Slurm sends SIGTERM to the ranks, which save and end with 130. A preemption sends it at
# once if the partition has a GraceTime, or the site's PreemptParameters include send_user_signal.
program=${TRAIN_GPT:?is the path of 04_train_gpt}
run=${RUN:-runs/$SLURM_JOB_ID}
restarts=5

umask 077  # only this user reads the secret
mkdir -p "$run"
head -c 32 /dev/urandom | base64 > "$run/secret"
export WEFT_SECRET_FILE=$run/secret
export MASTER_ADDR MASTER_PORT WEFT_JOB OMP_NUM_THREADS
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed -n 1p)   # rank 0's node
MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000))                             # jobs that share a node get different ports
WEFT_JOB=slurm-$SLURM_JOB_ID-${SLURM_RESTART_COUNT:-0}                    # a requeued job keeps its number
OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK

# --mpi=none: without the variables of PMI train_gpt takes TCP. --kill-on-bad-exit=0: the others end by themselves, within
# seconds, and name the lost rank.
srun --mpi=none --kill-on-bad-exit=0 --cpus-per-task="$SLURM_CPUS_PER_TASK" \
  "$program" --output "$run" --checkpoint "$run/checkpoints" --every "${EVERY:-100}" --resume "$@"
code=$?
case $code in
  0 | 2 | 3) exit $code ;;  # complete, refused or diverged: a restart changes nothing
esac
if [ "${SLURM_RESTART_COUNT:-0}" -lt "$restarts" ]; then scontrol requeue "$SLURM_JOB_ID"; fi
exit $code
