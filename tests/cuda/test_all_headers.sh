# SPDX-License-Identifier: Apache-2.0
# Every header, and a whole composition, compiles as CUDA C++ with nvcc, in one translation unit with NCCL and CUB and with the Kokkos at hand, so that
# the CUDA backend finds no surprises. No GPU is needed, and the object is not run.
. "$WEFT_SOURCE/tests/support/environment.sh"

nvcc=$(command -v nvcc || echo "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc")
[ -x "$nvcc" ] || skip "nvcc is not installed"

includes=(-I "$WEFT_SOURCE/include" -I "$WEFT_SOURCE" -I "$WEFT_BUILD/tests")
IFS=: read -ra folders <<<"$WEFT_INCLUDES"
for folder in "${folders[@]}"; do includes+=(-isystem "$folder"); done
must "$nvcc" -x cu -std=c++20 -O0 --expt-relaxed-constexpr --expt-extended-lambda -ccbin "$WEFT_CXX" -Xcompiler -fopenmp "${includes[@]}" \
  -c "$WEFT_SOURCE/tests/cuda/all_headers.cu" -o "$scratch/all_headers.o"
