// SPDX-License-Identifier: Apache-2.0
#pragma once
// Two classifiers of small grey images, written forward-only: a convolutional network and a vision transformer. Each is a stack
// of Modules, which every wrapper accepts. The lines with to<...> are the points at which tp's ranks communicate. The scalar is a
// parameter, so that the tests can run the same models in double.
//
//   FullyShardedDataParallel<TensorParallel<PipelineParallel<Cnn<float>>>> model(mesh, {.channels = 16});

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>

#include <weft/nn/batch_norm.hpp>
#include <weft/operations/convolution.hpp>
#include <weft/operations/pooling.hpp>
#include <weft/weft.hpp>

namespace classify {

using namespace weft;

inline constexpr data::Field<"image", float> image;         // [samples, 1, side, side]
inline constexpr data::Field<"label", std::int32_t> label;  // [samples]
using Images = FieldBatch<image, label>;

/// The last unit of both models: scores of the classes, and their cross-entropy.
struct Scores : Module<Scores> {
  Parameter<> table, bias;
  Scores(const auto& context, std::size_t in, std::size_t classes)
      : table(context, "weight", {classes, in}, normal(1 / std::sqrt(double(in)))), bias(context, "bias", {classes}, zeros) {}
  auto scores(const auto& features) const { return matmul(features, table) + bias; }  // [samples, classes]
};

/// 3 x 3 convolutions. Each of `stages` stages has two of them and a pooling that halves the image; the channels double.
template <class S>
struct Cnn {
  using scalar = S;
  using Batch = Images;
  struct Config {
    std::size_t side = 28, channels = 16, stages = 2, classes = 10;
  };

  static auto kernels_of(std::size_t in) { return normal(std::sqrt(2.0 / double(9 * in))); }

  struct Stem : Module<Stem> {
    Parameter<> kernel;
    BatchNorm<> norm;
    Stem(const auto& context, std::size_t out)
        : kernel(context, "weight", {out, 1, 3, 3}, kernels_of(1)), norm(context / "norm", out) {}
    auto forward(const auto& batch) const {
      const auto x = to<Invariant<tp>>(batch[image]);
      return max_pool2d(relu(norm(conv2d(x, kernel, {.padding = 1}))));  // [samples, out, side / 2, side / 2]
    }
  };
  struct Block : Module<Block> {
    Parameter<Shard<tp, 0>> up;  // tp shards the inner channels: outputs of the first, inputs of the second
    BatchNorm<Shard<tp, 0>> up_norm;
    Parameter<Shard<tp, 1>> down;
    BatchNorm<> down_norm;
    Block(const auto& context, std::size_t in, std::size_t out)
        : up(context, "up", {out, in, 3, 3}, kernels_of(in)),
          up_norm(context / "up_norm", out),
          down(context, "down", {out, out, 3, 3}, kernels_of(out)),
          down_norm(context / "down_norm", out) {}
    auto forward(const auto& x) const {
      const auto inside = relu(up_norm(conv2d(to<Replicated<tp>>(x), up, {.padding = 1})));  // [samples, out / tp, side, side]
      const auto y = to<Invariant<tp>>(conv2d(inside, down, {.padding = 1}));                // the sum over tp
      return max_pool2d(relu(down_norm(y)));                                                 // [samples, out, side / 2, side / 2]
    }
  };
  struct Head : Module<Head> {
    Scores last;
    Head(const auto& context, std::size_t in, std::size_t classes) : last(context, in, classes) {}
    auto predict(const auto& x) const { return last.scores(flatten<1, 3>(x)); }
    auto forward(const auto& x, const auto& batch) const { return cross_entropy(predict(x), to<Invariant<tp>>(batch[label])); }
  };

  static auto stack(const auto& context, const Config& config) {
    const auto channels = [config](std::size_t stage) { return config.channels << stage; };
    const std::size_t side = config.side >> (config.stages + 1);
    return Stack(
        [=] { return Stem(context / "stem", config.channels); },
        repeated(config.stages,
                 [=](std::size_t i) { return Block(context / "blocks" / std::to_string(i), channels(i), channels(i + 1)); }),
        [=] { return Head(context / "head", channels(config.stages) * side * side, config.classes); });
  }
  static void check_batch(const Config& config, const Batch& batch) { batch[label].check_labels(config.classes); }
};

/// A vision transformer (Dosovitskiy et al., arXiv:2010.11929) with a mean over the patches at the end.
template <class S>
struct VisionTransformer {
  using scalar = S;
  using Batch = Images;
  struct Config {
    std::size_t side = 28, patch = 4, width = 64, heads = 4, layers = 4, classes = 10;
    std::size_t patches() const { return (side / patch) * (side / patch); }
  };

  struct Patches : Module<Patches> {
    Parameter<> kernel, bias;
    LearnedPositions positions;
    std::size_t patch;
    Patches(const auto& context, const Config& config)
        : kernel(context, "weight", {config.width, 1, config.patch, config.patch}, normal(1.0 / double(config.patch))),
          bias(context, "bias", {config.width}, zeros),
          positions(context / "positions", config.patches(), config.width),
          patch(config.patch) {}
    auto forward(const auto& batch) const {
      const auto x = conv2d(to<Invariant<tp>>(batch[image]), kernel, bias, {.stride = patch});  // [samples, width, high, wide]
      return positions(flatten<0, 1>(transpose<1, 2>(flatten<2, 3>(x))));                       // [samples * patches, width]
    }
  };
  struct Block : Module<Block> {
    LayerNorm norm, mlp_norm;
    Linear<Column> in, up;
    Attention attention;
    Linear<Row> out, down;
    Block(const auto& context, std::size_t width, std::size_t heads)
        : norm(context / "norm", width),
          mlp_norm(context / "mlp_norm", width),
          in(context / "in", width, 3 * width, {.sharding = {{{width, heads}, {width, heads}, {width, heads}}}}),  // q, k and v
          up(context / "up", width, 4 * width),
          attention(context / "attention", {heads, heads, width / heads}, {.causal = false}),
          out(context / "out", width, width, {.sharding = {{{width, heads}}}}),
          down(context / "down", 4 * width, width) {}
    auto forward(const auto& x) const {
      const auto y = x + to_layout_of(x, out(attention(in(norm(x)))));
      return y + to_layout_of(y, down(gelu(up(mlp_norm(y)))));
    }
  };
  struct Head : Module<Head> {
    LayerNorm norm;
    Scores last;
    std::size_t patches;
    Head(const auto& context, const Config& config)
        : norm(context / "norm", config.width), last(context, config.width, config.classes), patches(config.patches()) {}
    auto predict(const auto& x) const { return last.scores(mean<1>(unflatten<0>(norm(x), patches))); }
    auto forward(const auto& x, const auto& batch) const { return cross_entropy(predict(x), to<Invariant<tp>>(batch[label])); }
  };

  static auto stack(const auto& context, const Config& config) {
    return Stack(
        [=] { return Patches(context / "patches", config); },
        repeated(config.layers,
                 [=](std::size_t i) { return Block(context / "blocks" / std::to_string(i), config.width, config.heads); }),
        [=] { return Head(context / "head", config); });
  }
  static void check_batch(const Config& config, const Batch& batch) { batch[label].check_labels(config.classes); }
};

}  // namespace classify
