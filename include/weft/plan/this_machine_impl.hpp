// SPDX-License-Identifier: Apache-2.0
#pragma once
// The measurements on this computer, and the speeds that follow from them. Definitions for plan/this_machine.hpp.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <span>
#include <type_traits>
#include <vector>

#include <weft/comm/run_options.hpp>
#include <weft/comm/threads.hpp>
#include <weft/core/error.hpp>
#include <weft/core/inline.hpp>
#include <weft/device/parallel_for.hpp>
#include <weft/kernels/activation.hpp>
#include <weft/kernels/attention.hpp>
#include <weft/kernels/elementwise.hpp>
#include <weft/kernels/matmul.hpp>
#include <weft/plan/this_machine.hpp>
#include <weft/runtime/guard.hpp>

namespace weft::plan::detail {

/// Seconds of f() on a dedicated core: the median of its calls, with the same number of calls on all ranks. If ranks share cores
/// they interrupt each other; then the mean of all calls, divided by the ranks per core.
template <class F>
double seconds_of(World& world, double window_s, double ranks_per_core, const F& f) {
  using Clock = std::chrono::steady_clock;
  const auto passed = [](Clock::time_point since) { return std::chrono::duration<double>(Clock::now() - since).count(); };
  const auto once = [&] {
    const auto started = Clock::now();
    f();
    world.device().exec().fence();
    return passed(started);
  };
  once();
  std::vector<double> longest{once()};
  world.communicator().all_reduce(longest, Reduction::max);
  std::vector<double> times(std::size_t(std::clamp(window_s / std::max(1e-9, longest[0]), 3.0, 10000.0)));
  world.communicator().barrier();
  const auto started = Clock::now();
  for (double& time : times) time = once();
  const double all = passed(started);
  world.communicator().barrier();
  if (ranks_per_core > 1) return all / double(times.size()) / ranks_per_core;
  std::nth_element(times.begin(), times.begin() + std::ptrdiff_t(times.size() / 2), times.end());
  return times[times.size() / 2];
}

/// The measurements, in seconds. A product's time is the mean of a forward product and its two gradients.
enum Measured : std::size_t {
  square,    ///< side * side * side
  few_rows,  ///< a few rows instead of `side`
  few_columns,
  few_terms,
  cold_few_terms,  ///< with operands that are in no cache
  cold_large,      ///< large * large * large, the size in a step
  cold_large_16,   ///< the same in bfloat16; the third product, a weight gradient, in float
  in_double,       ///< `square` in double
  attention,       ///< forward
  attention_back,
  attention_16,  ///< the same in bfloat16
  attention_back_16,
  gelu,    ///< side * side elements
  stream,  ///< an addition of arrays larger than the caches
  launch,
  short_sum,  ///< all-reduce of one number
  long_sum,   ///< all-reduce of a stream array
  measured
};
constexpr std::size_t side = 256, few = 32, large = 512, array = std::size_t(1) << 22;
constexpr kernels::AttentionExtents attention_extents{.sequences = 8, .length = 128, .heads = 8, .kv_heads = 8, .head_width = 32};

/// Seconds of each measurement on this rank, while all ranks measure the same.
WEFT_COLD WEFT_INLINE std::vector<double> seconds_of_all(World& world, double ranks_per_core, float* a, float* b, float* c) {
  DefaultDevice& device = world.device();
  const auto seconds_of = [&](double window_s, const auto& f) { return detail::seconds_of(world, window_s, ranks_per_core, f); };
  std::vector<double> seconds(measured);
  // Earlier measurements leave denormal numbers, with which some processors are ten times slower.
  const auto renew = [&](float* x) { kernels::fill(device, array, x, 0.5f); };
  renew(a), renew(b), renew(c);
  const auto products = [&]<class T>(T*, std::size_t m, std::size_t n, std::size_t k, bool in_cache = true) {
    using kernels::Transpose;
    const std::size_t area = std::max({m * k, k * n, m * n}), places = in_cache ? 1 : array / area;
    std::size_t place = 0;
    const auto multiply = [&]<class C>(C*, Transpose left, Transpose right) {
      const std::size_t at = place++ % places * area;
      kernels::matmul(device, left, right, m, n, k, reinterpret_cast<const T*>(a) + at, left == Transpose::no ? k : m,
                      reinterpret_cast<const T*>(b) + at, right == Transpose::no ? n : k, reinterpret_cast<C*>(c) + at, n);
    };
    const auto same = static_cast<T*>(nullptr);
    const auto sums = static_cast<std::conditional_t<std::is_same_v<T, bfloat16>, float, T>*>(nullptr);
    return seconds_of(0.02,
                      [&] {
                        multiply(same, Transpose::no, Transpose::no);
                        multiply(same, Transpose::no, Transpose::yes);
                        multiply(sums, Transpose::yes, Transpose::no);
                      }) /
           3;
  };
  const auto in_float = static_cast<float*>(nullptr);
  seconds[square] = products(in_float, side, side, side);
  seconds[few_rows] = products(in_float, few, side, side);
  seconds[few_columns] = products(in_float, side, few, side);
  seconds[few_terms] = products(in_float, side, side, few);
  seconds[cold_few_terms] = products(in_float, side, side, few, false);
  seconds[cold_large] = products(in_float, large, large, large, false);
  seconds[cold_large_16] = products(static_cast<bfloat16*>(nullptr), large, large, large, false);
  seconds[in_double] = products(static_cast<double*>(nullptr), side, side, side);
  renew(c);
  const kernels::AttentionExtents& e = attention_extents;
  const std::size_t width = e.width(), part = e.rows() * width;
  const kernels::AttentionOperands<const float> in{a, a + width, a + 2 * width, 3 * width, 3 * width, 3 * width};
  const kernels::AttentionOperands<float> gradients{b, b + width, b + 2 * width, 3 * width, 3 * width, 3 * width};
  seconds[attention] = seconds_of(0.02, [&] { kernels::attention_forward<float>(device, e, in, {c, width}, c + part); });
  seconds[attention_back] = seconds_of(0.02, [&] {
    kernels::attention_backward<float>(device, e, in, {c, width}, {c + 2 * part, width}, c + part, gradients);
  });
  bfloat16 *const a16 = reinterpret_cast<bfloat16*>(a), *const b16 = reinterpret_cast<bfloat16*>(b),
                  *const c16 = reinterpret_cast<bfloat16*>(c);
  const kernels::AttentionOperands<const bfloat16> in_16{a16, a16 + width, a16 + 2 * width, 3 * width, 3 * width, 3 * width};
  seconds[attention_16] = seconds_of(0.02, [&] {
    kernels::attention_forward<bfloat16>(device, e, in_16, {c16, width}, c + part);
  });
  const kernels::AttentionOperands<bfloat16> gradients_16{b16, b16 + width, b16 + 2 * width, 3 * width, 3 * width, 3 * width};
  seconds[attention_back_16] = seconds_of(0.02, [&] {
    kernels::attention_backward<bfloat16>(device, e, in_16, {c16, width}, {c16 + 4 * part, width}, c + part, gradients_16);
  });
  const float *const left = a, *const right = b;
  seconds[gelu] = seconds_of(0.01, [&] { kernels::gelu_forward(device, side * side, left, c); });
  seconds[stream] = seconds_of(0.02, [&] { kernels::add(device, array, left, right, c); });
  seconds[launch] = seconds_of(0.01, [&] { kernels::scale(device, 16, 1.0f, left, c); });
  const Communicator& ranks = world.communicator();
  std::vector<float> one(1, 1.0f);
  seconds[short_sum] = seconds_of(0.01, [&] { ranks.all_reduce(one); });
  seconds[long_sum] = seconds_of(0.02, [&] { ranks.all_reduce(std::span(a, array), Reduction::average); });
  return seconds;
}

}  // namespace weft::plan::detail

