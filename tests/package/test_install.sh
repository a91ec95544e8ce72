# SPDX-License-Identifier: Apache-2.0
# Installed, moved to another folder, and found by find_package: twice, with its version and a component.
. "$WEFT_SOURCE/tests/support/environment.sh"

must cmake --install "$WEFT_BUILD" --prefix "$scratch/first" >"$scratch/log"
mv "$scratch/first" "$scratch/prefix"  # a package that remembers where it was installed would break here
[ -e "$scratch/prefix/include/weft/core/version.hpp" ] || fail "the headers were not installed"
others=$(find "$scratch/prefix" -type f -not -path '*/include/weft/*' -not -path '*/cmake/weft/*' -not -path '*/pkgconfig/weft*.pc' \
  -not -path '*/doc/weft/LICENSE' -not -name 'libweft_compiled*')
[ -z "$others" ] || fail "more than headers, the libraries, the licence and files for CMake and pkg-config is installed: $others"
if grep -rnI "$WEFT_SOURCE\|$scratch" "$scratch/prefix"; then fail "the installed files name a folder of this machine"; fi

# Kokkos by its prefix, as weft: that of a wheel from PyPI has it in lib64.
must env -u Kokkos_DIR -u Kokkos_ROOT cmake -S "$WEFT_SOURCE/tests/package/consumer" -B "$scratch/build" -G Ninja -DCMAKE_CXX_COMPILER="$WEFT_CXX" \
  -DCMAKE_PREFIX_PATH="$scratch/prefix;${Kokkos_DIR%/lib*/cmake/Kokkos}" -DWEFT_EXPECTED_VERSION="${WEFT_VERSION%.*}"
must cmake --build "$scratch/build"
must "$scratch/build/consumer" | grep "weft $WEFT_VERSION" || fail "the program did not print weft's version"
must "$scratch/build/consumer_mpi"
if grep -q WEFT_COMPILED:BOOL=ON "$WEFT_BUILD/CMakeCache.txt"; then
  must "$scratch/build/consumer_compiled" | grep "weft $WEFT_VERSION" || fail "the program with weft::compiled did not print weft's version"
  must "$scratch/build/consumer_compiled_mpi"
fi

cmake -S "$WEFT_SOURCE/tests/package/consumer" -B "$scratch/build" -DWEFT_EXPECTED_VERSION=99 >"$scratch/log" 2>&1 &&
  fail "version 99 was found"
printf 'cmake_minimum_required(VERSION 3.25)\nproject(loom LANGUAGES CXX)\nfind_package(weft REQUIRED COMPONENTS loom)\n' >"$scratch/CMakeLists.txt"
cmake -S "$scratch" -B "$scratch/loom" -DCMAKE_CXX_COMPILER="$WEFT_CXX" -DCMAKE_PREFIX_PATH="$scratch/prefix;${Kokkos_DIR%/lib*/cmake/Kokkos}" \
  >"$scratch/log" 2>&1 && fail "a component that does not exist was found"
tr '\n' ' ' <"$scratch/log" | tr -s ' ' | grep -qE "weft $WEFT_VERSION was installed without the component 'loom'; it has: .*mpi, .*tcp" ||
  { cat "$scratch/log"; fail "the error does not name the components that are there"; }
exit 0
