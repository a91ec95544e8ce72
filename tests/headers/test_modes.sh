# SPDX-License-Identifier: Apache-2.0
# A program of which one file is compiled with WEFT_COMPILED and one without does not link, and neither does one that was compiled for
# other vector registers than the library: two definitions of one function, or sums of another order, would go unnoticed.
# covers: weft/core/inline.hpp weft/kernels/compiled.hpp
. "$WEFT_SOURCE/tests/support/environment.sh"

compile() { must "$WEFT_CXX" -std=c++20 -I "$WEFT_SOURCE/include" "$@"; }
echo '#include <weft/core/inline.hpp>
int other();
int main() { return other(); }' >"$scratch/one.cpp"
echo '#include <weft/core/inline.hpp>
int other() { return 0; }' >"$scratch/two.cpp"
for file in one two; do
  compile -c "$scratch/$file.cpp" -o "$scratch/$file.header_only.o"
  compile -DWEFT_COMPILED -c "$scratch/$file.cpp" -o "$scratch/$file.compiled.o"
done
compile -DWEFT_COMPILED -c "$WEFT_SOURCE/src/mode.cpp" -o "$scratch/mode.o"

link() { "$WEFT_CXX" "$@" -o "$scratch/program" 2>"$scratch/log"; }
refused() {
  local wanted=$1
  shift
  link "$@" && fail "a program that must not link does: $*"
  grep "$wanted" "$scratch/log" || { cat "$scratch/log"; fail "the linker does not name $wanted"; }
}
must link "$scratch/one.header_only.o" "$scratch/two.header_only.o"
must "$scratch/program"
must link "$scratch/one.compiled.o" "$scratch/two.compiled.o" "$scratch/mode.o"
must "$scratch/program"
refused weft_with_and_without_WEFT_COMPILED "$scratch/one.compiled.o" "$scratch/two.header_only.o" "$scratch/mode.o"
refused weft_with_and_without_WEFT_COMPILED "$scratch/one.header_only.o" "$scratch/two.compiled.o" "$scratch/mode.o"
case "$(uname -m)" in
  x86_64)
    compile -mavx2 -DWEFT_COMPILED -c "$scratch/two.cpp" -o "$scratch/two.wider.o"
    refused weft_compiled_for_registers_of_32_bytes "$scratch/one.compiled.o" "$scratch/two.wider.o" "$scratch/mode.o" ;;
esac

IFS=: read -ra folders <<<"$WEFT_INCLUDES"
kokkos=(-fopenmp "${folders[@]/#/-isystem}")

# A group that is never created generates no code. A class whose first virtual function is declared without inline and defined with it makes
# g++ compile all its functions in each file that includes it.
echo '#include <weft/comm/tcp.hpp>
#include <weft/weft.hpp>
#if __has_include(<mpi.h>)
#include <weft/comm/mpi.hpp>
#endif' >"$scratch/unused.cpp"
compile "${kokkos[@]}" -c "$scratch/unused.cpp" -o "$scratch/unused.o"
nm -C "$scratch/unused.o" >"$scratch/symbols"
! grep "vtable for weft::comm::" "$scratch/symbols" || fail "a program that creates no group compiles the functions of these"

# With WEFT_COMPILED, a program takes the listed kernels from the library and compiles the others.
echo '#include <weft/kernels/activation.hpp>
#include <weft/kernels/compiled.hpp>
#include <weft/kernels/elementwise.hpp>
using Host = weft::Device<Kokkos::DefaultHostExecutionSpace>;
void both(Host& device, float* x, double* y) {
  weft::kernels::gelu_forward(device, 1, x, x);
  weft::kernels::gelu_forward(device, 1, y, y);
  weft::kernels::cast(device, 1, y, x);
}' >"$scratch/kernels.cpp"
compile -DWEFT_COMPILED "${kokkos[@]}" -c "$scratch/kernels.cpp" -o "$scratch/kernels.o"
nm -C "$scratch/kernels.o" >"$scratch/symbols"
for type in float double; do
  grep -q " U void weft::kernels::gelu_forward<$type," "$scratch/symbols" || fail "gelu_forward<$type> does not come from the library"
done
grep -q " W void weft::kernels::cast<double, float," "$scratch/symbols" || fail "cast<double, float> is not compiled"
