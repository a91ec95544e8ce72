# SPDX-License-Identifier: Apache-2.0
# What is under KOKKOS_ENABLE_CUDA compiles and links: the trainer's main with every backend of ranks that the machine has, and the
# programs of ./tests/run --gpu that hold most of it. Needs a Kokkos for CUDA: cmake/kokkos_cuda.sh, or Kokkos_CUDA_ROOT. Nothing is run.
. "$WEFT_SOURCE/tests/support/environment.sh"

root=${Kokkos_CUDA_ROOT:-$WEFT_SOURCE/.deps/kokkos-cuda}
[ -x "$root/bin/nvcc_wrapper" ] || skip "there is no Kokkos for CUDA in $root (cmake/kokkos_cuda.sh makes one)"
nvcc=$(command -v nvcc || echo "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc")
[ -x "$nvcc" ] || skip "nvcc is not installed"
toolkit=$(cd "$(dirname "$(readlink -f "$nvcc")")/.." && pwd)
[ -e "$toolkit/include/cudnn.h" ] || skip "cuDNN is not installed beside the CUDA toolkit"

flags=(-std=c++20 -O0 -expt-relaxed-constexpr -expt-extended-lambda -fopenmp -I"$WEFT_SOURCE/include" -I"$WEFT_SOURCE" -I"$WEFT_SOURCE/tests"
  -I"$root/include" -I"$WEFT_SOURCE/examples/04_train_gpt")
# Gloo's headers, where they are: Debian's lack one, which lies in compat.
[ -e /usr/include/gloo/transport/tcp/device.h ] && flags+=(-I"$WEFT_SOURCE/include/weft/comm/gloo/compat")
PATH=$(dirname "$nvcc"):$PATH
# Not as an option: nvcc_wrapper takes no quotation marks.
printf '#define WEFT_SOURCE_FOLDER "%s"\n#include "examples/04_train_gpt/main.cpp"\n' "$WEFT_SOURCE" >"$scratch/main.cpp"
must "$root/bin/nvcc_wrapper" "${flags[@]}" -c "$scratch/main.cpp" -o "$scratch/main.o"
libraries=$(ls -d "$root"/lib*/libkokkoscore.* | head -n 1)
for program in tests/gpu/kernels.cpp bench/gpu/gpt2.cpp bench/gpu/kernels.cpp; do
  must "$root/bin/nvcc_wrapper" "${flags[@]}" "$WEFT_SOURCE/$program" -o "$scratch/program" -L"$(dirname "$libraries")" -lkokkoscore -lcublasLt -lcudnn -lcudart \
    -ldnnl -ldl -L"$toolkit/lib64/stubs" -lcuda -L"$toolkit/lib64"
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
must "$root/bin/nvcc_wrapper" "${flags[@]}" "$scratch/view.cpp" -o "$scratch/view" -L"$(dirname "$libraries")" -lkokkoscore -lcudart -ldl -L"$toolkit/lib64/stubs" -lcuda -L"$toolkit/lib64"
must "$nvcc" -x cu -std=c++20 -Xcompiler -fopenmp --expt-relaxed-constexpr --expt-extended-lambda -I"$root/include" -ptx "$scratch/view.cpp" -o "$scratch/view.ptx"
ln -sf "$toolkit/lib64/stubs/libcuda.so" "$scratch/libcuda.so.1"
size=$(LD_LIBRARY_PATH=$scratch:$toolkit/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} "$scratch/view") || fail "view returned $?"
grep -q "4Body.*_param_0\[$size\]" "$scratch/view.ptx" || fail "a kernel with a View has $size bytes on the host, and others in $(grep -o '4Body.*_param_0\[[0-9]*\]' "$scratch/view.ptx" | head -n 1)"
