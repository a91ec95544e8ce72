# SPDX-License-Identifier: Apache-2.0
# What ./tests/run --gpu and ./bench/run gpu share. A machine with a GPU may be offline: programs are built where Kokkos, nvcc and
# oneDNN are, with the libraries that a GPU machine may lack beside them, and carried there with the checkout (build/gpu).

weft_gpu=$weft_source/build/gpu

# gpu_fail MESSAGE: one line, and the exit code that says that this machine cannot do it.
gpu_fail() {
  say "error: $*"
  exit 2
}

# cuda_toolkit: sets weft_toolkit to the folder of the CUDA toolkit, that of nvcc; false without one.
cuda_toolkit() {
  local nvcc
  nvcc=$(command -v nvcc || echo "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc")
  [ -x "$nvcc" ] && weft_toolkit=$(cd "$(dirname "$(readlink -f "$nvcc")")/.." && pwd)
}

# toolkit_lacks: what a program for a GPU with every part of weft does not find here; nothing, if it finds all.
toolkit_lacks() {
  local header
  cuda_toolkit || { echo nvcc; return; }
  for header in cudnn.h nccl.h; do
    [ -e "$weft_toolkit/include/$header" ] || [ -e "/usr/include/$header" ] || echo "$header"
  done
}

# kokkos_for_cuda: makes the Kokkos that cuda/programs compiles against, where the toolkit is; where it is not, the test says so.
kokkos_for_cuda() {
  if [ -n "$(toolkit_lacks)" ] || [ -n "${Kokkos_CUDA_ROOT:-}" ] || [ -x "$weft_deps/kokkos-cuda/bin/nvcc_wrapper" ]; then return 0; fi
  logged "building Kokkos for CUDA" "$weft_source/cmake/kokkos_cuda.sh"
}

has_gpu() { command -v nvidia-smi >/dev/null && nvidia-smi -L 2>/dev/null | grep -q '^GPU '; }

# NAME=SOURCE of what ./tests/run --gpu and ./bench/run gpu build.
weft_gpu_tests=(test_gpu_kernels=tests/gpu/kernels.cpp test_gpu_training=tests/gpu/training.cpp test_gpu_nccl=tests/comm/programs/nccl.cpp
  test_gpu_in_situ=tests/gpu/in_situ.cpp test_gpu_aborts=tests/gpu/aborts.cpp test_gpu_parity=tests/gpu/parity.cpp
  test_gpu_parity_experts=tests/gpu/parity_experts.cpp)
weft_gpu_benchmarks=(bench_gpu_gpt2=bench/gpu/gpt2.cpp bench_gpu_kernels=bench/gpu/kernels.cpp)

# How far they are optimised: cuda/programs, which runs nothing, asks for less.
weft_gpu_optimisation=(-O3)

# build_gpu PROGRAM SOURCE: by nvcc, over the Kokkos in Kokkos_ROOT. The GPU's architecture is that of CUDAARCHS, else Hopper's. As in
# CMakeLists.txt, a kernel that calls a function of the host is an error, and ccache goes by included files alone.
build_gpu() {
  local root=$Kokkos_ROOT architecture=${CUDAARCHS:-90} library folder nvcc=() define=() nccl=() cache=()
  cuda_toolkit || gpu_fail "programs for a GPU need nvcc"
  case $1 in *_nccl | *_parity* | *_aborts) nccl=(-lnccl) ;; esac
  case $1 in *_nccl) define=(-DWEFT_TEST_CONFORMANCE) ;; esac
  command -v ccache >/dev/null && cache=(env CCACHE_DEPEND=1 CCACHE_BASEDIR="$weft_source" CCACHE_NOHASHDIR=1 ccache)
  nvcc=("$weft_toolkit/bin/nvcc" -ccbin g++ -arch="sm_${architecture%%[;-]*}" -Xcompiler -fopenmp)
  mkdir -p "$weft_gpu"
  logged "compiling $1 for a GPU" "${cache[@]}" "${nvcc[@]}" -x cu -std=c++20 "${weft_gpu_optimisation[@]}" -Werror cross-execution-space-call \
    --expt-relaxed-constexpr --expt-extended-lambda "${define[@]}" -I"$weft_source/include" -I"$weft_source" -I"$weft_source/tests" -I"$root/include" \
    -MD -MF "$weft_gpu/$1.d" -c "$weft_source/$2" -o "$weft_gpu/$1.o"
  for library in "$root"/lib*/libkokkoscore.*; do [ -e "$library" ] && break; done
  local libraries=(-L"$(dirname "$library")" -lkokkoscore "${nccl[@]}" -lcublasLt -lcudnn -lcudart -ldnnl -ldl)
  for folder in "\$ORIGIN" "$weft_toolkit/lib64"; do libraries+=(-Xlinker -rpath -Xlinker "$folder"); done
  logged "linking $1 for a GPU" "${nvcc[@]}" "$weft_gpu/$1.o" -o "$weft_gpu/$1" "${libraries[@]}" -L"$weft_toolkit/lib64/stubs" -lcuda -L"$weft_toolkit/lib64"
  rm -f "$weft_gpu/$1.o" "$weft_gpu/$1.d"
  # What the programs need beside the toolkit and the system's C library.
  ldd "$weft_gpu/$1" | awk '$1 ~ /^lib(dnnl|gomp|kokkos|nccl)/ && $3 ~ /^\// {print $3}' | while read -r library; do
    [ "$library" -ef "$weft_gpu/$(basename "$library")" ] || cp -uL "$library" "$weft_gpu/"  # an earlier build's copy is found first
  done
}

# gpu_programs WHAT PROGRAM=SOURCE...: builds them where a Kokkos for CUDA is, else takes what was carried here. With WEFT_GPU_BUILD=1
# that is all; otherwise there must be a GPU.
gpu_programs() {
  local what=$1 entry
  shift
  if [ "${WEFT_GPU_BUILD:-0}" != 1 ] && ! has_gpu; then gpu_fail "$what needs an NVIDIA GPU, and nvidia-smi lists none here (WEFT_GPU_BUILD=1 only builds, for a machine that has one)"; fi
  if [ -n "${Kokkos_ROOT:-}" ] && [ -x "$Kokkos_ROOT/bin/nvcc_wrapper" ]; then
    for entry in "$@"; do build_gpu "${entry%%=*}" "${entry#*=}"; done
  else
    for entry in "$@"; do
      [ -x "$weft_gpu/${entry%%=*}" ] || gpu_fail "$what needs a Kokkos built for CUDA in Kokkos_ROOT (with bin/nvcc_wrapper), or programs built by one in $weft_gpu"
    done
  fi
  if [ "${WEFT_GPU_BUILD:-0}" = 1 ]; then
    say "built in $weft_gpu: carry the checkout with it to a machine with a GPU"
    exit 0
  fi
}
