// SPDX-License-Identifier: Apache-2.0
#pragma once
// The residual networks of torchvision (He et al., arXiv:1512.03385), written forward-only, with torchvision's names and initial
// distributions of parameters: "layer1.0.conv1.weight". A safetensors file of torchvision's state_dict() loads into them in any
// layout (weights.hpp). Networks of 50 and more layers have the stride in the 3 x 3 convolution, as torchvision's.
//
//   DataParallel<ResNet<float, Bottleneck>> model(mesh, {.classes = 1000, .depth = 50});

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include <weft/nn/batch_norm.hpp>
#include <weft/operations/convolution.hpp>
#include <weft/operations/pooling.hpp>
#include <weft/weft.hpp>

namespace imagenet {

using namespace weft;

inline constexpr data::Field<"image", float> image;         // [samples, 3, size, size]
inline constexpr data::Field<"label", std::int32_t> label;  // [samples]
using Images = FieldBatch<image, label>;

struct Config {
  std::size_t classes = 1000, width = 64;  ///< of the stem; the four stages have 1, 2, 4 and 8 times as many channels inside
  std::size_t depth = 50;                  ///< layers with weights: 18, 34, 50, 101, 152; 10 and 14 have one block a stage
  double label_smoothing = 0;              ///< in [0, 1), as torch.nn.CrossEntropyLoss has it
};

/// Whether torchvision's network of this depth has blocks of three convolutions.
constexpr bool has_bottlenecks(std::size_t depth) { return depth == 14 || depth >= 50; }
/// Blocks of the four stages.
constexpr std::array<std::size_t, 4> blocks_of(std::size_t depth) {
  switch (depth) {
    case 10:
    case 14: return {1, 1, 1, 1};
    case 18: return {2, 2, 2, 2};
    case 101: return {3, 4, 23, 3};
    case 152: return {3, 8, 36, 3};
    default: return {3, 4, 6, 3};  // 34 and 50
  }
}

/// A convolution without bias, initialised as kaiming_normal_(mode="fan_out", nonlinearity="relu").
struct Convolution : Module<Convolution> {
  Parameter<> weight;
  ConvolutionOptions options;
  Convolution(const auto& context, std::size_t in, std::size_t out, std::size_t kernel, std::size_t stride)
      : weight(context, "weight", {out, in, kernel, kernel}, normal(std::sqrt(2.0 / double(out * kernel * kernel)))),
        options{.stride = stride, .padding = kernel / 2} {}
  auto forward(const auto& x) const { return conv2d(x, weight, options); }
};

/// The shortcut of a block that changes the shape: "downsample.0" and "downsample.1".
struct Downsample : Module<Downsample> {
  Convolution convolution;
  BatchNorm<> norm;
  Downsample(const auto& context, std::size_t in, std::size_t out, std::size_t stride)
      : convolution(context / "0", in, out, 1, stride), norm(context / "1", out) {}
  auto forward(const auto& x) const { return norm(convolution(x)); }
};

/// The extents of a block.
struct BlockShape {
  std::size_t in, width, stride;  ///< channels of the input and inside
};
std::optional<Downsample> downsample(const auto& context, const BlockShape& shape, std::size_t out) {
  if (shape.stride == 1 && shape.in == out) return std::nullopt;
  return std::optional<Downsample>(std::in_place, context / "downsample", shape.in, out, shape.stride);
}

/// Two 3 x 3 convolutions.
struct BasicBlock : Module<BasicBlock> {
  static constexpr std::size_t expansion = 1;
  Convolution conv1, conv2;
  BatchNorm<> bn1, bn2;
  std::optional<Downsample> shortcut;
  BasicBlock(const auto& context, const BlockShape& shape)
      : conv1(context / "conv1", shape.in, shape.width, 3, shape.stride),
        conv2(context / "conv2", shape.width, shape.width, 3, 1),
        bn1(context / "bn1", shape.width),
        bn2(context / "bn2", shape.width),
        shortcut(downsample(context, shape, shape.width)) {}
  auto forward(const auto& x) const {
    const auto y = bn2(conv2(relu(bn1(conv1(x)))));  // [samples, width, height / stride, width / stride]
    return relu(y + (shortcut ? (*shortcut)(x) : x));
  }
};

/// A 1 x 1, a 3 x 3 and a 1 x 1 convolution.
struct Bottleneck : Module<Bottleneck> {
  static constexpr std::size_t expansion = 4;
  Convolution conv1, conv2, conv3;
  BatchNorm<> bn1, bn2, bn3;
  std::optional<Downsample> shortcut;
  Bottleneck(const auto& context, const BlockShape& shape)
      : conv1(context / "conv1", shape.in, shape.width, 1, 1),
        conv2(context / "conv2", shape.width, shape.width, 3, shape.stride),
        conv3(context / "conv3", shape.width, 4 * shape.width, 1, 1),
        bn1(context / "bn1", shape.width),
        bn2(context / "bn2", shape.width),
        bn3(context / "bn3", 4 * shape.width),
        shortcut(downsample(context, shape, 4 * shape.width)) {}
  auto forward(const auto& x) const {
    const auto y = bn3(conv3(relu(bn2(conv2(relu(bn1(conv1(x))))))));  // [samples, 4 width, height / stride, width / stride]
    return relu(y + (shortcut ? (*shortcut)(x) : x));
  }
};

template <class S, class BlockType>
struct ResNet {
  using scalar = S;
  using Batch = Images;
  using Block = BlockType;
  using Config = imagenet::Config;

