// SPDX-License-Identifier: Apache-2.0
#pragma once
// Three steps of AdamW with dropout and clipping under numerics.reproducible_degree, whose losses, norms, gradients and weights
// are compared as bits with those of one rank, on every rank and for every element that it holds.

#include "support/parity.hpp"

#include <bit>
#include <cstring>

#include <weft/engine/parameter_values.hpp>
#include <weft/pipeline/schedule/dynamic.hpp>

namespace weft_test {

constexpr std::size_t degree_length = 16, degree_vocabulary = 24, degree_sequences = 8, degree_micro_batches = 4;

inline models::GptConfig degree_gpt() {
  return {.vocabulary = degree_vocabulary,
          .layers = 2,
          .width = 24,
          .heads = 4,
          .sequence = degree_length,
          .dropout = 0.1,
          .standard_deviation = 0.2};
}
inline models::LlamaConfig degree_llama() {
  return {.vocabulary = degree_vocabulary,
          .layers = 2,
          .width = 32,
          .heads = 8,
          .kv_heads = 4,
          .intermediate = 40,
          .sequence = degree_length,
          .dropout = 0.1,
          .standard_deviation = 0.2};
}

/// With norms of heads, padded rows of experts, and experts whose choice changes.
inline models::MixtralConfig degree_mixtral() {
  return {.vocabulary = degree_vocabulary,
          .layers = 2,
          .width = 32,
          .heads = 8,
          .kv_heads = 4,
          .intermediate = 12,
          .sequence = degree_length,
          .experts = 4,
          .top_k = 2,
          .auxiliary_loss = 0.1,
          .z_loss = 0.01,
          .bias_rate = 0.01,
          .dropout = 0.1,
          .standard_deviation = 0.2,
          .attention = {.query_key_norm = true}};
}

inline Batch degree_batch(std::uint64_t step, std::size_t rank, std::size_t ranks) {
  Batch batch;
  batch.sequences = degree_sequences / ranks;
  batch.length = degree_length;
  batch.micro_batches = degree_micro_batches / ranks;
  batch.first_sequence = batch.sequences * rank;
  batch.step = step;
  for (std::size_t i = 0; i < batch.sequences * batch.length; ++i) {
    const std::size_t index = batch.first_sequence * batch.length + i;
    batch.tokens.push_back(std::int32_t(key_of(step, index) % degree_vocabulary));
    batch.targets.push_back(index % 5 == 0 ? -1 : std::int32_t(key_of(step, index, 7) % degree_vocabulary));
  }
  return batch;
}

struct Bits {
  std::vector<std::uint64_t> losses, norms;
  std::map<std::string, std::vector<std::uint64_t>> gradients, weights;  // gradients of the first step
};

struct DegreeLayout {
  std::size_t cp = 1, tp = 1, dp = 1, pp = 1;
  int stage = 0, threads = 1;
};

/// Trains on one rank of a layout. Notes the bits in `bits`, or, if `names` is given, the names of what differs from `bits`; the
/// ranks of a process share them.
template <class Composition, class Grid, class C>
void train_rank(World& world, const C& config, const DegreeLayout& layout, std::size_t degree, Bits& bits, std::string* names) {
  using T = typename Composition::model_type::scalar;
  static std::mutex mutex;
  const auto note = [&](const std::string& name, std::uint64_t& slot, std::uint64_t value) {
    if (names == nullptr) slot = value;
    else if (slot != value && names->find(name) == std::string::npos) *names += name + " ";
  };
  const auto note_number = [&](const std::string& name, std::vector<std::uint64_t>& numbers, std::size_t at, double value) {
    std::lock_guard lock(mutex);
    if (numbers.size() <= at) numbers.resize(at + 1);
    note(name, numbers[at], std::bit_cast<std::uint64_t>(value));
  };
  Grid mesh(world, Degrees{.tp = layout.tp, .cp = layout.cp, .pp = layout.pp});
  ModelOptions options{.shard = {.stage = layout.stage}, .numerics = {.reproducible = true, .reproducible_degree = degree}};
  options.context = ContextMethod::ulysses;
  if constexpr (std::is_same_v<typename Composition::model_type::adapters, Lora>)
    options.lora = {.rank = 3, .alpha = 6, .dropout = 0.1, .up_deviation = 0.2};
  Composition model(mesh, config, options);
  if (layout.threads > 1) world.device().share_short_loops();
  optim::AdamW optimizer(model, {.learning_rate = 1e-2, .clip = 0.5});
  const std::size_t data_rank = mesh.comm(dp{}).rank();
  for (std::size_t step = 0; step < 3; ++step) {
    note_number("loss", bits.losses, step, model.train_step(degree_batch(step, data_rank, layout.dp)));
    if (step == 0)
      model.for_each_state([&](ParameterState& state) {
        if (!state.trainable()) return;
        std::lock_guard lock(mutex);
        auto& values = bits.gradients[state.name()];
        values.resize(state.global().size());
        for_each_gradient(state, [&](std::size_t index, double value) {
          note("gradient of " + state.name(), values[index], std::bit_cast<std::uint64_t>(value));
        });
      });
    note_number("norm", bits.norms, step, optimizer.step().gradient_norm);
  }
  note_number("evaluation", bits.losses, 3, model.evaluate(degree_batch(99, data_rank, layout.dp)));
  model.for_each_state([&](ParameterState& state) {
    std::lock_guard lock(mutex);
    auto& values = bits.weights[state.name()];
    values.resize(state.global().size());
    const detail::Buffer value = detail::value_of(model.device(), state);
    for (const auto& part : state.runs())
      for (std::size_t i = 0; i < part.length; ++i) {
        std::uint64_t word = 0;
        std::memcpy(&word, static_cast<const T*>(value.get()) + part.local + i, sizeof(T));
        note(state.name(), values[part.global + i], word);
      }
  });
}

/// train_rank on all ranks of a layout.
template <class Composition, class Grid, class Backend = comm::Threads, class C>
void train_bits(const C& config, const DegreeLayout& layout, std::size_t degree, Bits& bits, std::string* names = nullptr) {
  const int ranks = int(layout.cp * layout.tp * layout.dp * layout.pp);
  CHECK(runtime::run<Backend>(runtime::RunOptions{.ranks = ranks, .threads_per_rank = layout.threads}, [&](World& world) {
          train_rank<Composition, Grid>(world, config, layout, degree, bits, names);
        }) == 0);
}

/// The numbers with the degree are those without it up to `tolerance`, of the largest of each gradient.
template <class Composition, class Grid, class C>
void check_same_numbers(const C& config, const DegreeLayout& layout, double tolerance) {
  const auto number = [](std::uint64_t bits) { return std::bit_cast<double>(bits); };
  Bits with, without;
  train_bits<Composition, Grid>(config, {}, 0, without);
  train_bits<Composition, Grid>(config, layout, 4, with);
  for (std::size_t step = 0; step < without.losses.size(); ++step)
    CHECK(number(with.losses[step]) == doctest::Approx(number(without.losses[step])).epsilon(tolerance));
  CHECK(!without.gradients.empty());
  for (const auto& gradient : without.gradients) {
    const std::string& name = gradient.first;  // clang 14 captures no structured binding
    const std::vector<std::uint64_t>& values = gradient.second;
    INFO(name);
    double largest = 0, apart = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      largest = std::max(largest, std::abs(number(values[i])));
      apart = std::max(apart, std::abs(number(values[i]) - number(with.gradients[name].at(i))));
    }
    CHECK(largest > 0);
    CHECK(apart <= tolerance * largest);
  }
}

template <class Composition, class Grid, class Backend = comm::Threads, class C>
void check_same_bits(const C& config, std::initializer_list<DegreeLayout> layouts) {
  Bits expected;
  World alone{Communicator()};  // also in a process of several
  train_rank<Composition, Grid>(alone, config, {}, 4, expected, nullptr);
  CHECK(expected.losses.size() == 4);
  for (const DegreeLayout& layout : layouts) {
    INFO("cp " << layout.cp << ", tp " << layout.tp << ", dp " << layout.dp << ", pp " << layout.pp << ", stage " << layout.stage
               << ", threads " << layout.threads);
    std::string differ;
    train_bits<Composition, Grid, Backend>(config, layout, 4, expected, &differ);
    CHECK(differ == "");
  }
}

}  // namespace weft_test
