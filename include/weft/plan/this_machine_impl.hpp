// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for plan/this_machine.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include <weft/core/error.hpp>
#include <weft/core/inline.hpp>
#include <weft/kernels/attention.hpp>
#include <weft/kernels/elementwise.hpp>
#include <weft/kernels/matmul.hpp>
#include <weft/plan/this_machine.hpp>

namespace weft::plan::detail {

/// Seconds of f(): the median of its calls, on all ranks as often.
template <class F>
double seconds_of(World& world, double window_s, const F& f) {
  using Clock = std::chrono::steady_clock;
  const auto once = [&] {
    const auto started = Clock::now();
    f();
    world.device().exec().fence();
    return std::chrono::duration<double>(Clock::now() - started).count();
  };
  once();
  std::vector<double> longest{once()};
  world.communicator().all_reduce(longest, Reduction::max);
  std::vector<double> times(std::size_t(std::clamp(window_s / std::max(1e-9, longest[0]), 3.0, 10000.0)));
  world.communicator().barrier();
  for (double& time : times) time = once();
  world.communicator().barrier();
  std::nth_element(times.begin(), times.begin() + std::ptrdiff_t(times.size() / 2), times.end());
  return times[times.size() / 2];
}

}  // namespace weft::plan::detail

namespace weft::plan {

WEFT_COLD WEFT_INLINE Machine this_machine(World& world) {
  DefaultDevice& device = world.device();
  const Communicator& ranks = world.communicator();
  if (device.rehearsal() != nullptr)
    throw_error<UsageError>({"this_machine: a rehearsal computes nothing that could be measured: measure before it"});
  constexpr std::size_t n = 256, few = 32, long_n = std::size_t(1) << 22, heads = 4, width = 32, length = 128;
  weft::detail::Buffer buffers[3];
  for (weft::detail::Buffer& buffer : buffers) {
    buffer = device.allocate(long_n * sizeof(float));
    kernels::fill(device, long_n, static_cast<float*>(buffer.get()), 0.5f);
  }
  float *const a = static_cast<float*>(buffers[0].get()), *const b = static_cast<float*>(buffers[1].get()),
               *const c = static_cast<float*>(buffers[2].get());
  const auto rate = [&](std::size_t m, std::size_t columns, std::size_t k, bool in_double = false) {
    const auto multiply = [&]<class T>(T*) {
      kernels::matmul(device, kernels::Transpose::no, kernels::Transpose::no, m, columns, k, reinterpret_cast<const T*>(a), k,
                      reinterpret_cast<const T*>(b), columns, reinterpret_cast<T*>(c), columns);
    };
    const double seconds = detail::seconds_of(
        world, 0.06, [&] { in_double ? multiply(static_cast<double*>(nullptr)) : multiply(static_cast<float*>(nullptr)); });
    return 2.0 * double(m) * double(columns) * double(k) / seconds;
  };
  const double square = rate(n, n, n), low = rate(few, n, n), narrow = rate(n, few, n), flat = rate(n, n, few),
               wide = rate(n, n, n, true);
  const double launch =
      detail::seconds_of(world, 0.02, [&] { kernels::scale(device, 16, 1.0f, static_cast<const float*>(a), c); });
  const double stream = detail::seconds_of(
      world, 0.05, [&] { kernels::add(device, long_n, static_cast<const float*>(a), static_cast<const float*>(b), c); });
  const kernels::AttentionExtents extents{
      .sequences = 1, .length = length, .heads = heads, .kv_heads = heads, .head_width = width};
  const std::size_t row = heads * width, part = length * row;
  const kernels::AttentionOperands<const float> in{a, a + part, a + 2 * part, row, row, row};
  const kernels::AttentionOperands<float> gradients{b, b + part, b + 2 * part, row, row, row};
  const double pairs = 0.5 * heads * double(length * length) * width;
  const double attention = detail::seconds_of(world, 0.04, [&] {
    kernels::attention_forward<float>(device, extents, in, {c, row}, c + part);
  });
  const double attention_back = detail::seconds_of(world, 0.04, [&] {
    kernels::attention_backward<float>(device, extents, in, {c, row}, {c + 2 * part, row}, c + part, gradients);
  });
  std::vector<float> one(1, 1.0f), many(std::size_t(1) << 18, 1.0f);
  const double short_sum = detail::seconds_of(world, 0.02, [&] { ranks.all_reduce(one); });
  const double long_sum = detail::seconds_of(world, 0.04, [&] { ranks.all_reduce(many); });
  std::vector<double> figures{square, low, narrow, flat, wide, launch, stream, attention, attention_back, short_sum, long_sum};
  ranks.all_reduce(figures, Reduction::average);
  // A speed that halves at h is speed * x / (x + h).
  const auto half = [&](double slow) {
    const double drop = figures[0] / slow;
    return drop <= 1 ? 0.0 : (drop - 1) / (1.0 / double(few) - drop / double(n));
  };
  Machine machine{.name = "this machine", .ranks_per_node = std::max(1, ranks.size())};
  machine.half_rows = half(figures[1]), machine.half_columns = half(figures[2]), machine.half_terms = half(figures[3]);
  double most = figures[0];
  for (double* const h : {&machine.half_rows, &machine.half_columns, &machine.half_terms}) {
    if (!(*h >= 0) || *h > 4 * n) *h = 4 * n;
    most *= 1 + *h / n;
  }
  machine.flops_32 = machine.flops_16 = most;
  machine.flops_64 = most * figures[4] / figures[0];
  machine.launch_s = figures[5];
  machine.memory_bandwidth = 3.0 * double(long_n) * sizeof(float) / figures[6];
  machine.attention_share = 2 * 2 * pairs / figures[7] / machine.flops_32;
  machine.attention_backward_share = 2 * 5 * pairs / figures[8] / machine.flops_32;
  const double p = ranks.size();
  machine.inside = {1e-6, machine.memory_bandwidth / 3};
  if (p > 1) {
    machine.inside.latency_s = figures[9] / (2 * std::ceil(std::log2(p)));
    machine.inside.bandwidth = 2 * (p - 1) / p * double(many.size() * sizeof(float)) / std::max(1e-7, figures[10] - figures[9]);
  }
  machine.across = machine.inside;
  return machine;
}

namespace detail {

WEFT_COLD WEFT_INLINE Machine machine_of(std::string_view name) {
  if (name == "this") {
    World alone{Communicator()};
    return this_machine(alone);
  }
  if (name.ends_with(".json")) {
    if (machine_from_file != nullptr) return machine_from_file(name);
    throw_error<UsageError>(
        {"machine '", name, "': this program reads no files of machines: it must include weft/plan/machine_file.hpp"});
  }
  return known_machine(name);
}

}  // namespace detail

}  // namespace weft::plan
