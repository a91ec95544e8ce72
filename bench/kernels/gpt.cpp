// SPDX-License-Identifier: Apache-2.0
// Times of the kernels of one training step of a GPT on one rank of one thread, compared with oneDNN's matmul peak: the parts of
// a step's time without a framework. Times are of the thread's own clock, so other programs disturb them little.
//
//   bench_kernels_gpt [--precision fp32|bf16|both] [--layers 6 --width 384 --heads 6 --sequence 256 --sequences 8]
//                     [--vocabulary 256] [--repeats 5] [--json FILE]

#include <CLI/CLI.hpp>
#include <Kokkos_Core.hpp>
#include <nlohmann/json.hpp>

#include <time.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include <weft/core/output_file.hpp>
#include <weft/kernels/activation.hpp>
#include <weft/kernels/attention.hpp>
#include <weft/kernels/cross_entropy.hpp>
#include <weft/kernels/elementwise.hpp>
#include <weft/kernels/embedding.hpp>
#include <weft/kernels/matmul.hpp>
#include <weft/kernels/norm.hpp>
#include <weft/kernels/optimizer.hpp>
#include <weft/kernels/random.hpp>
#include <weft/runtime/ending.hpp>
#include <weft/trace/table.hpp>

namespace {

using namespace weft;
using kernels::Transpose;
using Exec = Kokkos::DefaultHostExecutionSpace;

double thread_seconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return double(now.tv_sec) + 1e-9 * double(now.tv_nsec);
}

struct Options {
  std::string precision = "both", json;
  std::size_t layers = 6, width = 384, heads = 6, sequence = 256, sequences = 8, vocabulary = 256, repeats = 5;
};

/// One kernel: calls per step, the work of a call, and the shortest time of a call.
struct Line {
  std::string name;
  std::size_t calls;
  double flops;
  double seconds;
  bool matmul;
};

template <class T>
class Step {
  using A = accumulate_t<T>;

 public:
  Step(Device<Exec>& device, const Options& options) : device_(device), o_(options), tokens_(o_.sequence * o_.sequences) {}

  /// Operations per second of square products of 1024, the better of two tries.
  double peak() {
    constexpr std::size_t n = 1024;
    if (square_[0] == nullptr)
      for (T*& x : square_) x = array<T>(n * n);
    time("", 0, 0, [&](std::size_t) {
      kernels::matmul<T, T>(device_, Transpose::no, Transpose::no, n, n, n, square_[0], n, square_[1], n, square_[2], n);
    });
    best_square_ = std::min(best_square_, lines_.back().seconds);
    lines_.pop_back();
    return 2.0 * n * n * n / best_square_;
  }

