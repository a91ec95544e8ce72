# SPDX-License-Identifier: Apache-2.0
# Code that needs only the toolkit (cuBLASLt, cuDNN, CUB, graphs, pinned memory) compiles with nvcc, links with the real
# libraries, and runs without a GPU as far as it needs none.
. "$WEFT_SOURCE/tests/support/environment.sh"

nvcc=$(command -v nvcc || echo "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc")
[ -x "$nvcc" ] || skip "nvcc is not installed"
root=$(cd "$(dirname "$(readlink -f "$nvcc")")/.." && pwd)
[ -e "$root/include/cudnn.h" ] || skip "cuDNN is not installed beside the CUDA toolkit"
if nvidia-smi -L 2>/dev/null | grep -q GPU; then skip "this machine has a GPU: ./tests/run --gpu"; fi
architecture=${CUDAARCHS:-90}

must "$nvcc" -std=c++20 -O0 -arch="sm_${architecture%%[;-]*}" -Werror all-warnings -ccbin "$WEFT_CXX" -I "$WEFT_SOURCE/include" "$WEFT_SOURCE/tests/cuda/wrappers.cu" \
  -o "$scratch/wrappers" -lcublasLt -lcudnn -Xlinker -rpath="$root/lib64"
must "$scratch/wrappers"

# cuDNN loads a driver's library before it lists its engines: the toolkit's stub is enough.
stub=$root/lib64/stubs/libcuda.so
[ -e "$stub" ] || skip "the toolkit has no stand-in for the driver's library"
ln -s "$stub" "$scratch/libcuda.so.1"
must env LD_LIBRARY_PATH="$scratch${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" "$scratch/wrappers" attention
