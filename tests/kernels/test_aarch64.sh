# SPDX-License-Identifier: Apache-2.0
# The tests of kernels on a 64-bit ARM processor, which QEMU imitates: the lanes of its registers, products by oneDNN, norms. The long
# form runs every test of tests/kernels.
. "$WEFT_SOURCE/tests/support/environment.sh"

arm=$WEFT_SOURCE/.deps/aarch64
for command in aarch64-linux-gnu-g++ qemu-aarch64; do
  command -v "$command" >/dev/null || skip "$command is not installed"
done
[ -e "$arm/kokkos" ] && [ -e "$arm/root" ] || skip "Kokkos and oneDNN for aarch64 are not in $arm: ./tests/run makes them"
onednn=$(find "$arm/root" -name libdnnl.so.2)
headers=$(mktemp -d -p "$scratch")  # oneDNN's are those of this machine; all others of its folder belong to another processor
for name in /usr/include/dnnl*.h /usr/include/oneapi /usr/include/doctest; do
  [ ! -e "$name" ] || ln -s "$name" "$headers"
done

names=(lanes matmul norm)
if [ -n "${WEFT_TEST_LONG:-}" ]; then
  names=()
  for source in "$WEFT_SOURCE"/tests/kernels/*.cpp; do names+=("$(basename "$source" .cpp)"); done
fi
compile() {
  aarch64-linux-gnu-g++ -std=c++20 -O1 -fopenmp -I "$WEFT_SOURCE" -I "$WEFT_SOURCE/include" -I "$WEFT_SOURCE/tests" -isystem "$arm/kokkos/include" -isystem "$headers" "$@"
}
must compile -c "$WEFT_SOURCE/tests/support/main.cpp" -o "$scratch/main.o"
for name in "${names[@]}"; do
  must compile "$WEFT_SOURCE/tests/kernels/$name.cpp" "$scratch/main.o" -o "$scratch/$name" -L "$arm/kokkos/lib" -lkokkoscore -lkokkoscontainers "$onednn"
  OMP_NUM_THREADS=2 OMP_PROC_BIND=false must qemu-aarch64 -L /usr/aarch64-linux-gnu -E "LD_LIBRARY_PATH=$(dirname "$onednn")" "$scratch/$name"
  rm "$scratch/$name"
done
