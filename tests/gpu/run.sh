# SPDX-License-Identifier: Apache-2.0
# ./tests/run --gpu: kernels beside the host's, and small trainings, on one GPU. Sourced by tests/run; installs nothing.
. "$weft_source/cmake/gpu.sh"

gpu_programs "./tests/run --gpu" test_gpu_kernels=tests/gpu/kernels.cpp test_gpu_training=tests/gpu/training.cpp
status=0
for program in test_gpu_kernels test_gpu_training; do
  say "$program"
  "$weft_gpu/$program" || status=1
done
exit $status
