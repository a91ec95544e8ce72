// SPDX-License-Identifier: Apache-2.0
#pragma once
// Sums of gradients as integers (ZeRO++ qgZ) on ranks of any backend: the error as a part of its bound, and training runs.

#include <algorithm>
#include <cmath>
#include <mutex>
#include <vector>

#include <weft/parallel/fsdp/quantised_reduction.hpp>

#include "support/parity.hpp"

namespace weft_test {

inline detail::ShardRanks quantised_ranks(const Communicator& all, int node) {
  detail::ShardRanks ranks{.all = all, .sharing = all};
  ranks.node = all.split(all.rank() / node, all.rank(), "node");
  ranks.between = all.split(all.rank() % node, all.rank(), "between");
  return ranks;
}

template <class G>
double quantised_term(int rank, std::size_t i) {  // blocks of different sizes
  return double(G(Philox::normal(key_of(7u, std::uint64_t(rank)), i) * (i / 256 % 3 == 1 ? 1e-3 : 1.0)));
}

/// The largest error on this process' ranks, as a part of the bound: half a unit of each rank's block for the first rounding,
/// half a unit of each node's block for the second.
template <class G, class Backend = comm::Threads>
double quantised_error(int world, int node, int bits, const std::vector<std::size_t>& begins) {
  double worst = 0;
  std::mutex mutex;
  const double inside = node == 1 ? 0 : bits == 8 ? 127 : 7;
  CHECK(runtime::run<Backend>(runtime::RunOptions{.ranks = world, .threads_per_rank = 1}, [&](World& rank) {
          const detail::ShardRanks ranks = quantised_ranks(rank.communicator(), node);
          auto& device = rank.device();
          const std::size_t size = begins.back();
          detail::Buffer flat = device.allocate(size * sizeof(G));
          for (std::size_t i = 0; i < size; ++i) static_cast<G*>(flat.get())[i] = G(quantised_term<G>(rank.rank(), i));
          detail::QuantisedReduction<DefaultDevice::execution_space> reduction(ranks, device, data_type_of<G>, flat, begins,
                                                                               bits);
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
                for (int k = 0; k < node; ++k) sum += quantised_term<G>(from + k, first + i);
                most_sum = std::max(most_sum, std::abs(sum));
              }
              double first_errors = 0;
              for (int k = 0; k < node && inside > 0; ++k) {
                double most = 0;
                for (std::size_t i = block; i < end; ++i) most = std::max(most, std::abs(quantised_term<G>(from + k, first + i)));
                first_errors += most / inside / 2;
              }
              bound += first_errors;
              if (node < world) sums += (most_sum + first_errors) / 127 / 2;
            }
            bound = (bound + sums) * (1 + 1e-4);
            for (std::size_t i = block; i < end; ++i) {
              double exact = 0;
              for (int from = 0; from < world; ++from) exact += quantised_term<G>(from, first + i);
              const std::lock_guard lock(mutex);
              worst = std::max(worst, std::abs(double(out[i]) - exact) / bound);
            }
          }
        }) == 0);
  return worst;
}

inline const models::GptConfig quantised_config{.vocabulary = 64, .layers = 3, .width = 64, .heads = 4, .sequence = batch_length};

/// Losses and norms, the same on every rank.
struct QuantisedRun {
  std::vector<double> losses, norms;
  bool operator==(const QuantisedRun&) const = default;
};

template <class Wrapped, class Backend = comm::Threads, class Grid = Mesh<dp>>
QuantisedRun train_quantised(const ModelOptions& options, int ranks = 4, std::size_t micro_batches = 2, int steps = 8) {
  QuantisedRun trained;
  std::mutex mutex;
  CHECK(runtime::run<Backend>(runtime::RunOptions{.ranks = ranks, .threads_per_rank = 1}, [&](World& world) {
          const Grid mesh(world);
          Wrapped model(mesh, quantised_config, options);
          optim::AdamW optimizer(model, {.learning_rate = 1e-2, .clip = 0.5});
          QuantisedRun run;
          for (int step = 0; step < steps; ++step) {
            const double loss = model.train_step(make_batch(step, std::size_t(world.rank()), std::size_t(ranks), micro_batches));
            const double norm = optimizer.step().gradient_norm;
            run.losses.push_back(loss), run.norms.push_back(norm);
          }
          const std::lock_guard lock(mutex);
          if (trained.losses.empty()) trained = run;
          CHECK(run == trained);
        }) == 0);
  return trained;
}

}  // namespace weft_test