  struct Stem : Module<Stem> {
    Convolution conv1;
    BatchNorm<> bn1;
    Stem(const auto& context, std::size_t width) : conv1(context / "conv1", 3, width, 7, 2), bn1(context / "bn1", width) {}
    auto forward(const auto& batch) const {
      const auto y = relu(bn1(conv1(batch[image])));                   // [samples, width, size / 2, size / 2]
      return max_pool2d(y, {.kernel = 3, .stride = 2, .padding = 1});  // [samples, width, size / 4, size / 4]
    }
  };
  struct Head : Module<Head> {
    Parameter<> weight, bias;
    LossWeight keep, smooth;
    double smoothing;
    Head(const auto& context, std::size_t in, const Config& config)
        : weight(context, "weight", {config.classes, in}, uniform(1 / std::sqrt(double(in)))),
          bias(context, "bias", {config.classes}, uniform(1 / std::sqrt(double(in)))),
          keep(context, 1 - config.label_smoothing),
          smooth(context, -config.label_smoothing),
          smoothing(config.label_smoothing) {}
    auto predict(const auto& x) const { return matmul(global_avg_pool2d(x), weight) + bias; }  // [samples, classes]
    auto forward(const auto& x, const auto& batch) const {
      const auto scores = predict(x);
      const auto loss = cross_entropy(scores, batch[label]);
      if (smoothing == 0) return loss;
      return keep * loss + smooth * sum_losses(mean<1>(log_softmax<1>(scores)));
    }
  };

  static auto stack(const auto& context, const Config& config) {
    const auto stages = blocks_of(config.depth);
    const auto block = [=](std::size_t index) {
      std::size_t stage = 0, first = 0;
      while (index >= first + stages[stage]) first += stages[stage++];
      const std::size_t place = index - first, width = config.width << stage;
      const std::size_t in = place > 0 ? width * Block::expansion : stage == 0 ? config.width : width / 2 * Block::expansion;
      return Block(context / ("layer" + std::to_string(stage + 1)) / std::to_string(place),
                   BlockShape{in, width, place == 0 && stage > 0 ? std::size_t(2) : 1});
    };
    return Stack([=] { return Stem(context, config.width); }, repeated(stages[0] + stages[1] + stages[2] + stages[3], block),
                 [=] { return Head(context / "fc", config.width * 8 * Block::expansion, config); });
  }
  static void check_batch(const Config& config, const Batch& batch) { batch[label].check_labels(config.classes); }
};

}  // namespace imagenet
