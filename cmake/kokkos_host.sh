#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# cmake/kokkos_host.sh PREFIX [options of CMake]: a Kokkos 4.7.0 with OpenMP into PREFIX, for processors for which no wheel is made. The
# options choose another compiler or processor: -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++ -DCMAKE_SYSTEM_NAME=Linux
# -DCMAKE_SYSTEM_PROCESSOR=aarch64. Takes two minutes of a core, and a network once.
set -e
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
prefix=$(realpath -m "$1")
shift
[ -n "$(find "$prefix" -name KokkosConfig.cmake 2>/dev/null)" ] && exit 0
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"$here/kokkos_source.sh" "$scratch"
cmake -S "$scratch/kokkos" -B "$scratch/build" -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_STANDARD=20 -DKokkos_ENABLE_OPENMP=ON -DKokkos_ENABLE_SERIAL=ON \
  -DCMAKE_POSITION_INDEPENDENT_CODE=ON -DCMAKE_INSTALL_PREFIX="$prefix" "$@"
cmake --build "$scratch/build" --parallel "${WEFT_JOBS:-$(nproc)}" --target install
