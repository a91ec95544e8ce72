// SPDX-License-Identifier: Apache-2.0
// covers: weft/parallel/fsdp/quantised_reduction.hpp weft/parallel/fsdp/packed_values.hpp
// Sums of gradients as integers (ZeRO++ qgZ): the error beside exact sums, a quarter of the bytes between nodes, every stage,
// copies, frozen parameters, numbers that are not finite, and the refusals.

#include <weft/parallel/fsdp/packed_values.hpp>
#include <weft/parallel/fsdp/quantised_reduction.hpp>

#include "support/counted_group.hpp"
#include "support/parity.hpp"

using namespace weft_test;

namespace {

using Exec = DefaultDevice::execution_space;
using Model = models::BasicGpt<float>;

detail::ShardRanks ranks_of(const Communicator& all, int node) {
  detail::ShardRanks ranks{.all = all, .sharing = all};
  ranks.node = all.split(all.rank() / node, all.rank(), "node");
  ranks.between = all.split(all.rank() % node, all.rank(), "between");
  return ranks;
}

template <class G>
double number(int rank, std::size_t i) {  // blocks of different sizes
  return double(G(Philox::normal(key_of(7u, std::uint64_t(rank)), i) * (i / 256 % 3 == 1 ? 1e-3 : 1.0)));
}

// The largest error, as a part of the bound: half a unit of each rank's block for the first rounding, half a unit of each node's
// block for the second.
template <class G>
double worst_error(int world, int node, int bits, const std::vector<std::size_t>& begins) {
  double worst = 0;
  std::mutex mutex;
  const double inside = node == 1 ? 0 : bits == 8 ? 127 : 7;
  CHECK(runtime::run(runtime::RunOptions{.ranks = world, .threads_per_rank = 1}, [&](World& rank) {
          const detail::ShardRanks ranks = ranks_of(rank.communicator(), node);
          auto& device = rank.device();
          const std::size_t size = begins.back();
          detail::Buffer flat = device.allocate(size * sizeof(G));
          for (std::size_t i = 0; i < size; ++i) static_cast<G*>(flat.get())[i] = G(number<G>(rank.rank(), i));
          detail::QuantisedReduction<Exec> reduction(ranks, device, data_type_of<G>, flat, begins, bits);
          flat.reset();
          CHECK(reduction.advanced() == (node == 1));
          const std::size_t first = begins[std::size_t(rank.rank())], count = begins[std::size_t(rank.rank()) + 1] - first;
          std::vector<G> out(count + 1, G(-5));
          reduction.finish(out.data());
          CHECK(out[count] == G(-5));
          for (std::size_t block = 0; block < count; block += 256) {
            const std::size_t end = std::min(count, block + 256);
            double bound = 0, sums = 0;
            for (int from = 0; from < world; from += node) {
              double most_sum = 0;
              for (std::size_t i = block; i < end; ++i) {
                double sum = 0;
                for (int k = 0; k < node; ++k) sum += number<G>(from + k, first + i);
                most_sum = std::max(most_sum, std::abs(sum));
              }
              double first_errors = 0;
              for (int k = 0; k < node && inside > 0; ++k) {
                double most = 0;
                for (std::size_t i = block; i < end; ++i) most = std::max(most, std::abs(number<G>(from + k, first + i)));
                first_errors += most / inside / 2;
              }
              bound += first_errors;
              if (node < world) sums += (most_sum + first_errors) / 127 / 2;
            }
            bound = (bound + sums) * (1 + 1e-4);
            for (std::size_t i = block; i < end; ++i) {
              double exact = 0;
              for (int from = 0; from < world; ++from) exact += number<G>(from, first + i);
              const std::lock_guard lock(mutex);
              worst = std::max(worst, std::abs(double(out[i]) - exact) / bound);
            }
          }
        }) == 0);
  return worst;
}

const models::GptConfig config{.vocabulary = 64, .layers = 3, .width = 64, .heads = 4, .sequence = batch_length};

struct Trained {
  std::vector<double> losses, norms;
  bool operator==(const Trained&) const = default;
};

template <class Wrapped>
Trained train(const ModelOptions& options, int ranks = 4, std::size_t micro_batches = 2, int steps = 8) {
  Trained trained;
  CHECK(runtime::run(runtime::RunOptions{.ranks = ranks, .threads_per_rank = 1}, [&](World& world) {
          const Mesh<dp> mesh(world);
          Wrapped model(mesh, config, options);
          optim::AdamW optimizer(model, {.learning_rate = 1e-2, .clip = 0.5});
          for (int step = 0; step < steps; ++step) {
            const double loss = model.train_step(make_batch(step, std::size_t(world.rank()), std::size_t(ranks), micro_batches));
            const double norm = optimizer.step().gradient_norm;
            if (world.rank() == 0) trained.losses.push_back(loss), trained.norms.push_back(norm);
          }
        }) == 0);
  return trained;
}

using Sharded = FullyShardedDataParallel<Model>;

}  // namespace

