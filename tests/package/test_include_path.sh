# SPDX-License-Identifier: Apache-2.0
# No build system at all: weft is a folder on the include path.
. "$WEFT_SOURCE/tests/support/environment.sh"

kokkos_library=$(dirname "$(dirname "$Kokkos_DIR")")
[ -e "$kokkos_library/libkokkoscore.so" ] || [ -e "$kokkos_library/libkokkoscore.a" ] || skip "libkokkoscore is not in $kokkos_library"
includes=()
IFS=: read -ra folders <<<"$WEFT_INCLUDES"
for folder in "${folders[@]}"; do [ "$folder" = "$WEFT_SOURCE/include" ] || includes+=(-isystem "$folder"); done
must "$WEFT_CXX" -std=c++20 -O1 -fopenmp -I "$WEFT_SOURCE/include" "${includes[@]}" "$WEFT_SOURCE/tests/package/consumer/main.cpp" \
  -L "$kokkos_library" -Wl,-rpath,"$kokkos_library" -lkokkoscore -ldnnl -ldl -o "$scratch/consumer"
must "$scratch/consumer" | grep "weft $WEFT_VERSION" || fail "the program did not print weft's version"
