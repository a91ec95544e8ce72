// SPDX-License-Identifier: Apache-2.0
// The memory-bound kernels at the shapes of a GPT-2 124M step: the bytes that each declares (a rehearsal notes them), its time,
// and its fraction of the speed of a large copy on the same device. Prints JSON, one line per kernel.
//
//   bench_gpu_kernels [TOKENS] [LEAST]      LEAST: fails if a kernel has a smaller fraction, for example 0.5
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include <weft/kernels/activation.hpp>
#include <weft/kernels/cross_entropy.hpp>
#include <weft/kernels/elementwise.hpp>
#include <weft/kernels/embedding.hpp>
#include <weft/kernels/norm.hpp>
#include <weft/kernels/optimizer.hpp>
#include <weft/kernels/random.hpp>
#include <weft/runtime/run.hpp>
#include <weft/tensor/transfer.hpp>

using namespace weft;

namespace {

using Exec = Kokkos::DefaultExecutionSpace;
using T = bfloat16;
using A = float;
using Body = std::function<void(Device<Exec>&)>;

/// The arrays of all kernels, larger than the caches.
struct Arrays {
  Device<Exec>* device;
  template <class X>
  X* make(std::size_t n) {
    const std::size_t words = (n * sizeof(X) + sizeof(float) - 1) / sizeof(float);
    kept.push_back(device->allocate(words * sizeof(float)));
    kernels::fill<float>(*device, words, static_cast<float*>(kept.back().get()), 0.f);
    return static_cast<X*>(kept.back().get());
  }
  std::vector<Device<Exec>::Buffer> kept;
};

/// The bytes declared by a kernel's launches.
double bytes_of(const Body& body) {
  Device<Exec> aside;
  Rehearsal notes;
  aside.rehearse(notes);
  body(aside);
  return notes.kernel_bytes;
}

/// The median time, in seconds, of one of ten consecutive calls.
double seconds_of(Device<Exec>& device, const Body& body) {
  constexpr int calls = 10;
  std::vector<double> times;
  for (int round = -1; round < 9; ++round) {  // the first is a warm-up
    device.exec().fence("bench: before kernels");
    const auto started = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) body(device);
    device.exec().fence("bench: kernels");
    if (round >= 0) times.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count() / calls);
  }
  std::nth_element(times.begin(), times.begin() + std::ptrdiff_t(times.size() / 2), times.end());
  return times[times.size() / 2];
}