TEST_CASE("the error is within half a unit of each of the two roundings") {
  for (const int node : {1, 2, 4})
    for (const int bits : {8, 4}) {
      INFO("4 ranks in nodes of " << node << ", " << bits << " bits");
      const double floats = worst_error<float>(4, node, bits, {0, 700, 1400, 2100, 2800});
      CHECK(floats <= 1);
      CHECK(floats > 0.1);                                                      // the bound is of the right size
      CHECK(worst_error<double>(4, node, bits, {0, 96, 96, 1000, 1032}) <= 1);  // pieces that differ, and none
    }
  CHECK(worst_error<float>(8, 2, 4, {0, 300, 600, 900, 1200, 1500, 1800, 2100, 2400}) <= 1);
  CHECK(worst_error<float>(8, 4, 8, {0, 300, 600, 900, 1200, 1500, 1800, 2100, 2400}) <= 1);
}

TEST_CASE("every stage trains beside sums in float, and repeats its bits") {
  for (const int stage : {1, 2, 3}) {
    INFO("stage " << stage);
    const Trained plain = train<Sharded>({.shard = {.stage = stage}});
    for (const std::size_t node : {1, 2, 4}) {
      const ModelOptions options{.shard = {.stage = stage, .quantised_reduce = node}};
      const Trained small = train<Sharded>(options);
      CHECK(small == train<Sharded>(options));
      CHECK(small != plain);
      CHECK(small.losses[0] == plain.losses[0]);
      CHECK(small.norms[0] == doctest::Approx(plain.norms[0]).epsilon(0.01));
      CHECK(small.losses.back() == doctest::Approx(plain.losses.back()).epsilon(0.02));
    }
  }
  const Trained plain = train<Sharded>({.shard = {.stage = 2}});
  const Trained four = train<Sharded>({.shard = {.stage = 2, .quantised_reduce = 2, .quantised_reduce_bits = 4}});
  CHECK(four.norms[0] == doctest::Approx(plain.norms[0]).epsilon(0.1));
  CHECK(four.losses.back() == doctest::Approx(plain.losses.back()).epsilon(0.05));
  CHECK(train<FullyShardedDataParallel<Model, zero::Stage2, QuantisedReduce<2>>>({}) ==
        train<Sharded>({.shard = {.stage = 2, .quantised_reduce = 2}}));
  // Copies of shards, gathers as integers, one reduction a step, frozen parameters: pieces of different sizes.
  for (ModelOptions options : {ModelOptions{.shard = {.stage = 3, .replicate = 2, .quantised_gather = true}},
                               ModelOptions{.shard = {.stage = 2, .reduce_each_micro_batch = false}},
                               ModelOptions{.shard = {.stage = 3}, .freeze = {"*.mlp.*"}}}) {
    const Trained whole = train<Sharded>(options);
    options.shard.quantised_reduce = 2;
    const Trained small = train<Sharded>(options);
    CHECK(small.norms[0] == doctest::Approx(whole.norms[0]).epsilon(0.01));
    CHECK(small.losses.back() == doctest::Approx(whole.losses.back()).epsilon(0.02));
  }
}

