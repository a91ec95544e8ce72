# SPDX-License-Identifier: Apache-2.0
# weft by FetchContent, at a tag of this repository.
. "$WEFT_SOURCE/tests/support/environment.sh"

git -C "$WEFT_SOURCE" rev-parse HEAD >/dev/null 2>&1 || skip "this is no git repository"
must git clone -q --no-checkout "$WEFT_SOURCE" "$scratch/weft.git"
must git -C "$scratch/weft.git" tag v"$WEFT_VERSION" "$(git -C "$WEFT_SOURCE" rev-parse HEAD)"
mkdir "$scratch/source"
cat >"$scratch/source/CMakeLists.txt" <<TEXT
cmake_minimum_required(VERSION 3.25)
project(mine LANGUAGES CXX)
include(FetchContent)
FetchContent_Declare(weft GIT_REPOSITORY file://$scratch/weft.git GIT_TAG v$WEFT_VERSION GIT_SHALLOW ON)
FetchContent_MakeAvailable(weft)
add_executable(consumer $WEFT_SOURCE/tests/package/consumer/main.cpp)
target_link_libraries(consumer PRIVATE weft::weft)
TEXT
must cmake -S "$scratch/source" -B "$scratch/build" -G Ninja -DCMAKE_CXX_COMPILER="$WEFT_CXX" -DKokkos_DIR="$Kokkos_DIR"
must cmake --build "$scratch/build" --target consumer
must "$scratch/build/consumer" | grep "weft $WEFT_VERSION" || fail "the program did not print weft's version"
