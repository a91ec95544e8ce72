# SPDX-License-Identifier: Apache-2.0
# What ./tests/run --gpu and ./bench/run gpu share. A machine with a GPU may be offline: programs are built where Kokkos, nvcc and
# oneDNN are, with the libraries that a GPU machine may lack beside them, and carried there with the checkout (build/gpu).

weft_gpu=$weft_source/build/gpu

# gpu_fail MESSAGE: one line, and the exit code that says that this machine cannot do it.
gpu_fail() {
  say "error: $*"
  exit 2
}

has_gpu() { command -v nvidia-smi >/dev/null && nvidia-smi -L 2>/dev/null | grep -q '^GPU '; }

# build_gpu PROGRAM SOURCE: by the compiler of the Kokkos in Kokkos_ROOT. The GPU's architecture is that of CUDAARCHS, else Hopper's.
build_gpu() {
  local root=$Kokkos_ROOT architecture=${CUDAARCHS:-90} toolkit nvcc library more=()
  case $1 in *_nccl) more=(-DWEFT_TEST_CONFORMANCE -lnccl) ;; *_parity* | *_aborts) more=(-lnccl) ;; esac
  nvcc=$(command -v nvcc || echo "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc")
  toolkit=$(cd "$(dirname "$(readlink -f "$nvcc")")/.." && pwd)
  mkdir -p "$weft_gpu"
  for library in "$root"/lib*/libkokkoscore.*; do [ -e "$library" ] && break; done
  logged "building $1 for a GPU" "$root/bin/nvcc_wrapper" -std=c++20 -O3 -arch="sm_${architecture%%[;-]*}" -expt-relaxed-constexpr -expt-extended-lambda -I"$weft_source/include" \
    -I"$weft_source" -I"$weft_source/tests" -I"$root/include" "$weft_source/$2" -o "$weft_gpu/$1" -L"$(dirname "$library")" -lkokkoscore "${more[@]}" -lcublasLt -lcudnn -lcudart -ldnnl -ldl -L"$toolkit/lib64/stubs" -lcuda \
    -L"$toolkit/lib64" -Xlinker -rpath -Xlinker "\$ORIGIN" -Xlinker -rpath -Xlinker "$toolkit/lib64"
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
