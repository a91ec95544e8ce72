# SPDX-License-Identifier: Apache-2.0
# ./tests/run --gpu: kernels beside the host's, and small trainings and calls in situ, on one GPU; NCCL's operations and the parity of 2 and 4 ranks over
# it (dense models and experts) on all, or on one that several processes share. Sourced by tests/run after cmake/gpu.sh; installs nothing.

gpu_programs "./tests/run --gpu" "${weft_gpu_tests[@]}"
status=0
for program in test_gpu_kernels test_gpu_training test_gpu_in_situ; do
  say "$program"
  "$weft_gpu/$program" || status=1
done
say "test_gpu_nccl"
WEFT_RANKS=$(nvidia-smi -L | grep -c '^GPU ') "$weft_gpu/test_gpu_nccl" || status=1
CUDA_VISIBLE_DEVICES=0 WEFT_SHARE_GPUS=1 "$weft_source/tests/support/torchrun" 2 "$weft_gpu/test_gpu_nccl" || status=1
say "test_gpu_aborts"
CUDA_VISIBLE_DEVICES=0 WEFT_SHARE_GPUS=1 WEFT_TIMEOUT_S=3 "$weft_source/tests/support/torchrun" 2 "$weft_gpu/test_gpu_aborts" || status=1
gpus=$(nvidia-smi -L | grep -c '^GPU ')
for ranks in 2 4; do
  share=0
  [ "$ranks" -le "$gpus" ] || share=1
  for program in test_gpu_parity test_gpu_parity_experts; do
    say "$program, $ranks ranks"
    WEFT_SHARE_GPUS=$share WEFT_TEST_PORT=$((29500 + ranks)) WEFT_TIMEOUT_S=120 "$weft_source/tests/support/torchrun" $ranks "$weft_gpu/$program" || status=1
  done
done
exit $status
