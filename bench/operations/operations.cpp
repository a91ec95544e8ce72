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
#include <weft/operations/convolution.hpp>
#include <weft/operations/einsum.hpp>
#include <weft/operations/fourier.hpp>
#include <weft/operations/functions.hpp>
#include <weft/operations/index_select.hpp>
#include <weft/operations/moves.hpp>
#include <weft/operations/pooling.hpp>
#include <weft/operations/segments.hpp>
#include <weft/operations/sort.hpp>
#include <weft/operations/special_functions.hpp>
#include <weft/operations/upsample.hpp>

using namespace weft;

using X = Tensor<float, DefaultDevice::execution_space>;

/// Convolutions, forward and the gradients of the first one, pooling and enlargement of images, lines and volumes.
void report_windows(DefaultDevice& device, const X& x);
/// Functions of elements, and sums over the ids of rows.
void report_elements(DefaultDevice& device, const X& x);

X filled(DefaultDevice& device, const Shape& shape) {
  X tensor(device, shape);
  for (std::size_t i = 0; i < tensor.size(); ++i) tensor.data()[i] = float(std::sin(1.7 * double(i * i % 10007)) + 1.5);
  return tensor;
}
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
  const X x = filled(device, {8, 64, 64, 64}), gain = filled(device, {64, 1, 1}), w = filled(device, {64, 64}),
          rows = filled(device, {2048, 1000});
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
  report("fft", [&] { return fft<2>(reshape(x, {8, 64, 64, 32, 2})); });
  report_windows(device, x);
  report_elements(device, x);
}

void report_windows(DefaultDevice& device, const X& x) {
  const X w = filled(device, {64, 64, 3, 3}), grouped = filled(device, {64, 16, 3, 3}), each = filled(device, {64, 1, 3, 3}),
          up = filled(device, {64, 32, 4, 4}), line = filled(device, {8, 64, 4096}), of_line = filled(device, {64, 64, 3}),
          volume = filled(device, {2, 16, 32, 32, 32}), of_volume = filled(device, {16, 16, 3, 3, 3});
  report("conv2d", [&] { return conv2d(x, w, {.padding = 1}); });
  report("conv2d_input", [&] { return conv2d_input_gradient(x, w, x, {.padding = 1}); });
  report("conv2d_weight", [&] { return conv2d_weight_gradient(x, w, x, {.padding = 1}); });
  report("strided", [&] { return conv2d(x, w, {.stride = 2, .padding = 1}); });
  report("dilated", [&] { return conv2d(x, w, {.padding = 2, .dilation = 2}); });
  report("grouped", [&] { return conv2d(x, grouped, {.padding = 1, .groups = 4}); });
  report("depthwise", [&] { return depthwise_conv2d(x, each, {.padding = 1}); });
  report("transposed", [&] { return conv_transpose2d(x, up, {.stride = 2, .padding = 1}); });
  report("conv1d", [&] { return conv1d(line, of_line, {.padding = 1}); });
  report("conv3d", [&] { return conv3d(volume, of_volume, {.padding = 1}); });
  report("max_pool2d", [&] { return max_pool2d(x, {.kernel = 3, .stride = 2, .padding = 1}); });
  report("avg_pool2d", [&] { return avg_pool2d(x, {.kernel = 2}); });
  report("nearest", [&] { return upsample(x, {.factor = 2}); });
  report("linear", [&] { return upsample(x, {.factor = 2, .mode = UpsampleMode::linear}); });
}

void report_elements(DefaultDevice& device, const X& x) {
  constexpr std::size_t edges = 100000, nodes = 20000, width = 64;
  const X messages = filled(device, {edges, width}), states = filled(device, {nodes, width});
  const Tensor<std::int32_t, DefaultDevice::execution_space> ids(device, {edges});
  for (std::size_t i = 0; i < edges; ++i) ids.data()[i] = std::int32_t(i * 7919 % nodes);
  report("sin", [&] { return sin(x); });
  report("erf", [&] { return erf(x); });
  report("softplus", [&] { return softplus(x); });
  report("elu", [&] { return elu(x); });
  report("mish", [&] { return mish(x); });
  report("index_select", [&] { return index_select(states, ids); });
  report("scatter_add", [&] { return scatter_add(messages, ids, nodes); });
  report("segment_mean", [&] { return segment_mean(messages, ids, nodes); });
}
