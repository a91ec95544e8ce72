#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# cmake/kokkos_cuda.sh [PREFIX]: a Kokkos 4.7.0 for CUDA 13 into PREFIX (.deps/kokkos-cuda), for programs on GPUs and for the tests
# that compile them (cuda/test_programs.sh). Kokkos knows CUDA 13 from 4.7.1 on: two calls that CUDA 13 changed are put right here, and the older View is taken, for the new one has
# another size in nvcc's code than in the host compiler's. Takes two and a half minutes of a core, ten seconds of it where ccache knows the sources,
# and a network once. The architecture is that of CUDAARCHS, else Hopper's.
set -e
cd "$(dirname "${BASH_SOURCE[0]}")/.."
prefix=$(realpath -m "${1:-.deps/kokkos-cuda}")
[ -x "$prefix/bin/nvcc_wrapper" ] && exit 0
export PATH=$PATH:${CUDA_HOME:-/usr/local/cuda}/bin
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cmake/kokkos_source.sh "$scratch"
kokkos=$scratch/kokkos
if [ "$(nvcc --version | grep -o 'release [0-9]*' | cut -d' ' -f2)" -ge 13 ]; then
  sed -i 's/cudaGraphAddDependencies(graph, from, to, numDependencies)/cudaGraphAddDependencies(graph, from, to, nullptr, numDependencies)/
    s/return cudaMemPrefetchAsync(devPtr, count, dstDevice, m_stream);/const cudaMemLocation to{dstDevice == cudaCpuDeviceId ? cudaMemLocationTypeHost : cudaMemLocationTypeDevice, dstDevice == cudaCpuDeviceId ? 0 : dstDevice};\n    return cudaMemPrefetchAsync(devPtr, count, to, 0, m_stream);/' \
    "$kokkos/core/src/Cuda/Kokkos_Cuda_Instance.hpp"
fi
architecture=${CUDAARCHS:-90}
sed -i "s/^default_arch=.*/default_arch=\"sm_${architecture%%[;-]*}\"/" "$kokkos/bin/nvcc_wrapper"
case ${architecture%%[;-]*} in
  80) name=AMPERE80 ;; 86) name=AMPERE86 ;; 89) name=ADA89 ;; 90) name=HOPPER90 ;; 100) name=BLACKWELL100 ;;
  *) echo "kokkos_cuda.sh: no name is known for CUDAARCHS=$architecture" >&2; exit 2 ;;
esac
# With ccache, as in cmake/compiler_cache.cmake, and the folder's name, which is another every time, left out of all paths.
launcher=()
if command -v ccache >/dev/null; then
  export CCACHE_DEPEND=1 CCACHE_BASEDIR=$scratch CCACHE_NOHASHDIR=1 CCACHE_COMPILERCHECK="string:$(cat "$kokkos/bin/nvcc_wrapper" <(nvcc --version) | sha256sum)"
  launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
fi
cmake -S "$kokkos" -B "$scratch/build" "${launcher[@]}" -DCMAKE_CXX_COMPILER="$kokkos/bin/nvcc_wrapper" -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_STANDARD=20 \
  -DKokkos_ENABLE_CUDA=ON -DKokkos_ENABLE_OPENMP=ON -DKokkos_ENABLE_SERIAL=ON "-DKokkos_ARCH_$name=ON" -DKokkos_ENABLE_IMPL_VIEW_LEGACY=ON -DCMAKE_POSITION_INDEPENDENT_CODE=ON \
  -DCMAKE_INSTALL_PREFIX="$prefix" >"$scratch/log"
cmake --build "$scratch/build" --parallel "${WEFT_JOBS:-$(nproc)}" --target install >>"$scratch/log" || { tail -n 20 "$scratch/log" >&2; exit 1; }
echo "$prefix"
