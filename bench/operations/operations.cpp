// SPDX-License-Identifier: Apache-2.0
// Operations of models of fields on one thread: the best time of each, in milliseconds, one line "NAME MILLISECONDS" each. The
// tensors are those of pytorch_operations.py.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdio>

#include <weft/operations/along_dim.hpp>
#include <weft/operations/arithmetic.hpp>
#include <weft/operations/comparisons.hpp>
#include <weft/operations/einsum.hpp>
#include <weft/operations/fourier.hpp>
#include <weft/operations/moves.hpp>
#include <weft/operations/sort.hpp>

using namespace weft;

template <class F>
void report(const char* name, F f) {
  using Clock = std::chrono::steady_clock;
  double best = 1e9;
  for (int round = 0; round < 30; ++round) {
    const auto start = Clock::now();
    const auto result = f();
    best = std::min(best, std::chrono::duration<double, std::milli>(Clock::now() - start).count());
  }
  std::printf("%s %.3f\n", name, best);
}

int main() {
  Kokkos::ScopeGuard guard;
  DefaultDevice device;
  using X = Tensor<float, DefaultDevice::execution_space>;
  X x(device, {8, 64, 64, 64}), gain(device, {64, 1, 1}), w(device, {64, 64}), rows(device, {2048, 1000});
  for (const X* tensor : {&x, &gain, &w, &rows})
    for (std::size_t i = 0; i < tensor->size(); ++i) tensor->data()[i] = float(std::sin(1.7 * double(i * i % 10007)) + 1.5);
  report("gain", [&] { return x * gain; });
  report("gain_gradient", [&] { return detail::sum_repeated<X>(gain.shape(), x); });
  report("cumsum", [&] { return cumsum<1>(rows); });
  report("sort", [&] { return sort<1>(rows).first; });
  report("topk", [&] { return topk<1>(rows, 10).first; });
  report("rfft2", [&] { return rfft<2, 3>(x); });
  report("einsum", [&] { return einsum<"bixy,io->boxy">(x, w); });
  report("pad", [&] { return pad<2, 3>(x, 1, 1, PaddingMode::periodic); });
  report("roll", [&] { return roll<2>(x, 5); });
  report("flip", [&] { return flip<3>(x); });
  report("less", [&] { return x < 1.0; });
}
