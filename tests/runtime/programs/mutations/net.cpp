// SPDX-License-Identifier: Apache-2.0
// A model of a user's own: operations whose rows tp cuts, statistics over the samples of all ranks, a custom training loop, Muon
// (test_mutations.py).
#include "programs.hpp"

using namespace mutations;

namespace {

inline constexpr data::Field<"input", float> input;
inline constexpr data::Field<"label", std::int32_t> label;

struct Net : Module<Net> {
  using scalar = float;
  using Batch = FieldBatch<input, label>;
  struct Config {
    std::size_t inputs = 8, hidden = 16, classes = 12;
  };
  Parameter<Shard<tp, 0>> up, last;
  Parameter<Shard<tp, 1>> down;
  Net(const auto& context, const Config& c)
      : up(context, "up", {c.hidden, c.inputs}, normal(0.4)),
        last(context, "last", {c.classes, c.inputs}, normal(0.4)),
        down(context, "down", {c.inputs, c.hidden}, normal(0.4)) {}
  auto forward(const auto& x) const {
    auto whole = to<Replicated<tp>>(x);
    auto inside = softmax(to<Invariant<tp>>(matmul(whole, up)));
    auto branch = matmul(to<Shard<tp, 1>>(inside), down);
    return matmul(to<Replicated<tp>>(x + to_layout_of(x, branch)), last);  // [samples, classes / tp]
  }
  auto loss(const auto& batch) const { return cross_entropy(forward(batch[input]), to<Invariant<tp>>(batch[label])); }
};

template <class Model, class Optimizer>
void train_net(World& world, bool own_loop) {
  Mesh<dp, tp> mesh(world);
  Model model(mesh, {}, {.seed = 3});
  Optimizer optimizer(model, {.learning_rate = 1e-2, .clip = 0.1});
  for (std::uint64_t step = 0; step < 2; ++step) {
    const std::size_t ranks = mesh.size(dp{}), mine = 12 / ranks, first = std::size_t(mesh.rank(dp{})) * mine;
    Net::Batch batch{.samples = mine, .micro_batches = !own_loop && mine % 2 == 0 ? 2u : 1u, .first_sample = first};
    auto x = batch[input].resize(mine, {8});
    auto y = batch[label].resize(mine, {});
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = float(Philox::uniform(key_of(5, step, 1), first * 8 + i) - 0.5);
    for (std::size_t i = 0; i < y.size(); ++i) y[i] = std::int32_t(Philox::uniform(key_of(5, step, 2), first + i) * 12);
    if (own_loop) model.loss(batch).backward();
    else model.train_step(batch);
    optimizer.step();
  }
}

}  // namespace

int main(int argc, char** argv) {
  return main_of(argc, argv, [](World& world, const std::string& name) {
    if (name == "net") train_net<DataParallel<TensorParallel<Net>>, optim::AdamW>(world, false);
    else if (name == "loop") train_net<DataParallel<TensorParallel<Net>>, optim::AdamW>(world, true);
    else if (name == "muon") train_net<FullyShardedDataParallel<TensorParallel<Net>>, optim::Muon>(world, false);
    else return false;
    return true;
  });
}
