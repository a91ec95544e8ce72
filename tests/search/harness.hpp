// SPDX-License-Identifier: Apache-2.0
#pragma once
// The shared part of the random search's programs: a model on one rank, then the same model on many layouts of thread ranks, with
// one line each: `equal`, `refused: text` or `DIFFERS: where and how much`. generate.py writes the programs, search.py runs them.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <weft/engine/parameter_values.hpp>
#include <weft/pipeline/schedule/dynamic.hpp>
#include <weft/weft.hpp>

#include "support/batches.hpp"

namespace search {

using namespace weft;

/// A mistake in the loop around the model: in the batch of a rank.
enum class Loop { right, first_sequence_unset, share_of_world_rank, masks_differ_over_tp, tokens_differ_over_cp };

constexpr double tolerance = 1e-11;
constexpr double small = 1e-2;
constexpr int steps = 2;

/// The context of a model on one rank, to name the types of layers.
using Plain = Context<Compute<DefaultDevice::execution_space, double>>;

struct Layout {
  bool by_rows = false;  ///< SequenceParallel, not TensorParallel
  std::size_t world = 1;
  Degrees degrees = {};
  std::size_t micro_batches = 1;
  const char* schedule = "1f1b";
  int zero = 0;
  bool reproducible = false;  ///< the same bits as one rank
};

// Ordered so that a short prefix has every axis, every stage of ZeRO and most schedules.
inline const std::vector<Layout> chosen_layouts = {
    {false, 2, {}, 2, "1f1b", 0},
    {false, 2, {.tp = 2}, 2},
    {true, 2, {.tp = 2}, 2},
    {false, 2, {.cp = 2}, 2},
    {false, 2, {.pp = 2}, 4, "zb-h1"},
    {true, 4, {.tp = 2, .cp = 2}, 2},
    {false, 4, {.tp = 2}, 2, "1f1b", 3},
    {false, 4, {.tp = 4}, 1},
    {true, 4, {.tp = 4}, 2},
    {true, 8, {.tp = 2, .cp = 2, .pp = 2}, 4, "interleaved"},
    {false, 4, {}, 2, "1f1b", 2},
    {false, 2, {.pp = 2}, 4, "zbv"},
    {false, 4, {}, 1, "1f1b", 3},
    {true, 8, {.tp = 4, .cp = 2}, 4},
    {false, 8, {.tp = 2, .pp = 2}, 4, "zbv", 1},
    {false, 2, {.pp = 2}, 4, "interleaved", 0, true},
    {false, 1, {}, 1},
    {false, 1, {}, 4},
    {false, 1, {}, 8, "1f1b", 0, true},
    {false, 2, {}, 4, "1f1b", 1},
    {false, 2, {}, 4, "1f1b", 3},
    {false, 4, {}, 2, "1f1b", 0, true},
    {false, 4, {}, 2, "1f1b", 3, true},
    {false, 8, {}, 1, "1f1b", 2},
    {true, 4, {.tp = 2}, 4, "1f1b", 1},
    {true, 4, {.tp = 2}, 2, "1f1b", 2},
    {true, 8, {.tp = 2}, 2, "1f1b", 3},
    {true, 8, {.tp = 4}, 1, "1f1b", 3},
    {false, 4, {.cp = 4}, 1},
    {false, 4, {.cp = 2}, 2, "1f1b", 3},
    {false, 8, {.cp = 2}, 1, "1f1b", 2},
    {false, 2, {.pp = 2}, 4, "gpipe"},
    {false, 2, {.pp = 2}, 8, "1f1b"},
    {false, 2, {.pp = 2}, 4, "dualpipev"},
    {false, 4, {.pp = 4}, 4, "1f1b"},
    {false, 4, {.pp = 4}, 2, "zb-h1"},
    {false, 4, {.pp = 2}, 4, "interleaved", 2},
    {false, 4, {.pp = 2}, 2, "zb-h1", 3},
    {false, 4, {.pp = 2}, 4, "interleaved-zb", 1},
    {false, 4, {.tp = 2, .cp = 2}, 2},
    {false, 8, {.tp = 2, .cp = 2}, 2, "1f1b", 2},
    {false, 4, {.tp = 2, .pp = 2}, 4, "gpipe"},
    {true, 4, {.tp = 2, .pp = 2}, 4, "zbv"},
    {true, 8, {.tp = 2, .pp = 2}, 4, "dualpipev", 3},
    {true, 8, {.tp = 4, .pp = 2}, 2, "zb-h1"},
    {false, 4, {.cp = 2, .pp = 2}, 4, "interleaved"},
    {false, 8, {.cp = 2, .pp = 2}, 4, "zbv", 3},
    {false, 8, {.tp = 2, .cp = 2, .pp = 2}, 2, "gpipe"},
    {true, 8, {.tp = 2, .cp = 4}, 8},
    {false, 8, {.cp = 4}, 2, "1f1b", 1},
};

/// These, and then others by counting: more degrees, stages and schedules together.
inline const std::vector<Layout> layouts = [] {
  std::vector<Layout> all = chosen_layouts;
  const char* const schedules[] = {"1f1b", "gpipe", "zb-h1", "interleaved", "zbv", "interleaved-zb", "dualpipev"};
  std::size_t n = 0;
  for (const std::size_t t : {2, 1, 4})
    for (const std::size_t p : {2, 1, 4})
      for (const std::size_t c : {2, 1, 4})
        for (const std::size_t d : {2, 1, 4, 8}) {
          if (t * p * c * d > 8 || t * p * c * d < 4) continue;
          for (int again = 0; again < 2; ++again, ++n) {
            const char* const schedule = p == 2 ? schedules[n % 7] : p == 4 ? schedules[n % 3] : "1f1b";
            all.push_back({t > 1 && n % 3 != 0,
                           t * p * c * d,
                           {.tp = t, .cp = c, .pp = p},
                           d == 8   ? 1u
                           : d == 4 ? 2u
                                    : 4u,
                           schedule,
                           d > 1 ? int(n % 4) : 0});
          }
        }
  return all;
}();

/// The results of a run: numbers by name, and gradients and weights by name and global index.
struct Run {
  std::vector<double> numbers;  ///< of each step: loss, gradient norm, loss of evaluate
  std::map<std::string, std::vector<double>> tensors;
};

inline Batch batch_of(std::uint64_t step, std::size_t rank, std::size_t ranks, std::size_t micro_batches) {
  return weft_test::make_batch(step, rank, ranks, micro_batches);
}

/// Trains; calls `take(name, global index, value)` for each element of this rank.
template <class M, class MakeBatch, class Take>
std::vector<double> train(M& model, MakeBatch&& make, Take&& take) {
  std::vector<double> numbers;
  optim::Sgd optimizer(model, {.learning_rate = 0.1, .momentum = 0.9, .clip = 1.0});
  const auto visit = [&](const std::string& prefix, auto&& buffer_of) {
    model.for_each_state([&](ParameterState& state) {
      const auto buffer = buffer_of(state);
      if (!buffer) return;
      const double* values = static_cast<const double*>(buffer.get());
      for (const auto& run : state.runs())
        for (std::size_t i = 0; i < run.length; ++i)
          take(prefix + state.name(), state.global().size(), run.global + i, values[run.local + i]);
    });
  };
  for (int step = 0; step < steps; ++step) {
    const Batch batch = make(step);
    numbers.push_back(model.train_step(batch));
    visit("gradient " + std::to_string(step) + " of ",
          [&](const ParameterState& state) { return detail::gradient_of(model.device(), state); });
    numbers.push_back(optimizer.step().gradient_norm);
    numbers.push_back(model.evaluate(batch));
  }
  visit("weight ", [&](const ParameterState& state) { return detail::value_of(model.device(), state); });
  return numbers;
}

template <class Model>
Run on_one_rank(std::size_t micro_batches, bool reproducible) {
  DefaultDevice device;
  ModelOptions options;
  options.numerics.reproducible = reproducible;
  SingleDevice<Model> model(device, typename Model::Config{}, options);
  Run run;
  run.numbers = train(
      model, [&](int step) { return batch_of(step, 0, 1, micro_batches); },
      [&](const std::string& name, std::size_t size, std::size_t index, double value) {
        auto& values = run.tensors[name];
        values.resize(size);
        values[index] = value;
      });
  return run;
}

struct Worst {
  double error = 0;
  std::string where;
  std::size_t compared = 0;
  void see(double value, double expected, double scale, const std::string& name) {
    ++compared;
    const double off = value == expected ? 0 : std::isfinite(value) && scale > 0 ? std::abs(value - expected) / scale : INFINITY;
    if (off > error || (off == error && where.empty() && off > 0)) error = off, where = name;
  }
};

template <class Model>
using Staged = PipelineParallel<Model>;
template <class Model>
using OverTensor = FullyShardedDataParallel<ContextParallel<TensorParallel<Staged<Model>>, Ring>>;
template <class Model>
using OverSequence = FullyShardedDataParallel<ContextParallel<SequenceParallel<Staged<Model>>, Ring>>;

template <class Composition>
Worst on_this_rank(World& world, const Layout& layout, const Run& expected, Loop loop) {
  const Mesh<dp, cp, tp, pp> mesh(world, layout.degrees);
  ModelOptions options;
  options.shard.stage = layout.zero;
  options.pipeline.schedule = schedule::choose(layout.schedule);
  options.numerics.reproducible = layout.reproducible;
  Composition model(mesh, typename Composition::Config{}, options);
  Worst worst;
  const auto make = [&](int step) {
    const std::size_t data = mesh.size(dp{});
    const bool of_world = loop == Loop::share_of_world_rank;
    const std::size_t ranks = of_world ? std::min<std::size_t>(8 / layout.micro_batches, world.size()) : data;
    Batch batch = batch_of(step, of_world ? world.rank() % ranks : std::size_t(mesh.rank(dp{})), ranks, layout.micro_batches);
    if (loop == Loop::first_sequence_unset) batch.first_sequence = 0;
    if (loop == Loop::masks_differ_over_tp && mesh.rank(tp{}) > 0) batch.targets[3] = -1 - std::min(0, batch.targets[3]);
    if (loop == Loop::tokens_differ_over_cp && mesh.rank(cp{}) > 0) batch.tokens[3] = (batch.tokens[3] + 1) % 19;
    return batch;
  };
  // Each tensor is scaled by its largest element. A tensor that is negligible in its kind (a key's bias, whose gradient is 0
  // except for rounding) is scaled by the others'.
  std::map<std::string, double> scales, kinds;
  const auto kind = [](const std::string& name) { return name.substr(0, name.find(' ') + 2); };
  for (const auto& [name, values] : expected.tensors) {
    for (const double value : values) scales[name] = std::max(scales[name], std::abs(value));
    kinds[kind(name)] = std::max(kinds[kind(name)], scales[name]);
  }
  for (auto& [name, scale] : scales) scale = std::max(scale, small * kinds[kind(name)]);
  const auto numbers = train(model, make, [&](const std::string& name, std::size_t size, std::size_t index, double value) {
    const auto at = expected.tensors.find(name);
    if (at == expected.tensors.end() || at->second.size() != size)
      worst.see(value, NAN, 0, name + " (which one rank does not have)");
    else worst.see(value, at->second[index], scales[name], name);
  });
  static const char* const names[] = {"loss", "gradient norm", "evaluate"};
  for (std::size_t i = 0; i < numbers.size(); ++i)
    worst.see(numbers[i], expected.numbers[i], std::abs(expected.numbers[i]),
              std::string(names[i % 3]) + " of step " + std::to_string(i / 3));
  return worst;
}

/// The streams over tp that a program compiles: each takes as long as everything else.
enum class Streams { both, whole_rows, cut_rows };

/// The outcome of one layout.
template <class Model, Streams streams>
std::string outcome(const Layout& layout, const Run& expected, Loop loop) {
  std::mutex mutex;
  Worst worst;
  std::string refused;
  const int code = runtime::run<comm::Threads>(
      RunOptions{.ranks = int(layout.world), .deadline_s = 60, .threads_per_rank = 1}, [&](World& world) {
        try {
          Worst mine;
          if constexpr (streams == Streams::whole_rows) mine = on_this_rank<OverTensor<Model>>(world, layout, expected, loop);
          else if constexpr (streams == Streams::cut_rows)
            mine = on_this_rank<OverSequence<Model>>(world, layout, expected, loop);
          else
            mine = layout.by_rows ? on_this_rank<OverSequence<Model>>(world, layout, expected, loop)
                                  : on_this_rank<OverTensor<Model>>(world, layout, expected, loop);
          const std::lock_guard lock(mutex);
          worst.compared += mine.compared;
          if (mine.error > worst.error) worst.error = mine.error, worst.where = mine.where;
        } catch (const std::exception& error) {
          const std::lock_guard lock(mutex);
          const std::string text = error.what();
          if (refused.empty() ||
              (refused.find("has failed") != std::string::npos && text.find("has failed") == std::string::npos))
            refused = text;
          throw;
        }
      });
  char text[64];
  if (code != 0) return "refused: " + refused;
  if (worst.compared == 0) return "DIFFERS: nothing was compared";
  if (worst.error <= (layout.reproducible ? 0 : tolerance)) return "equal";
  std::snprintf(text, sizeof text, " is off by %.1e of its largest element", worst.error);
  return "DIFFERS: " + worst.where + text;
}

/// Runs the model on a part of the list of layouts: the program's first argument is their number (all without one), the second
/// the index of the first. Exit code 1 if a layout differs, otherwise 0.
template <class Model, Streams streams = Streams::both>
int run(const char* name, int argc, char** argv, Loop loop = Loop::right) {
  Kokkos::ScopeGuard kokkos(Kokkos::InitializationSettings().set_num_threads(8).set_disable_warnings(true));
  const std::size_t count = std::min(layouts.size(), argc > 1 ? std::size_t(std::atoi(argv[1])) : layouts.size()),
                    first = argc > 2 ? std::size_t(std::atoi(argv[2])) : 0;
  Run expected;
  std::map<std::size_t, Run> reproducible;
  try {
    expected = on_one_rank<Model>(1, false);
  } catch (const std::exception& error) {
    std::printf("%s | one rank | refused: %s\n", name, error.what());
    return 0;
  }
  for (const double number : expected.numbers)
    if (!std::isfinite(number)) {
      std::printf("%s | one rank | not finite\n", name);
      return 2;
    }
  bool differs = false;
  for (std::size_t i = first; i < count; ++i) {
    Layout l = layouts[i];
    if (streams != Streams::both) l.by_rows = streams == Streams::cut_rows && l.degrees.tp > 1;
    const Run* against = &expected;
    const std::size_t data = l.world / (l.degrees.tp * l.degrees.cp * l.degrees.pp);
    std::string text;
    try {
      if (l.reproducible && !reproducible.contains(data * l.micro_batches))
        reproducible[data * l.micro_batches] = on_one_rank<Model>(data * l.micro_batches, true);
      if (l.reproducible) against = &reproducible[data * l.micro_batches];
      text = outcome<Model, streams>(l, *against, loop);
    } catch (const std::exception& error) {
      text = std::string("refused: ") + error.what();
    }
    differs = differs || text.starts_with("DIFFERS");
    std::printf("%s | dp(%zu) cp(%zu) tp(%zu)%s pp(%zu) %s, micro-batches %zu, ZeRO %d%s | %s\n", name, data,
                std::size_t(l.degrees.cp), std::size_t(l.degrees.tp), l.by_rows ? " by rows" : "", std::size_t(l.degrees.pp),
                l.schedule, l.micro_batches, l.zero, l.reproducible ? ", reproducible" : "", text.c_str());
    std::fflush(stdout);
  }
  return differs;
}

}  // namespace search
