# SPDX-License-Identifier: Apache-2.0
# What is under KOKKOS_ENABLE_CUDA compiles and links: the trainer's main with every backend of ranks that the machine has, and the
# programs of ./tests/run --gpu that hold most of it. Needs a Kokkos for CUDA: cmake/kokkos_cuda.sh, or Kokkos_CUDA_ROOT. Nothing is run.
. "$WEFT_SOURCE/tests/support/environment.sh"

root=${Kokkos_CUDA_ROOT:-$WEFT_SOURCE/.deps/kokkos-cuda}
[ -x "$root/bin/nvcc_wrapper" ] || skip "there is no Kokkos for CUDA in $root (cmake/kokkos_cuda.sh makes one)"
nvcc=$(command -v nvcc || echo "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc")
[ -x "$nvcc" ] || skip "nvcc is not installed"
toolkit=$(cd "$(dirname "$(readlink -f "$nvcc")")/.." && pwd)
[ -e "$toolkit/include/cudnn.h" ] || skip "cuDNN is not installed beside the CUDA toolkit"

flags=(-std=c++20 -O0 -expt-relaxed-constexpr -expt-extended-lambda -fopenmp -I "$WEFT_SOURCE/include" -I "$WEFT_SOURCE" -I "$WEFT_SOURCE/tests"
  -I "$root/include" -I "$WEFT_SOURCE/examples/04_train_gpt" "-DWEFT_SOURCE_FOLDER=\"$WEFT_SOURCE\"")
# Gloo's headers, where they are: Debian's lack one, which lies in compat.
[ -e /usr/include/gloo/transport/tcp/device.h ] && flags+=(-I "$WEFT_SOURCE/include/weft/comm/gloo/compat")
PATH=$(dirname "$nvcc"):$PATH
must "$root/bin/nvcc_wrapper" "${flags[@]}" -c "$WEFT_SOURCE/examples/04_train_gpt/main.cpp" -o "$scratch/main.o"
libraries=$(ls -d "$root"/lib*/libkokkoscore.* | head -n 1)
for program in tests/gpu/kernels.cpp bench/gpu/gpt2.cpp; do
  must "$root/bin/nvcc_wrapper" "${flags[@]}" "$WEFT_SOURCE/$program" -o "$scratch/program" -L"$(dirname "$libraries")" -lkokkoscore -lcublasLt -lcudnn -lcudart \
    -ldnnl -ldl -L"$toolkit/lib64/stubs" -lcuda -L"$toolkit/lib64"
done
