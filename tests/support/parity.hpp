// SPDX-License-Identifier: Apache-2.0
#pragma once
// The harness for "every composition equals one rank". A reference run on one rank gives loss, gradient norm and every gradient
// by name and global index; each rank of a composition is compared on the elements that it holds.

#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include <weft/weft.hpp>

#include "support/batches.hpp"
#include "support/degrees.hpp"
#include "support/figure.hpp"

namespace weft_test {

using namespace weft;

/// Calls f(global index, value) for each element that this rank holds. Throws for a parameter without a gradient: a frozen one.
template <class F>
void for_each_gradient(ParameterState& state, F&& f) {
  detail::dispatch_real(state.kept_gradient_type(), [&](auto zero) {
    const auto* gradient = static_cast<const decltype(zero)*>(state.gradient().get());
    if (gradient == nullptr && !state.runs().empty()) throw Error("no gradient of " + std::string(state.name()));
    for (const auto& run : state.runs())
      for (std::size_t i = 0; i < run.length; ++i)
        f(run.global + i, double(accumulate_t<decltype(zero)>(gradient[run.local + i])));
  });
}

/// The results of one rank.
struct Reference {
  static inline const int steps = int(rounds(2));  // the second step includes the optimizer's update; by hand, WEFT_TEST_RUNS=100
  std::vector<double> losses, norms;
  std::vector<std::map<std::string, std::vector<double>>> gradients;
  std::vector<double> evaluations;
  std::vector<float> logits;
};

template <class Model>
Reference reference_of(const typename Model::Config& config) {
  Reference reference;
  DefaultDevice device;
  SingleDevice<Model> model(device, config);
  optim::Sgd optimizer(
      model, {.learning_rate = 0.1, .momentum = 0.9, .clip = 1.0});  // Adam would blow up the rounding of small gradients
  for (int step = 0; step < Reference::steps; ++step) {
    const Batch batch = make_batch(step, 0, 1, 1);
    reference.losses.push_back(model.train_step(batch));
    auto& gradients = reference.gradients.emplace_back();
    model.for_each_state([&](ParameterState& state) {
      auto& values = gradients[state.name()];
      values.resize(state.global().size());
      for_each_gradient(state, [&](std::size_t index, double value) { values[index] = value; });
    });
    reference.norms.push_back(optimizer.step().gradient_norm);
    reference.evaluations.push_back(model.evaluate(batch));
  }
  reference.logits = model.next_logits(prompt());
  return reference;
}

/// The largest differences, each relative to the largest value of its kind.
struct Difference {
  double gradient = 0, loss = 0, norm = 0, evaluation = 0, logits = 0;
  std::size_t compared = 0;
  std::string worst;
  double largest() const { return std::max({gradient, loss, norm, evaluation, logits}); }
};

/// One rank of a composition, on a world that exists.
template <class Composition, class Mesh>
Difference compare(const Mesh& mesh, std::size_t data_rank, std::size_t data_ranks, std::size_t micro_batches,
                   const typename Composition::Config& config, const Reference& reference, const ModelOptions& options = {}) {
  Difference difference;
  Composition model(mesh, config, options);
  optim::Sgd optimizer(
      model, {.learning_rate = 0.1, .momentum = 0.9, .clip = 1.0});  // Adam would blow up the rounding of small gradients
  const auto relative = [](double a, double b, double scale) { return a == b ? 0.0 : std::abs(a - b) / scale; };
  for (int step = 0; step < Reference::steps; ++step) {
    const Batch batch = make_batch(step, data_rank, data_ranks, micro_batches);
    difference.loss =
        std::max(difference.loss, relative(model.train_step(batch), reference.losses[step], reference.losses[step]));
    model.for_each_state([&](ParameterState& state) {
      const auto& expected = reference.gradients[step].at(state.name());
      double scale = 0;
      for (const double value : expected) scale = std::max(scale, std::abs(value));
      for_each_gradient(state, [&](std::size_t index, double value) {
        ++difference.compared;
        const double error = std::isfinite(value) ? relative(value, expected[index], scale) : INFINITY;
        if (error > difference.gradient) {
          difference.gradient = error;
          difference.worst = state.name();
        }
      });
    });
    difference.norm =
        std::max(difference.norm, relative(optimizer.step().gradient_norm, reference.norms[step], reference.norms[step]));
    difference.evaluation = std::max(difference.evaluation,
                                     relative(model.evaluate(batch), reference.evaluations[step], reference.evaluations[step]));
  }
  const auto logits = model.next_logits(prompt());
  for (std::size_t i = 0; i < logits.size(); ++i)
    difference.logits = std::max(difference.logits, relative(logits[i], reference.logits[i], 1.0));
  return difference;
}

inline models::GptConfig gpt_config() {
  return {.vocabulary = batch_vocabulary,
          .layers = 8,
          .width = 32,
          .heads = 8,
          .kv_heads = 4,
          .sequence = batch_length,
          .dropout = 0.1};
}
inline models::LlamaConfig llama_config() {
  return {.vocabulary = batch_vocabulary,
          .layers = 8,
          .width = 32,
          .heads = 8,
          .kv_heads = 2,
          .intermediate = 48,
          .sequence = batch_length,
          .dropout = 0.1};
}

/// The maximum over all layouts that this program has compared.
inline Difference all_compared;

/// Compares one layout on `world` ranks of a backend with one rank; dp is the rest that `degrees` leaves.
template <class Composition, class Backend = comm::Threads>
void check_layout(const typename Composition::Config& config, const Reference& reference, std::size_t world,
                  const Degrees& degrees, std::size_t micro_batches, double tolerance, const ModelOptions& options = {}) {
  std::mutex mutex;
  Difference worst;  // of the ranks of this process
  const int code = runtime::run<Backend>(runtime::RunOptions{.ranks = static_cast<int>(world)}, [&](World& rank) {
    Mesh<dp, tp, pp> mesh(rank, degrees);
    const auto data_comm = mesh.comm(dp{});
    const Difference mine =
        compare<Composition>(mesh, data_comm.rank(), data_comm.size(), micro_batches, config, reference, options);
    std::lock_guard lock(mutex);
    worst.compared += mine.compared;
    if (mine.largest() >= worst.largest())
      worst = {mine.gradient, mine.loss, mine.norm, mine.evaluation, mine.logits, worst.compared, mine.worst};
  });
  INFO("world " << world << " = dp(" << world / (degrees.tp * degrees.pp) << ") * tp(" << degrees.tp << ") * pp(" << degrees.pp
                << "), micro-batches " << micro_batches << ", worst parameter " << worst.worst);
  CHECK(code == 0);
  CHECK(worst.compared > 0);
  CHECK(worst.loss <= tolerance);
  CHECK(worst.gradient <= tolerance);
  CHECK(worst.norm <= tolerance);
  CHECK(worst.evaluation <= tolerance);
  CHECK(worst.logits <= tolerance);
  const std::size_t before = all_compared.compared;
  if (worst.largest() >= all_compared.largest()) all_compared = worst;
  all_compared.compared = before + worst.compared;
}

/// Compares every layout on `world` ranks of a backend with one rank, with as many micro-batches as the share allows, up to 4.
template <class Composition, class Backend = comm::Threads>
void check_layouts(std::size_t world, const typename Composition::Config& config, const Reference& reference, double tolerance) {
  for_each_degrees(world, [&](const Degrees& degrees, std::size_t data) {
    check_layout<Composition, Backend>(config, reference, world, degrees, std::min<std::size_t>(4, batch_sequences / data),
                                       tolerance);
  });
}

/// The same for 1, 2, 4 and 8 thread ranks.
template <class Composition>
void check_all_layouts(const typename Composition::Config& config, double tolerance) {
  const Reference reference = reference_of<typename Composition::model_type>(config);
  all_compared = {};
  for (const std::size_t world : {1, 2, 4, 8}) check_layouts<Composition>(world, config, reference, tolerance);
  std::printf(
      "figure 16: %zu gradients of %d steps in every layout compared with one rank's, the largest relative difference %.1e "
      "(at most %.0e)\n",
      all_compared.compared, Reference::steps, all_compared.largest(), tolerance);
}

}  // namespace weft_test
