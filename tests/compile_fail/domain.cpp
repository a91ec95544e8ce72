// SPDX-License-Identifier: Apache-2.0
// Models of fields that a domain axis cuts: each mistake is one error, whatever follows it in the model and in its loss.
#include <weft/nn/convolution.hpp>
#include <weft/nn/group_norm.hpp>
#include <weft/weft.hpp>

using namespace weft;

inline constexpr data::Field<"state", float, data::Cut<dx, 2>> state;
inline constexpr data::Field<"classes", std::int32_t, data::Cut<dx, 2>> classes;

// A model of one layer that predicts a field from itself.
template <class L, auto field = state>
struct Net : Module<Net<L, field>> {
  using scalar = float;
  using Batch = FieldBatch<field>;
  struct Config {
    std::size_t width = 4;
  };
  L layer;
  Net(const auto& context, const Config& config) : layer(context / "layer", config.width) {}
  auto loss(const auto& batch) const { return mse(layer(batch[field]), batch[field]); }
};
template <class Wrapped>
double train(World& world, const auto& batch) {
  Mesh<dp, dx> mesh(world, {.dx = 2});
  Wrapped model(mesh, {});
  return model.train_step(batch);
}
struct Identity : Module<Identity> {
  explicit Identity(const auto&, std::size_t) {}
  auto forward(const auto& x) const { return 0.5 * x; }
};

// section: halo_into_a_loss
// Rows of neighbours would be counted on two ranks.
// expect: this operation has no rule for a Halo or its gradient
struct Block : Module<Block> {
  explicit Block(const auto&, std::size_t) {}
#ifdef WEFT_FAIL
  auto forward(const auto& x) const { return to<Halo<dx, 2, 1>>(2 * x); }
#else
  auto forward(const auto& x) const { return to<Shard<dx, 2>>(to<Halo<dx, 2, 1>>(2 * x)); }
#endif
};
auto go(World& world, const FieldBatch<state>& batch) {
  return train<DataParallel<DomainParallel<Net<Block>, dx>>>(world, batch);
}

// section: halo_into_a_layer
// A layer that exchanges by itself takes the piece of a rank.
// expect: this operation has no rule for a Halo or its gradient
struct Block : Module<Block> {
  Conv2d<> conv;
  Block(const auto& context, std::size_t width) : conv(context / "conv", width, width, 3, {.padding = 1}) {}
#ifdef WEFT_FAIL
  auto forward(const auto& x) const { return tanh(conv(to<Halo<dx, 2, 1>>(x))); }
#else
  auto forward(const auto& x) const { return tanh(conv(x)); }
#endif
};
auto go(World& world, const FieldBatch<state>& batch) {
  return train<DataParallel<DomainParallel<Net<Block>, dx>>>(world, batch);
}

// section: sum_of_a_halo_in_a_model
// expect: this operation has no rule for a Halo or its gradient
struct Block : Module<Block> {
  explicit Block(const auto&, std::size_t) {}
#ifdef WEFT_FAIL
  auto forward(const auto& x) const { return x - unflatten<2>(sum<3>(to<Halo<dx, 2, 1>>(x)), 1); }
#else
  auto forward(const auto& x) const { return x - unflatten<2>(sum<3>(x), 1); }
#endif
};
auto go(World& world, const FieldBatch<state>& batch) {
  return train<DataParallel<DomainParallel<Net<Block>, dx>>>(world, batch);
}

// section: linear_of_cut_rows
// A Linear multiplies whole rows, and a domain axis cuts them.
// expect: matmul has no rule for these placements
struct Block : Module<Block> {
  Linear<> layer;
  Block(const auto& context, std::size_t width) : layer(context / "layer", width, width) {}
#ifdef WEFT_FAIL
  auto forward(const auto& x) const { return tanh(layer(x)); }
#else
  auto forward(const auto& x) const { return to<Shard<dx, 2>>(tanh(layer(to<Invariant<dx>>(x)))); }
#endif
};
auto go(World& world, const FieldBatch<state>& batch) {
  return train<DataParallel<DomainParallel<Net<Block>, dx>>>(world, batch);
}

// section: convolution_of_whole_numbers
// A field of classes is no image of numbers.
// expect: arithmetic on whole numbers
// mention: cast<float>\(x\)
struct Block : Module<Block> {
  Conv2d<> conv;
  Block(const auto& context, std::size_t width) : conv(context / "conv", width, width, 3, {.padding = 1}) {}
#ifdef WEFT_FAIL
  auto forward(const auto& x) const { return conv(x); }
#else
  auto forward(const auto& x) const { return conv(cast<float>(x)); }
#endif
};
auto go(World& world, const FieldBatch<classes>& batch) {
  return train<DataParallel<DomainParallel<Net<Block, classes>, dx>>>(world, batch);
}

// section: axis_that_the_mesh_lacks
// The mesh has dx and the wrapper dy.
// expect: the model has a wrapper for an axis that this Mesh lacks
#ifdef WEFT_FAIL
using Model = DataParallel<DomainParallel<Net<Identity>, dy>>;
#else
using Model = DataParallel<DomainParallel<Net<Identity>, dx>>;
#endif
auto go(World& world, const FieldBatch<state>& batch) { return train<Model>(world, batch); }

// section: axis_of_parameters
// expect: DomainParallel names its axes, which are dx, dy and dz
#ifdef WEFT_FAIL
using Model = DataParallel<DomainParallel<Net<Identity>, tp>>;
#else
using Model = DataParallel<DomainParallel<Net<Identity>, dx>>;
#endif
auto go(World& world, const FieldBatch<state>& batch) { return train<Model>(world, batch); }

// section: no_axis
// expect: DomainParallel names its axes, which are dx, dy and dz
#ifdef WEFT_FAIL
using Model = DataParallel<DomainParallel<Net<Identity>>>;
#else
using Model = DataParallel<DomainParallel<Net<Identity>, dx>>;
#endif
auto go(World& world, const FieldBatch<state>& batch) { return train<Model>(world, batch); }

// section: cross_entropy_of_cut_points
// expect: cross_entropy of classes: an axis other than tp cuts the classes .dim 1., or one cuts a later dim
// mention: sum<1>.targets . log_softmax<1>.logits..
struct Points : Module<Points> {
  using scalar = float;
  using Batch = FieldBatch<state, classes>;
  struct Config {};
  Points(const auto&, const Config&) {}
  auto loss(const auto& batch) const {
#ifdef WEFT_FAIL
    return cross_entropy(batch[state], batch[classes]);
#else
    return sum_losses(to<Invariant<dx>>(mean<1>(-sum<1>(batch[state] * log_softmax<1>(batch[state])))));
#endif
  }
};
auto go(World& world, const Points::Batch& batch) { return train<DataParallel<DomainParallel<Points, dx>>>(world, batch); }
