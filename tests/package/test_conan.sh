# SPDX-License-Identifier: Apache-2.0
# `conan create .` with the profile that Conan detects itself; test_package builds a program against the package and runs it.
# Once header-only, once with the library weft::compiled. Kokkos, oneDNN and MPI are the system's. Everything stays below the checkout's .deps.
. "$WEFT_SOURCE/tests/support/environment.sh"

conan=$WEFT_SOURCE/.deps/venv/bin/conan
[ -x "$conan" ] || skip "Conan is not installed (./tests/run does that)"
export CONAN_HOME=$WEFT_SOURCE/.deps/conan Kokkos_DIR
[ -e "$CONAN_HOME/profiles/default" ] || must "$conan" profile detect
for mode in header-only compiled; do
  compiled=False
  [ "$mode" = compiled ] && compiled=True
  "$conan" create "$WEFT_SOURCE" --no-remote -o "weft/*:compiled=$compiled" -c tools.cmake.cmaketoolchain:generator=Ninja \
    -c tools.cmake.cmake_layout:test_folder="$scratch/test_package_$mode" >"$scratch/log" 2>&1 || { cat "$scratch/log"; exit 1; }
  grep "weft $WEFT_VERSION $mode" "$scratch/log" || { cat "$scratch/log"; fail "test_package did not print weft's version and '$mode'"; }
done
