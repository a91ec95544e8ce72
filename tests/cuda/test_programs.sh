# SPDX-License-Identifier: Apache-2.0
# Code under KOKKOS_ENABLE_CUDA compiles and links: the trainer, as `cmake --preset cuda` builds it, with every backend of ranks that the machine has, and
# the programs of ./tests/run --gpu and ./bench/run gpu by their own commands. Nothing is optimised, and none of it is run. The kernels' program
# is built every time, and a quarter of the others; the commit decides which quarter. WEFT_TEST_LONG=1 builds all.
# Needs a Kokkos for CUDA, which ./tests/run makes where the toolkit is, or Kokkos_CUDA_ROOT.
. "$WEFT_SOURCE/cmake/setup.sh"
. "$WEFT_SOURCE/cmake/gpu.sh"
. "$WEFT_SOURCE/tests/support/environment.sh"

lacks=$(toolkit_lacks)
[ -z "$lacks" ] || skip "not found in the CUDA toolkit or beside it: ${lacks//$'\n'/, }"
cuda_toolkit
root=${Kokkos_CUDA_ROOT:-$WEFT_SOURCE/.deps/kokkos-cuda}
[ -x "$root/bin/nvcc_wrapper" ] || skip "there is no Kokkos for CUDA in $root (cmake/kokkos_cuda.sh makes one)"
unset Kokkos_DIR  # the host's
export Kokkos_ROOT=$root PATH=$PATH:$weft_toolkit/bin

# nvcc's option for device code that is never run; older toolkits spend the time. nvcc_wrapper takes it for the one -O that
# there may be, so the host's compiler has none.
fast=-O0
"$weft_toolkit/bin/nvcc" --help | grep -q -e --Ofast-compile && fast=-Ofc=max

cd "$WEFT_SOURCE" || exit 1
weft_gpu=$WEFT_BUILD/cuda/gpu
weft_gpu_optimisation=("$fast")
mapfile -t programs < <(python3 "$WEFT_SOURCE/tests/support/share.py" 4 trainer "${weft_gpu_tests[@]:1}" "${weft_gpu_benchmarks[@]}")
for program in "${weft_gpu_tests[0]}" "${programs[@]}"; do
  say "$program"
  if [ "$program" = trainer ]; then
    must cmake --preset cuda -B "$WEFT_BUILD/cuda" -DCMAKE_BUILD_TYPE=Debug "-DCMAKE_CXX_FLAGS_DEBUG=$fast"
    must cmake --build "$WEFT_BUILD/cuda" --parallel 1 --target 04_train_gpt
  else
    build_gpu "${program%%=*}" "${program#*=}"
  fi
done

# A View is as large to the host's compiler as to nvcc's kernels: the new View of Kokkos 4.7.0 is not, and kernels then read what is beside it.
cat >"$scratch/view.cpp" <<'TEXT'
#include <Kokkos_Core.hpp>
#include <cstdio>
struct Body {
  Kokkos::View<double*, Kokkos::Cuda, Kokkos::MemoryUnmanaged> view;
  KOKKOS_FUNCTION void operator()(int i) const { view(i) = 3; }
};
using Policy = Kokkos::RangePolicy<Kokkos::Cuda>;
int main(int argc, char**) {
  if (argc > 1) Kokkos::parallel_for("weft", Policy(0, 10), Body{});
  std::printf("%zu\n", sizeof(Kokkos::Impl::ParallelFor<Body, Policy>));
}
TEXT
flags=(-std=c++20 -O0 --expt-relaxed-constexpr --expt-extended-lambda -I"$root/include")
libraries=$(ls -d "$root"/lib*/libkokkoscore.* | head -n 1)
must "$root/bin/nvcc_wrapper" "${flags[@]}" -fopenmp "$scratch/view.cpp" -o "$scratch/view" -L"$(dirname "$libraries")" -lkokkoscore -lcudart -ldl \
  -L"$weft_toolkit/lib64/stubs" -lcuda -L"$weft_toolkit/lib64"
must "$weft_toolkit/bin/nvcc" -x cu "${flags[@]}" -Xcompiler -fopenmp -ptx "$scratch/view.cpp" -o "$scratch/view.ptx"
ln -sf "$weft_toolkit/lib64/stubs/libcuda.so" "$scratch/libcuda.so.1"
size=$(LD_LIBRARY_PATH=$scratch:$weft_toolkit/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} "$scratch/view") || fail "view returned $?"
grep -q "4Body.*_param_0\[$size\]" "$scratch/view.ptx" || fail "a kernel with a View has $size bytes on the host, and others in $(grep -o '4Body.*_param_0\[[0-9]*\]' "$scratch/view.ptx" | head -n 1)"
