// SPDX-License-Identifier: Apache-2.0
#pragma once
// Models of graphs whose nodes dx cuts, and their comparison with one rank: message passing and a potential of examples/fields,
// and a network of all operations over segments with BatchNorm. Parts are uneven, a node may have no edges, and graphs differ
// from sample to sample.
//
//   weft_test::check_graph<AttentionNet<double>>({.ranks = 4, .degrees = {.dx = 4}});

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include <weft/nn/batch_norm.hpp>
#include <weft/optim/sgd.hpp>
#include <weft/parallel/domain_parallel.hpp>
#include <weft/weft.hpp>

#include "examples/fields/mesh.hpp"
#include "examples/fields/potential.hpp"
#include "support/domain_steps.hpp"

namespace weft_test {

using namespace weft;
using ::fields::Meshes, ::fields::MeshNet, ::fields::Molecules, ::fields::Potential;

/// Softmax, mean, maximum and sum over the edges of each node.
template <class S>
struct AttentionNet : Module<AttentionNet<S>> {
  using scalar = S;
  using Batch = Meshes;
  struct Config {};
  static constexpr bool loss_is_a_sum = true;
  static constexpr std::size_t width = 4;
  Linear<> up, mixed, down;
  BatchNorm<> norm;
  AttentionNet(const auto& at, const Config&)
      : up(at / "up", 1, width), mixed(at / "mixed", 4 * width, width), down(at / "down", width, 1), norm(at / "norm", width) {}
  auto loss(const auto& batch) const {
    const auto of = [&](auto field) { return to<Invariant<tp>>(batch[field]); };
    const auto graph = graph_part<dx>(of(::fields::value), of(::fields::sender), of(::fields::receiver));
    auto x = tanh(up(merge_samples(of(::fields::value))));
    for (int round = 0; round < 2; ++round) {
      const auto around = to<Ghosts<dx>>(x, graph);
      const auto far = index_select(around * around, graph.from), near = index_select(around, graph.into);
      const std::size_t nodes = x.shape()[0];
      const auto part = segment_softmax(far * near, graph.into, nodes, local_ids);
      x = x +
          mixed(concat<1>(scatter_add(part * far, graph.into, nodes, local_ids), segment_mean(far, graph.into, nodes, local_ids),
                          segment_max(far, graph.into, nodes, local_ids), x));
    }
    return mse(split_samples(down(norm(x))), of(::fields::next_value));
  }
};

inline constexpr std::size_t graph_samples = 4, graph_nodes = 11;

/// The samples of a share, and the nodes of each on a rank.
template <class Batch>
Batch graph_batch(const data::Share& share, std::size_t ranks, std::size_t rank, std::size_t micro_batches) {
  const std::size_t here = graph_samples / std::size_t(share.size), first = here * std::size_t(share.rank);
  const UnevenPiece nodes(graph_nodes, ranks, rank);
  const auto senders_of = [](std::size_t node) { return node == 3 ? 0 : 1 + node * 5 % 4; };
  std::size_t edges = 0;
  for (std::size_t node = nodes.first; node < nodes.end(); ++node) edges += senders_of(node);
  Batch batch;
  batch.samples = here, batch.first_sample = first, batch.micro_batches = micro_batches;
  // Columns of each node or edge of a sample, as a function of its place in the whole.
  const auto fill = [&](auto field, std::size_t begin, std::size_t count, std::size_t columns, double shift) {
    auto values = batch[field].resize(here, {count, columns});
    for (std::size_t at = 0; at < values.size(); ++at) {
      const std::size_t sample = first + at / (count * columns);
      values[at] = float(std::sin(double((sample * 1000 + begin) * columns + at % (count * columns)) * 1.37 + shift));
    }
  };
  std::size_t edges_before = 0;
  for (std::size_t node = 0; node < nodes.first; ++node) edges_before += senders_of(node);
  constexpr bool molecules = std::is_same_v<Batch, Molecules>;
  if constexpr (molecules) {
    fill(::fields::position, nodes.first, nodes.count, 3, 0), fill(::fields::force, nodes.first, nodes.count, 3, 1);
    auto energies = batch[::fields::energy].resize(here, {1});
    for (std::size_t i = 0; i < here; ++i) energies[i] = float(first + i) - 1;
  } else {
    fill(::fields::value, nodes.first, nodes.count, 1, 0), fill(::fields::next_value, nodes.first, nodes.count, 1, 1);
    fill(::fields::edge, edges_before, edges, 3, 2);
  }
  auto [from, into] = [&] {
    if constexpr (molecules)
      return std::pair(batch[::fields::neighbour].resize(here, {edges}), batch[::fields::atom].resize(here, {edges}));
    else return std::pair(batch[::fields::sender].resize(here, {edges}), batch[::fields::receiver].resize(here, {edges}));
  }();
  std::size_t at = 0;
  for (std::size_t sample = 0; sample < here; ++sample)
    for (std::size_t node = nodes.first; node < nodes.end(); ++node)
      for (std::size_t i = 0; i < senders_of(node); ++i, ++at) {
        const std::size_t before = sample % (here / micro_batches) * graph_nodes;
        from[at] = std::int32_t(before + (node + 1 + (first + sample) * 3 + i * 2) % graph_nodes);
        into[at] = std::int32_t(before + node);
      }
  return batch;
}

template <class M, class Batch>
DomainSteps graph_steps(M& model, const Batch& batch) {
  DomainSteps all;
  all.names = model.parameter_names();
  optim::Sgd step(model, {.learning_rate = 0.02, .momentum = 0.9});
  for (int i = 0; i < 3; ++i) {
    all.losses.push_back(model.train_step(batch));
    for (const std::string& name : all.names) all.gradients.push_back(model.gradient(name));
    step.step();
  }
  REQUIRE(all.losses.back() != all.losses.front());
  return all;
}
/// The same on one rank, on which no axis is in force; once for each process.
template <class Model>
const DomainSteps& graph_of_one_rank(DefaultDevice& device) {
  static const DomainSteps steps = [&] {
    SingleDevice<Model> model(device, {});
    return graph_steps(model, graph_batch<typename Model::Batch>({0, 1}, 1, 0, 1));
  }();
  return steps;
}
struct GraphLayout {
  int ranks;
  Degrees degrees;
  ModelOptions options = {};
  std::size_t micro_batches = 1;
};
template <class Model, comm::Backend Backend = comm::Threads>
void check_graph(const GraphLayout& layout) {
  std::mutex mutex;
  std::size_t compared = 0;
  const int code = runtime::run<Backend>(runtime::RunOptions{.ranks = layout.ranks}, [&](World& world) {
    const DomainSteps& reference = graph_of_one_rank<Model>(world.device());
    const Mesh<dp, tp, dx> mesh(world, layout.degrees);
    FullyShardedDataParallel<TensorParallel<DomainParallel<Model, dx>>> model(mesh, {}, layout.options);
    const auto batch = graph_batch<typename Model::Batch>(data::share_of(mesh), std::size_t(mesh.size(dx())),
                                                          std::size_t(mesh.rank(dx())), layout.micro_batches);
    const double worst = domain_difference(graph_steps(model, batch), reference);
    const std::lock_guard lock(mutex);
    INFO(mesh.text(), ": ", worst);
    CHECK(worst < 1e-13);
    ++compared;
  });
  CHECK(code == 0);
  CHECK(compared > 0);
}

}  // namespace weft_test