  std::vector<Line> run() {
    const std::size_t w = o_.width, t = tokens_, head_width = w / o_.heads, pairs = o_.sequences * o_.heads;
    linear("query, key, value", 3 * w, w, o_.layers);
    linear("attention's output", w, w, o_.layers);
    linear("up", 4 * w, w, o_.layers);
    linear("down", w, 4 * w, o_.layers);
    linear("logits", o_.vocabulary, w, 1);

    const double attention_flops =
        2.0 * double(pairs) * double(o_.sequence) * double(o_.sequence) * double(head_width);  // causal: half
    A* lse = array<A>(pairs * o_.sequence);
    const kernels::AttentionExtents extents{
        .sequences = o_.sequences, .length = o_.sequence, .heads = o_.heads, .kv_heads = o_.heads, .head_width = head_width};
    const auto operands = [&](auto* of) {
      return kernels::AttentionOperands<std::remove_pointer_t<decltype(of)>>{
          .q = of, .k = of + w, .v = of + 2 * w, .q_stride = 3 * w, .k_stride = 3 * w, .v_stride = 3 * w};
    };
    time("attention forward", o_.layers, attention_flops, [&](std::size_t s) {
      const T* q = fused(s);
      kernels::attention_forward<T>(device_, extents, operands(q), {narrow(s), w}, lse);
    });
    time("attention backward", o_.layers, 2.5 * attention_flops, [&](std::size_t s) {
      const T* q = fused(s);
      kernels::attention_backward<T>(device_, extents, operands(q), {narrow(s), w}, {narrow(s + 1), w}, lse, operands(wide(s)));
    });

    const std::size_t norms = 2 * o_.layers + 1;
    T *gain = array<T>(w), *bias = array<T>(w);
    A *mean = array<A>(t), *rstd = array<A>(t), *dgain = array<A>(4 * w), *dbias = array<A>(4 * w);
    time("layer_norm forward", norms, 0, [&](std::size_t s) {
      kernels::layer_norm_forward<T>(device_, t, w, narrow(s), gain, bias, narrow(s + 1), mean, rstd, 1e-5);
    });
    time("layer_norm backward, input", norms, 0, [&](std::size_t s) {
      kernels::layer_norm_backward_input<T>(device_, t, w, narrow(s), gain, mean, rstd, narrow(s + 1), narrow(s + 2));
    });
    time("layer_norm backward, weight", norms, 0, [&](std::size_t s) {
      kernels::layer_norm_backward_weight<T>(device_, t, w, narrow(s), mean, rstd, narrow(s + 1), dgain, dbias, true);
    });
    time("gelu forward", o_.layers, 0,
         [&](std::size_t s) { kernels::gelu_forward<T>(device_, 4 * w * t, wide(s), wide(s + 1)); });
    time("gelu backward", o_.layers, 0,
         [&](std::size_t s) { kernels::gelu_backward<T>(device_, 4 * w * t, wide(s), wide(s + 1), wide(s + 2)); });
    time("residual add", 4 * o_.layers, 0,
         [&](std::size_t s) { kernels::add<T>(device_, w * t, narrow(s), narrow(s + 1), narrow(s + 2)); });
    time("bias gradient [width]", 2 * o_.layers, 0,
         [&](std::size_t s) { kernels::column_sums<T>(device_, t, w, narrow(s), w, dgain, false); });
    time("bias gradient [3 and 4 width]", 2 * o_.layers, 0,
         [&](std::size_t s) { kernels::column_sums<T>(device_, t, 4 * w, wide(s), 4 * w, dgain, false); });

    std::int32_t* ids = array<std::int32_t>(t);
    for (std::size_t i = 0; i < t; ++i) ids[i] = std::int32_t(i * i % o_.vocabulary);
    T *table = array<T>(o_.vocabulary * w), *logits = array<T>(t * o_.vocabulary);
    A *dtable = array<A>(o_.vocabulary * w), *max = array<A>(t), *sum = array<A>(t), *target = array<A>(t);
    time("embedding forward", 2, 0,
         [&](std::size_t s) { kernels::embedding_forward<T>(device_, t, w, ids, table, 0, o_.vocabulary, narrow(s)); });
    time("embedding backward", 2, 0,
         [&](std::size_t s) { kernels::embedding_backward<T>(device_, t, w, ids, narrow(s), 0, o_.vocabulary, dtable); });
    time("cross-entropy", 1, 0, [&](std::size_t) {
      double loss = 0;
      kernels::row_max<T>(device_, t, o_.vocabulary, o_.vocabulary, logits, max);
      kernels::softmax_sums<T>(device_, t, o_.vocabulary, o_.vocabulary, logits, max, ids, 0, sum, target);
      kernels::cross_entropy_finish<T>(device_, t, o_.vocabulary, o_.vocabulary, logits, max, sum, target, ids, 0, &loss, logits);
    });

    const std::size_t n = 12 * w * w * o_.layers + o_.vocabulary * w + o_.sequence * w;
    T* parameter = array<T>(n);
    A *gradient = array<A>(n), *m = array<A>(n), *v = array<A>(n), *master = std::is_same_v<T, A> ? nullptr : array<A>(n);
    time("norm of the gradient", 1, 0, [&](std::size_t) {
      double norm = 0;
      kernels::squared_norm<A>(device_, n, gradient, &norm);
    });
    time("AdamW", 1, 0, [&](std::size_t) {
      kernels::adamw_update<T, A>(device_, n, parameter, master, gradient, m, v,
                                  {.learning_rate = 1e-4, .bias_correction1 = 0.1, .bias_correction2 = 0.001});
    });
    return lines_;
  }

 private:
  static constexpr std::size_t sets = 4;  // arrays are used in turn, as in a step, so that caches do not hide memory traffic

  template <class N>
  N* array(std::size_t n) {
    buffers_.push_back(device_.allocate(n * sizeof(N)));
    N* data = static_cast<N*>(buffers_.back().get());
    if constexpr (std::is_floating_point_v<N> || std::is_same_v<N, bfloat16>)
      kernels::initialise_uniform<N>(device_, 1, n, data, buffers_.size(), 0, 0, n, 0.0, 1.0);
    return data;
  }
  T* take(std::vector<T*>& kept, std::size_t set, std::size_t columns) {
    while (kept.size() < sets) kept.push_back(array<T>(tokens_ * columns));
    return kept[set % sets];
  }
  T* narrow(std::size_t set) { return take(narrow_, set, o_.width); }
  T* fused(std::size_t set) { return take(fused_, set, 3 * o_.width); }
  T* wide(std::size_t set) { return take(wide_, set, 4 * o_.width); }

  void time(const std::string& name, std::size_t calls, double flops, const std::function<void(std::size_t)>& call,
            bool matmul = false) {
    for (std::size_t s = 0; s < sets; ++s) call(s);
    double best = 1e30;
    for (std::size_t repeat = 0; repeat < o_.repeats; ++repeat)
      for (std::size_t s = 0; s < sets; ++s) {
        const double started = thread_seconds();
        call(s);
        best = std::min(best, thread_seconds() - started);
      }
    lines_.push_back({name, calls, flops, best, matmul});
  }

