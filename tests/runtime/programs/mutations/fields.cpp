// SPDX-License-Identifier: Apache-2.0
// Images and graphs that domain axes cut (test_mutations.py): convolutions, statistics over images and samples, means of images,
// ghost nodes, and state that ranks of domain axes share.
#include "programs.hpp"

#include <cmath>
#include <cstddef>

#include <weft/nn/batch_norm.hpp>
#include <weft/nn/convolution.hpp>
#include <weft/nn/group_norm.hpp>
#include <weft/operations/functions.hpp>
#include <weft/operations/graph.hpp>
#include <weft/operations/losses.hpp>
#include <weft/operations/pooling.hpp>
#include <weft/operations/segments.hpp>
#include <weft/parallel/domain_parallel.hpp>

using namespace mutations;

namespace {

inline constexpr data::Field<"state", float, data::Cut<dx, 2>, data::Cut<dy, 3>> state;
inline constexpr data::Field<"next", float, data::Cut<dx, 2>, data::Cut<dy, 3>> next;

struct Images : Module<Images> {
  using scalar = float;
  using Batch = FieldBatch<state, next>;
  struct Config {};
  Conv2d<Shard<tp, 0>> first;
  BatchNorm<Shard<tp, 0>> samples;
  GroupNorm<Shard<tp, 0>> groups;
  Conv2d<> second;
  Linear<> gate;
  Images(const auto& at, const Config&)
      : first(at / "first", 1, 4, 3, {.padding = 1}),
        samples(at / "samples", 4),
        groups(at / "groups", 4, 4),
        second(at / "second", 4, 1, 3, {.padding = 1, .mode = PaddingMode::periodic}),
        gate(at / "gate", 4, 1) {}
  auto loss(const auto& batch) const {
    const auto inside = to<Invariant<tp>>(tanh(groups(samples(first(to<Replicated<tp>>(batch[state]))))));
    const auto open = to<Replicated<dy>>(to<Replicated<dx>>(sigmoid(gate(global_avg_pool2d(inside)))));  // [samples, 1]
    return mse(second(inside) * reshape(open, {open.shape()[0], 1, 1, 1}), to<Invariant<tp>>(batch[next]));
  }
};

/// The elements of a rank, of `whole`.
struct Part {
  Part(std::size_t whole, std::size_t ranks, std::size_t rank)
      : first(whole * rank / ranks), count(whole * (rank + 1) / ranks - first) {}
  std::size_t first, count;
};

template <class Model, class M, class B>
void train_fields(M& mesh, const ModelOptions& options, const B& batch_of) {
  Model model(mesh, {}, options);
  optim::AdamW optimizer(model, {.learning_rate = 1e-2, .clip = 0.1});
  for (int step = 0; step < 2; ++step) {
    model.train_step(batch_of(step));
    optimizer.step();
  }
}

void train_images(World& world, const ModelOptions& options) {
  constexpr std::size_t samples = 12, rows = 8, columns = 12;
  Mesh<dp, tp, dx, dy> mesh(world);
  const data::Share share = data::share_of(mesh);
  const Part here(samples, std::size_t(share.size), std::size_t(share.rank)), at_x(rows, mesh.size(dx{}), mesh.rank(dx{})),
      at_y(columns, mesh.size(dy{}), mesh.rank(dy{}));
  using Model = FullyShardedDataParallel<TensorParallel<DomainParallel<Images, dx, dy>>>;
  train_fields<Model>(mesh, options, [&](int step) {
    Images::Batch batch{.samples = here.count, .first_sample = here.first};
    const auto fill = [&](auto field, double shift) {
      auto values = batch[field].resize(here.count, {1, at_x.count, at_y.count});
      std::size_t at = 0;
      for (std::size_t n = 0; n < here.count; ++n)
        for (std::size_t i = 0; i < at_x.count; ++i)
          for (std::size_t j = 0; j < at_y.count; ++j)
            values[at++] = float(
                std::sin(double(((here.first + n) * rows + at_x.first + i) * columns + at_y.first + j) * 1.37 + shift + step));
    };
    fill(state, 0), fill(next, 1);
    return batch;
  });
}

inline constexpr data::Field<"value", float, data::Cut<dx, 1>> value;
inline constexpr data::Field<"next_value", float, data::Cut<dx, 1>> next_value;
inline constexpr data::Field<"sender", std::int32_t, data::Cut<dx, 1>> sender;
inline constexpr data::Field<"receiver", std::int32_t, data::Cut<dx, 1>> receiver;

struct Graph : Module<Graph> {
  using scalar = float;
  using Batch = FieldBatch<value, next_value, sender, receiver>;
  struct Config {};
  static constexpr bool loss_is_a_sum = true;  // ids count the rows of a micro-batch
  Linear<> up, mixed, down;
  BatchNorm<> norm;
  Graph(const auto& at, const Config&)
      : up(at / "up", 1, 4), mixed(at / "mixed", 8, 4), down(at / "down", 4, 1), norm(at / "norm", 4) {}
  auto loss(const auto& batch) const {
    const auto of = [&](auto field) { return to<Invariant<tp>>(batch[field]); };
    const auto graph = graph_part<dx>(of(value), of(sender), of(receiver));
    const auto x = tanh(up(merge_samples(of(value))));
    const auto around = to<Ghosts<dx>>(x, graph);
    const auto far = index_select(around * around, graph.from), near = index_select(around, graph.into);
    const std::size_t nodes = x.shape()[0];
    const auto part = segment_softmax(far * near, graph.into, nodes, local_ids);
    const auto y = x + mixed(concat<1>(scatter_add(part * far, graph.into, nodes, local_ids), x));
    return mse(split_samples(down(norm(y))), of(next_value));
  }
};

/// Each node receives two edges, whose senders are other nodes in each sample.
void train_graph(World& world) {
  constexpr std::size_t samples = 12, nodes = 11;
  Mesh<dp, tp, dx> mesh(world);
  const data::Share share = data::share_of(mesh);
  const Part here(samples, std::size_t(share.size), std::size_t(share.rank)), mine(nodes, mesh.size(dx{}), mesh.rank(dx{}));
  using Model = DataParallel<TensorParallel<DomainParallel<Graph, dx>>>;
  train_fields<Model>(mesh, {.seed = 3}, [&](int step) {
    Graph::Batch batch{.samples = here.count, .first_sample = here.first};
    const auto fill = [&](auto field, double shift) {
      auto values = batch[field].resize(here.count, {mine.count, 1});
      for (std::size_t i = 0; i < values.size(); ++i)
        values[i] =
            float(std::sin(double((here.first + i / mine.count) * nodes + mine.first + i % mine.count) * 1.37 + shift + step));
    };
    fill(value, 0), fill(next_value, 1);
    auto from = batch[sender].resize(here.count, {2 * mine.count}), into = batch[receiver].resize(here.count, {2 * mine.count});
    for (std::size_t i = 0; i < from.size(); ++i) {
      const std::size_t sample = i / (2 * mine.count), node = mine.first + i / 2 % mine.count, before = sample * nodes;
      from[i] = std::int32_t(before + (node + 1 + (here.first + sample) * 3 + i % 2 * 4) % nodes);
      into[i] = std::int32_t(before + node);
    }
    return batch;
  });
}

}  // namespace

int main(int argc, char** argv) {
  return main_of(argc, argv, [](World& world, const std::string& name) {
    if (name == "images") train_images(world, {.seed = 3});
    else if (name == "domain") train_images(world, {.seed = 3, .shard = {.over_domain = true}});
    else if (name == "graph") train_graph(world);
    else return false;
    return true;
  });
}