TEST_CASE("at most a quarter of the bytes between nodes") {
  const auto bytes_of = [](std::size_t node, std::string_view axis, std::string_view operation) {
    double bytes = 0;
    CHECK(runtime::run(runtime::RunOptions{.ranks = 8, .threads_per_rank = 1}, [&](World& world) {
            Rehearsal counts;
            World counting(counted(world.communicator(), counts), world.device());
            const Mesh<dp> mesh(counting);
            Sharded model(mesh, config, {.shard = {.stage = 2, .quantised_reduce = node}, .numerics = {.compare_every = 0}});
            optim::AdamW optimizer(model);
            model.train_step(make_batch(0, std::size_t(world.rank()), 8, 1));
            optimizer.step();
            if (world.rank() == 0) bytes = double(counts.of(axis, operation).bytes);
          }) == 0);
    return bytes;
  };
  // Calls count whole arrays. In a ring over 8 ranks, one link leaves a node and carries 7 of the 8 pieces; in an all-to-all
  // between 4 nodes, each of the node's 2 ranks sends 3 of its 4 blocks.
  const double plain = bytes_of(0, "dp", "reduce_scatter") * 7 / 8, small = 2 * bytes_of(2, "dp copies", "all_to_all") * 3 / 4;
  MESSAGE("bytes that leave a node: " << plain << " in float, " << small << " as integers");
  CHECK(plain > 0);
  CHECK(small > 0.15 * plain);
  CHECK(small < 0.25 * plain);
}

TEST_CASE("a gradient that is not finite stays so") {
  std::vector<double> norms(4);
  CHECK(runtime::run(runtime::RunOptions{.ranks = 4, .threads_per_rank = 1}, [&](World& world) {
          const Mesh<dp> mesh(world);
          Sharded model(mesh, config, {.shard = {.stage = 2, .quantised_reduce = 2}});
          optim::AdamW optimizer(model);
          auto values = model.parameter("transformer.wte.weight");
          for (double& value : values) value = 1e30;
          model.set_parameter("transformer.wte.weight", values);
          model.train_step(make_batch(0, std::size_t(world.rank()), 4, 1));
          norms[std::size_t(world.rank())] = optimizer.step().gradient_norm;
        }) == 0);
  for (const double norm : norms) CHECK(!std::isfinite(norm));
}

TEST_CASE("refusals, with the alternatives") {
  const auto refused = [](const ModelOptions& options) {
    std::string text;
    std::mutex mutex;
    (void)runtime::run(runtime::RunOptions{.ranks = 4}, [&](World& world) {
      const Mesh<dp> mesh(world);
      try {
        Sharded model(mesh, config, options);
      } catch (const Error& error) {
        const std::lock_guard lock(mutex);
        text = error.what();
      }
    });
    return text;
  };
  CHECK(refused({.shard = {.stage = 2, .quantised_reduce = 3}}) ==
        "weft: dp(4) % quantised_reduce(3) != 0: use quantised_reduce 2 or 4");
  CHECK(refused({.shard = {.stage = 2, .replicate = 2, .quantised_reduce = 4}}) ==
        "weft: dp / replicate(2) % quantised_reduce(4) != 0: use quantised_reduce 2");
  CHECK(refused({.shard = {.stage = 2, .quantised_reduce = 2, .quantised_reduce_bits = 3}}) ==
        "weft: ModelOptions::shard.quantised_reduce_bits is 3: integers have 8 or 4 bits");
  CHECK(
      refused({.shard = {.stage = 2, .quantised_reduce = 2}, .numerics = {.reproducible = true}}) ==
      "weft: ModelOptions: shard.quantised_reduce sums gradients as integers, so it cannot go with numerics.reproducible; leave "
      "one of them out");
  CHECK(
      refused({.shard = {.stage = 2, .quantised_reduce = 2}, .numerics = {.reduce = DataType::bfloat16}}) ==
      "weft: ModelOptions: shard.quantised_reduce sums gradients as integers, so it cannot go with numerics.reduce in bfloat16; "
      "leave one of them out");
  CHECK(refused({.shard = {.stage = 0, .quantised_reduce = 2}}).find("are for FullyShardedDataParallel") != std::string::npos);
}
