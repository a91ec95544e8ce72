# SPDX-License-Identifier: Apache-2.0
# ./tests/run --gpu: kernels beside the host's, and small trainings, on one GPU; NCCL's operations on all, and on one that two processes share. Sourced by tests/run; installs nothing.
. "$weft_source/cmake/gpu.sh"

gpu_programs "./tests/run --gpu" test_gpu_kernels=tests/gpu/kernels.cpp test_gpu_training=tests/gpu/training.cpp test_gpu_nccl=tests/comm/programs/nccl.cpp
status=0
for program in test_gpu_kernels test_gpu_training; do
  say "$program"
  "$weft_gpu/$program" || status=1
done
say "test_gpu_nccl"
WEFT_RANKS=$(nvidia-smi -L | grep -c '^GPU ') "$weft_gpu/test_gpu_nccl" || status=1
CUDA_VISIBLE_DEVICES=0 WEFT_SHARE_GPUS=1 "$weft_source/tests/support/torchrun" 2 "$weft_gpu/test_gpu_nccl" || status=1
exit $status
