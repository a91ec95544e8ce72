// SPDX-License-Identifier: Apache-2.0
// Convolutions and pooling.
#include <weft/nn/batch_norm.hpp>
#include <weft/nn/convolution.hpp>
#include <weft/nn/group_norm.hpp>
#include <weft/operations/convolution.hpp>
#include <weft/operations/functions.hpp>
#include <weft/operations/pooling.hpp>
#include <weft/operations/upsample.hpp>
#include <weft/weft.hpp>

using namespace weft;

template <class... P>
using X = Tensor<float, Kokkos::DefaultExecutionSpace, P...>;

using Over =
    decltype(std::declval<Context<Compute<Kokkos::DefaultExecutionSpace, float>>>().with<Invariant<tp>>(tp{}, Communicator()));

// section: batch_norm_of_cut_channels
// Channels that tp shards, with a gain for all of them.
// expect: BatchNorm: an axis cuts the channels of x and not the parameters
// mention: BatchNorm<Shard<tp, 0>>
#ifdef WEFT_FAIL
auto go(const Over& context, X<Shard<tp, 1>> x, BatchNorm<> norm) { return norm.forward(context, x).output; }
#else
auto go(const Over& context, X<Shard<tp, 1>> x, BatchNorm<Shard<tp, 0>> norm) { return norm.forward(context, x).output; }
#endif

// section: conv2d_in_a_forward
// A mistake in the middle of a forward gives one error, independent of later uses of its result.
// expect: a convolution has no rule for these placements
// mention: x is Replicated and w cut along its outputs
struct Block : Module<Block> {
  Parameter<Shard<tp, 0>> w;
  explicit Block(const auto& context) : w(context, "w", {4, 3, 3, 3}, normal(1)) {}
  auto forward(const auto& x) const {
#ifdef WEFT_FAIL
    return max_pool2d(relu(conv2d(x, w) * 2));
#else
    return max_pool2d(relu(conv2d(to<Replicated<tp>>(x), w) * 2));
#endif
  }
};

auto go(const Over& context, Tensor<float, Kokkos::DefaultExecutionSpace, Invariant<tp>> x) {
  return weft::forward(Block(context), context, x).output;
}

// section: conv2d_not_entered
// Output channels that tp cuts, of an image that has not entered the parallel region.
// expect: a convolution has no rule for these placements
// mention: x is Replicated and w cut along its outputs
#ifdef WEFT_FAIL
auto go(const Over&, X<Invariant<tp>> x, X<Shard<tp, 0>> w) { return conv2d(x, w); }
#else
auto go(const Over& context, X<Invariant<tp>> x, X<Shard<tp, 0>> w) { return conv2d(to<Replicated<tp>>(context, x), w); }
#endif

// section: layer_of_cut_kernels
// Ranks cut channels of the weights, not their kernels.
// expect: the rule of a convolution is that of its output channels
// mention: Conv2d<Shard<tp, 1>>
#ifdef WEFT_FAIL
using Layer = Conv2d<Shard<tp, 2>>;
#else
using Layer = Conv2d<Shard<tp, 1>>;
#endif
auto go(const Over& context) { return Layer(context / "layer", 4, 4, 3, {.bias = false}); }

// section: conv3d_of_cut_rows
// A kernel at the border of a rank's rows lacks its neighbour's.
// expect: a convolution has no rule for these placements
// mention: no axis cuts the dims of an image
struct Volumes : Module<Volumes> {
  Parameter<> w;
  explicit Volumes(const auto& context) : w(context, "w", {4, 3, 3, 3, 3}, normal(1)) {}
  auto forward(const auto& x) const {
#ifdef WEFT_FAIL
    return relu(conv3d(x, w, {.padding = 1}));
#else
    return relu(conv3d(to<Invariant<tp>>(x), w, {.padding = 1}));
#endif
  }
};

auto go(const Over& context, Tensor<float, Kokkos::DefaultExecutionSpace, Shard<tp, 3>> x) {
  return weft::forward(Volumes(context), context, x).output;
}

// section: depthwise_conv2d_with_a_number
// The bias of a convolution is a parameter, with options or without.
// expect: depthwise_conv2d cannot be called with these arguments
inline constexpr data::Field<"input", float> input;

struct Net : Module<Net> {
  using scalar = float;
  using Batch = FieldBatch<input>;
  struct Config {
    std::size_t width = 4;
  };
  Linear<> layer;
  Parameter<> table;
  Net(const auto& context, const Config& config)
      : layer(context / "layer", config.width, config.width), table(context, "table", {4, 1, 3, 3}, normal(1)) {}
#ifdef WEFT_FAIL
  auto forward(const auto& x) const {
    auto h = depthwise_conv2d(reshape(layer(x), {1, 4, 2, 2}), table, 2, {.padding = 1});
    return reshape(silu(h), {4, 4});
  }
#else
  auto forward(const auto& x) const {
    auto h = depthwise_conv2d(reshape(layer(x), {1, 4, 2, 2}), table, {.padding = 1});
    return reshape(silu(h), {4, 4});
  }
#endif
  auto loss(const auto& batch) const { return mse(forward(batch[input]), batch[input]); }
};

double go(World& world, const Net::Batch& batch) {
  Mesh<dp> mesh(world);
  DataParallel<Net> model(mesh, {});
  return model.train_step(batch);
}

