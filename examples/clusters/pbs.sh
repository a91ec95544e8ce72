#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# train_gpt on two nodes under PBS, over MPI. Submit it in a folder that all nodes see; OPTIONS are options of train_gpt:
#
#   qsub -v TRAIN_GPT=$HOME/weft/build/release/examples/04_train_gpt,OPTIONS="--tp 2 --data corpus.txt" pbs.sh
#
# When a rank is lost, mpirun ends the job's processes and --restarts starts them again on the same nodes. When PBS runs the job
# again (-r y: a lost node, a preemption), --resume continues from the newest checkpoint.
#PBS -N train_gpt
#PBS -l select=2:ncpus=2:mpiprocs=2
#PBS -l place=scatter
#PBS -l walltime=04:00:00
#PBS -r y
#PBS -j oe
cd "$PBS_O_WORKDIR" || exit
program=${TRAIN_GPT:?is the path of 04_train_gpt}
run=${RUN:-runs/${PBS_JOBID%%.*}}

# PBS_NODEFILE has a line for each rank. mpirun chooses addresses and ports, and starts its daemons by PBS or ssh, so that
# neither a secret nor MASTER_ADDR is needed. MPI does not authenticate its ports.
ranks=$(wc -l < "$PBS_NODEFILE")
read -ra options <<< "$OPTIONS"
export OMP_NUM_THREADS=1
exec "$program" --ranks "$ranks" --restarts 5 --launch "mpirun --hostfile $PBS_NODEFILE -np {ranks} -x OMP_NUM_THREADS" \
  --output "$run" --checkpoint "$run/checkpoints" --every "${EVERY:-100}" --resume "${options[@]}"
