// SPDX-License-Identifier: Apache-2.0
#pragma once
// The example's convolutional network, with BatchNorm and channels cut over tp, and its vision transformer: the very models of
// examples/06_classify, in double, with batches for any layout.

#include "examples/06_classify/models.hpp"
#include "support/field_models.hpp"
#include "support/field_parity.hpp"

namespace weft_test {

/// 8 images of 8 x 8 pixels. Statistics are per micro-batch, which therefore has the same images in every layout: in the order of
/// the images, the data-parallel ranks' parts of a micro-batch are adjacent.
inline classify::Images image_share(std::size_t side, std::uint64_t step, std::size_t rank, std::size_t ranks,
                                    std::size_t micro_batches) {
  auto batch = share_of_samples<classify::Images>(step, rank, ranks, micro_batches);
  const std::size_t pixels = side * side, part = batch.samples / micro_batches;
  auto images = batch[classify::image].resize(batch.samples, {1, side, side});
  auto labels = batch[classify::label].resize(batch.samples, {});
  for (std::size_t i = 0; i < batch.samples; ++i) {
    const std::size_t number = (i / part * ranks + rank) * part + i % part;
    for (std::size_t p = 0; p < pixels; ++p) images[i * pixels + p] = float(number_at(step, 1, number * pixels + p));
    labels[i] = std::int32_t(key_of(step, number, 2) % 5);
  }
  return batch;
}

struct Network : classify::Cnn<double> {
  static constexpr bool predicts = true, normalises_micro_batches = true;
  struct Config : classify::Cnn<double>::Config {
    Config() : classify::Cnn<double>::Config{.side = 8, .channels = 4, .stages = 2, .classes = 5} {}
  };
  static Batch make_batch(const Config& config, std::uint64_t step, std::size_t rank, std::size_t ranks,
                          std::size_t micro_batches) {
    return image_share(config.side, step, rank, ranks, micro_batches);
  }
};

struct Transformer : classify::VisionTransformer<double> {
  static constexpr bool predicts = true;
  struct Config : classify::VisionTransformer<double>::Config {
    Config()
        : classify::VisionTransformer<double>::Config{.side = 8, .patch = 4, .width = 8, .heads = 4, .layers = 4, .classes = 5} {}
  };
  static Batch make_batch(const Config& config, std::uint64_t step, std::size_t rank, std::size_t ranks,
                          std::size_t micro_batches) {
    auto batch = image_share(config.side, step, rank, ranks, 1);
    batch.micro_batches = micro_batches;
    return batch;
  }
};

}  // namespace weft_test