/// Bytes per second that a copy of `bytes` within the device reads and writes.
double rate_of_copies(Device<Exec>& device, std::size_t bytes) {
  const auto from = device.allocate(bytes), to = device.allocate(bytes);
  using Bytes = Kokkos::View<char*, Exec::memory_space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
  const Bytes in(static_cast<char*>(from.get()), bytes), out(static_cast<char*>(to.get()), bytes);
  return 2.0 * double(bytes) / seconds_of(device, [&](Device<Exec>& on) { Kokkos::deep_copy(on.exec(), out, in); });
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t tokens = argc > 1 ? std::size_t(std::max(1, std::atoi(argv[1]))) : 16384;
  const double least = argc > 2 ? std::atof(argv[2]) : 0;
  constexpr std::size_t width = 768, hidden = 4 * width, vocabulary = 50257, columns = 50304, parameters = 124'439'808;
  return run<comm::Threads>(RunOptions{.ranks = 1}, [&](World& world) {
    auto& device = world.device();
    Arrays arrays{&device, {}};
    // Large copies first, so that the arrays can reuse their memory.
    const std::size_t updated = std::min(parameters, tokens * width * 10);
    const double whole = rate_of_copies(device, std::max(tokens * columns * sizeof(T), std::size_t(1) << 20));
    T *x = arrays.make<T>(tokens * hidden), *y = arrays.make<T>(tokens * hidden), *dx = arrays.make<T>(tokens * hidden),
      *gain = arrays.make<T>(hidden), *bias = arrays.make<T>(hidden), *logits = arrays.make<T>(tokens * columns),
      *table = arrays.make<T>(columns * width), *parameter = arrays.make<T>(updated);
    A *mean = arrays.make<A>(tokens), *rstd = arrays.make<A>(tokens), *target = arrays.make<A>(tokens),
      *wide = arrays.make<A>(columns * width), *master = arrays.make<A>(updated), *gradient = arrays.make<A>(updated),
      *moment = arrays.make<A>(updated), *variance = arrays.make<A>(updated);
    auto* ids = arrays.make<std::int32_t>(tokens);
    {
      std::vector<std::int32_t> host(tokens);
      for (std::size_t i = 0; i < tokens; ++i) host[i] = std::int32_t((i * 2654435761u >> 8) % vocabulary);
      weft::detail::send_to_device(device, ids, host.data(), tokens * sizeof(std::int32_t));
    }
    auto* total = arrays.make<double>(1);
    const std::vector<kernels::NormPart<A>> parts{{gradient, updated}};

    const std::vector<std::pair<std::string, Body>> all{
        {"LayerNorm", [=](auto& on) { kernels::layer_norm_forward(on, tokens, width, x, gain, bias, y, mean, rstd, 1e-5); }},
        {"LayerNorm, dx", [=](auto& on) { kernels::layer_norm_backward_input(on, tokens, width, x, gain, mean, rstd, y, dx); }},
        {"LayerNorm, dgain and dbias",
         [=](auto& on) { kernels::layer_norm_backward_weight(on, tokens, width, x, mean, rstd, y, wide, wide + width, false); }},
        {"residual", [=](auto& on) { kernels::add(on, tokens * width, x, y, dx); }},
        {"GELU", [=](auto& on) { kernels::gelu_forward(on, tokens * hidden, x, y); }},
        {"GELU, dx", [=](auto& on) { kernels::gelu_backward(on, tokens * hidden, x, y, dx); }},
        {"dropout", [=](auto& on) { kernels::dropout(on, tokens, width, x, dx, 0.1, 77, 5, 0, width, y); }},
        {"sums of a bias' gradient", [=](auto& on) { kernels::column_sums(on, tokens, hidden, x, hidden, wide, false); }},
        {"cross-entropy, statistics",
         [=](auto& on) { kernels::softmax_statistics(on, tokens, columns, vocabulary, logits, ids, mean, rstd, target); }},
        {"cross-entropy, gradient in place",
         [=](auto& on) {
           kernels::cross_entropy_gradient(on, tokens, columns, vocabulary, logits, mean, rstd, ids, 0,
                                           static_cast<const double*>(nullptr), logits);
         }},
        {"embedding", [=](auto& on) { kernels::embedding_forward(on, tokens, width, ids, table, 0, vocabulary, dx); }},
        {"embedding, gradient", [=](auto& on) { kernels::embedding_backward(on, tokens, width, ids, dx, 0, vocabulary, wide); }},
        {"norm of gradients", [&](auto& on) { kernels::squared_norms(on, std::span<const kernels::NormPart<A>>(parts), total); }},
        {"AdamW", [=](auto& on) { kernels::adamw_update(on, updated, parameter, master, gradient, moment, variance, {}); }},
    };
    int slow = 0;
    for (const auto& [name, body] : all) {
      const double bytes = bytes_of(body), seconds = seconds_of(device, body), share = bytes / seconds / whole;
      std::printf("{\"kernel\": \"%s\", \"tokens\": %zu, \"bytes\": %.0f, \"us\": %.1f, \"share_of_copy\": %.3f}\n", name.c_str(),
                  tokens, bytes, 1e6 * seconds, share);
      slow += share < least;
    }
    std::printf("{\"copy_bytes_per_s\": %.4g}\n", whole);
    return slow == 0 ? 0 : 1;
  });
}
