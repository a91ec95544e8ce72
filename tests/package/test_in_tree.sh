# SPDX-License-Identifier: Apache-2.0
# weft inside of a tree that builds Kokkos, oneDNN and MPI itself: their targets are taken, and no package of theirs is looked for.
. "$WEFT_SOURCE/tests/support/environment.sh"

[ -n "${WEFT_MPIRUN_EXECUTABLE:-}" ] || skip "MPI is not here"
kokkos_library=$(dirname "$(dirname "$Kokkos_DIR")")
[ -e "$kokkos_library/libkokkoscore.so" ] || [ -e "$kokkos_library/libkokkoscore.a" ] || skip "libkokkoscore is not in $kokkos_library"
must cmake --install "$WEFT_BUILD" --prefix "$scratch/prefix" >"$scratch/log"
for as in package subdirectory; do
  options=(-S "$WEFT_SOURCE/tests/package/in_tree" -G Ninja -DCMAKE_CXX_COMPILER="$WEFT_CXX" -DWEFT_AS=$as -DWEFT_SOURCE="$WEFT_SOURCE"
    -DCMAKE_PREFIX_PATH="$scratch/prefix" -DKOKKOS_INCLUDES="${WEFT_INCLUDES//:/;}" -DKOKKOS_LIBRARY="$kokkos_library")
  must cmake -B "$scratch/$as" "${options[@]}"
  cmake -B "$scratch/old_$as" "${options[@]}" -DKOKKOS_VERSION=4.5.1 >"$scratch/log" 2>&1 && fail "$as: Kokkos 4.5.1 was taken"
  tr '\n' ' ' <"$scratch/log" | tr -s ' ' | grep -qF "has a target Kokkos::kokkos of Kokkos 4.5.1" || { cat "$scratch/log"; fail "$as: the error does not name Kokkos 4.5.1"; }
  must cmake --build "$scratch/$as" --target consumer
  must "$scratch/$as/consumer" | grep "weft $WEFT_VERSION" || fail "$as: the program did not print weft's version"
done