  void linear(const std::string& name, std::size_t outputs, std::size_t inputs, std::size_t calls) {
    const double flops = 2.0 * double(tokens_) * double(outputs) * double(inputs);
    T *weight = array<T>(outputs * inputs), *bias = array<T>(outputs);
    A* gradient = array<A>(outputs * inputs);
    T *x = array<T>(tokens_ * inputs), *y = array<T>(tokens_ * outputs);
    time(
        name + ", forward", calls, flops,
        [&](std::size_t) {
          kernels::matmul<T, T>(device_, Transpose::no, Transpose::yes, tokens_, outputs, inputs, x, inputs, weight, inputs, y,
                                outputs, false, bias);
        },
        true);
    time(
        name + ", input's gradient", calls, flops,
        [&](std::size_t) {
          kernels::matmul<T, T>(device_, Transpose::no, Transpose::no, tokens_, inputs, outputs, y, outputs, weight, inputs, x,
                                inputs);
        },
        true);
    time(
        name + ", weight's gradient", calls, flops,
        [&](std::size_t) {
          kernels::matmul<T, A>(device_, Transpose::yes, Transpose::no, outputs, inputs, tokens_, y, outputs, x, inputs, gradient,
                                inputs);
        },
        true);
  }

  Device<Exec>& device_;
  const Options& o_;
  std::size_t tokens_;
  std::vector<detail::Buffer> buffers_;
  std::vector<T*> narrow_, fused_, wide_;
  std::vector<Line> lines_;
  T* square_[3] = {};
  double best_square_ = 1e30;
};

template <class T>
nlohmann::json report(Device<Exec>& device, const Options& options, const std::string& precision) {
  Step<T> kernels_of_step(device, options);
  kernels_of_step.peak();
  const std::vector<Line> lines = kernels_of_step.run();
  const double peak = kernels_of_step.peak();
  double step = 0, matmuls = 0, flops = 0;
  for (const Line& line : lines) {
    step += double(line.calls) * line.seconds;
    matmuls += line.matmul ? double(line.calls) * line.seconds : 0;
    flops += double(line.calls) * line.flops;
  }
  trace::Table table({precision, "calls", "ms", "ms a step", "% of step", "GFLOP/s", "% of peak"});
  nlohmann::json kernels = nlohmann::json::array();
  const auto number = [](double value, const char* format) {
    char text[32];
    std::snprintf(text, sizeof text, format, value);
    return std::string(text);
  };
  for (const Line& line : lines) {
    const double rate = line.flops / line.seconds;
    table.row({line.name, std::to_string(line.calls), number(line.seconds * 1e3, "%.3f"),
               number(double(line.calls) * line.seconds * 1e3, "%.2f"),
               number(100 * double(line.calls) * line.seconds / step, "%.1f"), line.flops == 0 ? "" : number(rate * 1e-9, "%.1f"),
               line.flops == 0 ? "" : number(100 * rate / peak, "%.0f")});
    kernels.push_back({{"kernel", line.name}, {"calls", line.calls}, {"ms", line.seconds * 1e3}, {"gflops", rate * 1e-9}});
  }
  const double share = flops / step / peak;
  std::cout << table.text();
  std::printf(
      "oneDNN's peak %.1f GFLOP/s; kernels of a step %.1f ms, of them matmul %.1f ms; %.1f %% of peak; at most %.0f tokens/s\n\n",
      peak * 1e-9, step * 1e3, matmuls * 1e3, 100 * share, double(options.sequence * options.sequences) / step);
  return {{"precision", precision},     {"peak_gflops", peak * 1e-9}, {"step_ms", step * 1e3},
          {"matmul_ms", matmuls * 1e3}, {"share_of_peak", share},     {"kernels", kernels}};
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Times of the kernels of one training step of a GPT, on one thread");
  app.add_option("--precision", options.precision)->check(CLI::IsMember({"fp32", "bf16", "both"}));
  app.add_option("--layers", options.layers);
  app.add_option("--width", options.width);
  app.add_option("--heads", options.heads);
  app.add_option("--sequence", options.sequence);
  app.add_option("--sequences", options.sequences);
  app.add_option("--vocabulary", options.vocabulary);
  app.add_option("--repeats", options.repeats);
  app.add_option("--json", options.json, "file for the results");
  CLI11_PARSE(app, argc, argv);
  Kokkos::ScopeGuard kokkos(Kokkos::InitializationSettings().set_num_threads(1).set_disable_warnings(true));
  Device<Exec> device;
  nlohmann::json results = nlohmann::json::array();
  if (options.precision != "bf16") results.push_back(report<float>(device, options, "fp32"));
  if (options.precision != "fp32") results.push_back(report<bfloat16>(device, options, "bf16"));
  return weft::runtime::run_alone([&] {
    if (!options.json.empty()) weft::detail::write_output("kernels: --json", options.json, results.dump(2) + "\n");
    return 0;
  });
}
