# SPDX-License-Identifier: Apache-2.0
# clang takes the headers and a whole training program in three wrappers, which instantiates the templates of the headers.
. "$WEFT_SOURCE/tests/support/environment.sh"

clang=$(command -v clang++-14 || command -v clang++) || skip "clang is not installed"
# clang comes without omp.h; gcc's declares what Kokkos' header calls.
cp "$(g++ -print-file-name=include/omp.h)" "$scratch" 2>/dev/null
includes=(-I "$WEFT_SOURCE/include" -idirafter "$scratch")
IFS=: read -ra folders <<<"$WEFT_INCLUDES"
for folder in "${folders[@]}"; do [ "$folder" = "$WEFT_SOURCE/include" ] || includes+=(-isystem "$folder"); done
must "$clang" -std=c++20 -fopenmp -fsyntax-only -Wall -Wextra -Werror=return-type -DDEPTH=3 "${includes[@]}" "$WEFT_SOURCE/bench/compile_time/program.cpp"