// section: global_avg_pool2d_of_cut_rows
// The mean of an image that an axis cuts is refused once.
// expect: pooling needs whole images
struct Block : Module<Block> {
  Parameter<> bias;
  explicit Block(const auto& context) : bias(context, "bias", {4}, zeros) {}
  auto forward(const auto& x) const {
#ifdef WEFT_FAIL
    return relu(global_avg_pool2d(x));
#else
    return relu(global_avg_pool2d(to<Invariant<tp>>(x)));
#endif
  }
};

auto go(const Over& context, Tensor<float, Kokkos::DefaultExecutionSpace, Shard<tp, 2>> x) {
  return weft::forward(Block(context), context, x).output;
}

// section: group_norm_of_cut_channels
// Channels that tp shards, with a gain for all of them.
// expect: GroupNorm: an axis cuts the channels of x and not the parameters
// mention: GroupNorm<Shard<tp, 0>>
#ifdef WEFT_FAIL
auto go(const Over& context, X<Shard<tp, 1>> x, GroupNorm<> norm) { return norm.forward(context, x).output; }
#else
auto go(const Over& context, X<Shard<tp, 1>> x, GroupNorm<Shard<tp, 0>> norm) { return norm.forward(context, x).output; }
#endif

// section: instance_norm_of_cut_rows
// The mean of an image needs all of it.
// expect: GroupNorm needs whole images
#ifdef WEFT_FAIL
auto go(const Over& context, X<Shard<tp, 4>> x, InstanceNorm<> norm) { return norm.forward(context, x).output; }
#else
auto go(const Over& context, X<Invariant<tp>> x, InstanceNorm<> norm) { return norm.forward(context, x).output; }
#endif

// section: pooling_of_cut_images
// A window at the border of a rank's rows lacks its neighbour's.
// expect: pooling needs whole images
// mention: cut samples or channels
#ifdef WEFT_FAIL
auto go(const Over&, X<Shard<tp, 2>> x) { return max_pool2d(x); }
#else
auto go(const Over&, X<Shard<tp, 1>> x) { return max_pool2d(x); }
#endif

// section: upsample_of_cut_rows
// An element between two rows needs both.
// expect: upsample needs whole images
// mention: cut samples or channels
#ifdef WEFT_FAIL
auto go(const Over&, X<Shard<tp, 2>> x) { return upsample(x, {.mode = UpsampleMode::linear}); }
#else
auto go(const Over&, X<Shard<tp, 1>> x) { return upsample(x, {.mode = UpsampleMode::linear}); }
#endif

// section: convolution_without_its_context
// expect: a convolution takes the context with its name
// mention: in, out, 3\)
struct Block : Module<Block> {
  Conv2d<> layer;
#ifdef WEFT_FAIL
  explicit Block([[maybe_unused]] const auto& context) : layer(3, 4, 3) {}
#else
  explicit Block(const auto& context) : layer(context / "layer", 3, 4, 3) {}
#endif
  auto forward(const auto& x) const { return tanh(layer(x)); }
};
auto go(const Over& context, X<Invariant<tp>> x) { return weft::forward(Block(context), context, x).output; }

// section: options_of_a_convolution_as_numbers
// expect: a convolution takes the context with its name
// mention: \{.stride = 2, .padding = 1\}
struct Block : Module<Block> {
  Conv2d<> layer;
#ifdef WEFT_FAIL
  explicit Block([[maybe_unused]] const auto& context) : layer(context / "layer", 3, 4, 3, 1, 1) {}
#else
  explicit Block(const auto& context) : layer(context / "layer", 3, 4, 3, {.stride = 1, .padding = 1}) {}
#endif
  auto forward(const auto& x) const { return tanh(layer(x)); }
};
auto go(const Over& context, X<Invariant<tp>> x) { return weft::forward(Block(context), context, x).output; }

// section: group_norm_without_groups
// expect: GroupNorm takes the context with its name, the groups and the channels
// mention: 8, channels\)
struct Block : Module<Block> {
  GroupNorm<> layer;
#ifdef WEFT_FAIL
  explicit Block([[maybe_unused]] const auto& context) : layer(context / "layer", 4) {}
#else
  explicit Block(const auto& context) : layer(context / "layer", 2, 4) {}
#endif
  auto forward(const auto& x) const { return tanh(layer(x)); }
};
auto go(const Over& context, X<Invariant<tp>> x) { return weft::forward(Block(context), context, x).output; }

// section: instance_norm_without_its_context
// expect: InstanceNorm takes the context with its name and the channels
// mention: , channels\)
struct Block : Module<Block> {
  InstanceNorm<> layer;
#ifdef WEFT_FAIL
  explicit Block([[maybe_unused]] const auto& context) : layer(4) {}
#else
  explicit Block(const auto& context) : layer(context / "layer", 4) {}
#endif
  auto forward(const auto& x) const { return tanh(layer(x)); }
};
auto go(const Over& context, X<Invariant<tp>> x) { return weft::forward(Block(context), context, x).output; }

// section: momentum_of_a_batch_norm_as_a_number
// expect: BatchNorm takes the context with its name and the channels
// mention: \{.momentum = 0.1\}
struct Block : Module<Block> {
  BatchNorm<> layer;
#ifdef WEFT_FAIL
  explicit Block([[maybe_unused]] const auto& context) : layer(context / "layer", 4, 0.1) {}
#else
  explicit Block(const auto& context) : layer(context / "layer", 4, {.momentum = 0.1}) {}
#endif
  auto forward(const auto& x) const { return tanh(layer(x)); }
};
auto go(const Over& context, X<Invariant<tp>> x) { return weft::forward(Block(context), context, x).output; }
