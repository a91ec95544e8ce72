# SPDX-License-Identifier: Apache-2.0
# weft inside of another project: no tests, no examples, no flags of the other project changed.
. "$WEFT_SOURCE/tests/support/environment.sh"

modes=ON
[ "${WEFT_TEST_LONG:-}" = 1 ] && modes="OFF ON"  # (test_include_path.sh is without the library in every run)
for compiled in $modes; do
  must cmake -S "$WEFT_SOURCE/tests/package/consumer" -B "$scratch/build$compiled" -G Ninja -DCMAKE_CXX_COMPILER="$WEFT_CXX" \
    -DWEFT_AS=subdirectory -DWEFT_COMPILED=$compiled -DWEFT_SOURCE="$WEFT_SOURCE" -DKokkos_DIR="$Kokkos_DIR"
  must cmake --build "$scratch/build$compiled"
  program=consumer
  [ $compiled = ON ] && program=consumer_compiled
  must "$scratch/build$compiled/$program" | grep "weft $WEFT_VERSION" || fail "the program did not print weft's version"
done
