# SPDX-License-Identifier: Apache-2.0
# The variables that CTest gives to a script (weft_script_test in tests/CMakeLists.txt), and functions for shell scripts. A
# script may also be started by hand after ./tests/run: then it takes the tree of ./tests/run.
#
#   WEFT_SOURCE    the checkout                    WEFT_BUILD     the build tree
#   WEFT_EXAMPLES  the folder of built examples    WEFT_MPIRUN    mpirun N PROGRAM..., also as root and with few cores
#   WEFT_CXX       the compiler                    WEFT_INCLUDES  folders of headers of Kokkos, oneDNN, MPI; `:` between them
#   Kokkos_DIR     CMake package of Kokkos         WEFT_VERSION   of CMakeLists.txt
#
# A script that cannot run on this machine prints the reason and ends with 77: CTest reports it as skipped.

set -u
if [ -z "${WEFT_SOURCE:-}" ]; then
  echo "started by hand: use ctest --test-dir build/release -R <name> -V" >&2
  exit 1
fi

skip() {
  echo "skipped: $*"
  exit 77
}
fail() {
  echo "failed: $*"
  exit 1
}
# must COMMAND...: it is printed, and the test ends if it fails.
must() {
  printf '+ %s\n' "$*"
  "$@" || fail "$1 returned $?"
}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