namespace weft::plan {

WEFT_COLD WEFT_INLINE Machine this_machine(World& world) {
  using namespace detail;
  DefaultDevice& device = world.device();
  const Communicator& ranks = world.communicator();
  if (device.rehearsal() != nullptr)
    throw_error<UsageError>({"this_machine: a rehearsal computes nothing that could be measured: measure before it"});
  weft::detail::Buffer buffers[3];
  float* arrays[3];
  for (std::size_t i = 0; i < 3; ++i) {
    buffers[i] = device.allocate(array * sizeof(float));
    arrays[i] = static_cast<float*>(buffers[i].get());
  }
  Machine machine{.name = "this machine", .ranks_per_node = std::max(1, ranks.size())};
  constexpr bool on_host = weft::detail::on_host<DefaultDevice::execution_space>;
  if (on_host) machine.ranks_per_core = std::max(1.0, double(ranks.size() * device.threads()) / double(runtime::detail::cores()));
  // Other load varies, so each figure is the median of three measurements.
  std::vector<double> looks[3], seconds(measured);
  for (std::vector<double>& look : looks) look = seconds_of_all(world, machine.ranks_per_core, arrays[0], arrays[1], arrays[2]);
  for (std::size_t i = 0; i < measured; ++i)
    seconds[i] = std::max(std::min(looks[0][i], looks[1][i]), std::min(std::max(looks[0][i], looks[1][i]), looks[2][i]));
  ranks.all_reduce(seconds, Reduction::average);

  const double s = side, f = few, p = ranks.size(), flops = 2 * s * s * s, bytes = sizeof(float);
  // A speed with half-point h is speed * x / (x + h).
  const auto half = [&](double slow_s) {
    const double drop = (flops / seconds[square]) / (flops * f / s / slow_s);
    const double h = drop <= 1 ? 0 : (drop - 1) / (1 / f - drop / s);
    return h >= 0 && h <= 4 * s ? h : 4 * s;
  };
  machine.half_rows = half(seconds[few_rows]);
  machine.half_columns = half(seconds[few_columns]);
  machine.half_terms = half(seconds[few_terms]);
  machine.launch_s = seconds[launch];
  machine.memory_bandwidth = 3 * double(array) * bytes / seconds[stream];
  const double moving = machine.memory_s((s * s + 2 * s * f) * bytes);
  machine.hidden_bytes = std::clamp(1 - (seconds[cold_few_terms] - seconds[few_terms]) / moving, 0.0, 1.0);
  // A step's products are large, and their operands have left the cache, so the speed is that of cold operands.
  const double l = large;
  const auto speed = [&](double taken, double element) {
    const double visible = (1 - machine.hidden_bytes) * machine.memory_s(3 * l * l * element);
    return 2 * l * l * l / std::max(taken / 2, taken - visible - seconds[launch]) * (1 + machine.half_rows / l) *
           (1 + machine.half_columns / l) * (1 + machine.half_terms / l);
  };
  machine.flops_32 = speed(seconds[cold_large], sizeof(float));
  machine.flops_16 = speed(seconds[cold_large_16], sizeof(bfloat16));
  machine.flops_64 = machine.flops_32 * seconds[square] / seconds[in_double];
  const double pairs = 0.5 * double(attention_extents.length * attention_extents.rows() * attention_extents.width());
  machine.attention_share = 2 * 2 * pairs / seconds[attention] / machine.flops_32;
  machine.attention_backward_share = 2 * 5 * pairs / seconds[attention_back] / machine.flops_32;
  const double slower = machine.flops_32 / machine.flops_16;
  machine.attention_scale_16 = seconds[attention] / seconds[attention_16] * slower;
  machine.attention_backward_scale_16 = seconds[attention_back] / seconds[attention_back_16] * slower;
  machine.exponential_s = std::max(0.0, seconds[gelu] - seconds[launch]) / (s * s);
  machine.inside = {1e-6, machine.memory_bandwidth / 3};
  if (p > 1) {
    machine.inside.latency_s = seconds[short_sum] / (2 * std::ceil(std::log2(p)));
    machine.inside.bandwidth = 2 * (p - 1) / p * double(array) * bytes / std::max(1e-7, seconds[long_sum] - seconds[short_sum]);
  }
  machine.across = machine.inside;
  machine.hides_messages = !on_host;
  return machine;
}

namespace detail {

WEFT_COLD WEFT_INLINE Machine measured_together(int ranks) {
  Machine machine;
  comm::run_threads(ranks, [&](const Communicator& communicator) {
    const runtime::detail::RankInstance<DefaultDevice::execution_space> instance(communicator.rank(), ranks, 1);
    DefaultDevice device(instance.exec);
    World world(communicator, device);
    const Machine mine = this_machine(world);
    if (communicator.rank() == 0) machine = mine;
  });
  return machine;
}

WEFT_COLD WEFT_INLINE Machine machine_of(std::string_view name, int ranks) {
  if (name == "this") {
    const int cores = weft::detail::on_host<DefaultDevice::execution_space> ? runtime::detail::cores() : 1;
    Machine machine = measured_together(std::clamp(ranks, 1, std::min(cores, DefaultDevice::execution_space().concurrency())));
    machine.ranks_per_node = std::max(1, ranks);
    machine.ranks_per_core = std::max(1.0, double(ranks) / double(cores));
    return machine;
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
