# SPDX-License-Identifier: Apache-2.0
# clang takes the headers and a whole training program in three wrappers, which instantiates the templates of the headers, without
# the code of Kokkos that its version 4 deprecates and version 5 no longer has.
. "$WEFT_SOURCE/tests/support/environment.sh"

clang=$(command -v clang++-14 || command -v clang++) || skip "clang is not installed"
# clang comes without omp.h; gcc's declares what Kokkos' header calls.
cp "$(g++ -print-file-name=include/omp.h)" "$scratch" 2>/dev/null
includes=(-I "$WEFT_SOURCE/include" -idirafter "$scratch")
IFS=: read -ra folders <<<"$WEFT_INCLUDES"
for folder in "${folders[@]}"; do
  config=$folder/KokkosCore_config.h
  if [ -e "$config" ] && [ ! -e "$scratch/kokkos" ]; then
    mkdir "$scratch/kokkos"
    grep -v "define KOKKOS_ENABLE_DEPRECATED_CODE_4" "$config" >"$scratch/kokkos/KokkosCore_config.h"
    includes+=(-isystem "$scratch/kokkos")
  fi
done
for folder in "${folders[@]}"; do [ "$folder" = "$WEFT_SOURCE/include" ] || includes+=(-isystem "$folder"); done
must "$clang" -std=c++20 -fopenmp -fsyntax-only -Wall -Wextra -Werror=return-type -DDEPTH=3 "${includes[@]}" "$WEFT_SOURCE/bench/compile_time/program.cpp"
