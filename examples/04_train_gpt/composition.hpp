// SPDX-License-Identifier: Apache-2.0
#pragma once
// The model's type: plain layers, and the wrappers that spread them over the mesh. One binary holds a table of such types (two
// architectures, two precisions, two schedules), compiled in a file for each precision; degrees are values, and an axis of degree 1
// costs nothing to speak of.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

#include <weft/data/batches.hpp>
#include <weft/mesh/mesh.hpp>
#include <weft/nn/gpt.hpp>
#include <weft/nn/llama.hpp>
#include <weft/optim/adamw.hpp>
#include <weft/parallel/data_parallel.hpp>
#include <weft/parallel/pipeline_parallel.hpp>
#include <weft/parallel/schedule/gpipe.hpp>
#include <weft/parallel/schedule/one_forward_one_backward.hpp>
#include <weft/parallel/tensor_parallel.hpp>
#include <weft/runtime/world.hpp>

#include "options.hpp"
#include "trained_model.hpp"

namespace train_gpt {

template <class Config>
Config config_of(const Options& o) {
  Config config;
  config.vocabulary = 256;
  config.layers = std::size_t(o.layers);
  config.width = std::size_t(o.width);
  config.heads = std::size_t(o.heads);
  config.kv_heads = std::size_t(*o.kv_heads);
  config.sequence = std::size_t(o.sequence);
  config.dropout = o.dropout;
  return config;
}

/// Weights of one block that are multiplied with every token, and all its other parameters.
struct BlockSize {
  std::size_t matrices, others;
};
inline BlockSize block_size(const weft::nn::GptConfig& c) {
  const std::size_t kv = c.width / c.heads * c.kv_heads, w = c.width;
  return {2 * w * w + 2 * w * kv + 8 * w * w, 4 * w + (w + 2 * kv) + w + 4 * w + w};  // norms, and a bias for every matrix
}
inline BlockSize block_size(const weft::nn::LlamaConfig& c) {
  const std::size_t kv = c.width / c.heads * c.kv_heads, w = c.width;
  return {2 * w * w + 2 * w * kv + 3 * w * weft::nn::detail::llama_intermediate(c), 2 * w};
}
inline std::size_t other_parameters(const weft::nn::GptConfig& c) { return (c.vocabulary + c.sequence) * c.width + 2 * c.width; }
inline std::size_t other_parameters(const weft::nn::LlamaConfig& c) { return (c.tied ? 1 : 2) * c.vocabulary * c.width + c.width; }

template <class Model, class Schedule>
class Composition final : public TrainedModel {
  using Parallel = weft::DataParallel<weft::TensorParallel<weft::PipelineParallel<Model, Schedule>>>;
  using Config = typename Model::Config;

 public:
  Composition(weft::World& world, const Options& o)
      : mesh_(world, {.tp = std::size_t(o.tp), .pp = std::size_t(o.pp)}),
        config_(config_of<Config>(o)),
        model_(mesh_, config_, weft::ModelOptions{.seed = std::uint64_t(o.seed)}),
        optimizer_(model_, {.learning_rate = o.learning_rate, .beta1 = o.beta1, .beta2 = o.beta2, .weight_decay = o.weight_decay,
                            .decay_vectors = false, .clip = o.clip}) {}

  double train_step(const weft::Batch& batch) override { return loss_ = model_.train_step(batch); }
  Optimized optimize(double learning_rate) override {
    if (!std::isfinite(loss_)) return {optimizer_.gradient_norm(), true};
    const auto report = optimizer_.step(learning_rate);
    return {report.gradient_norm, report.skipped};
  }
  double evaluate(const weft::Batch& batch) override { return model_.evaluate(batch); }
  std::vector<float> next_logits(const std::vector<std::int32_t>& tokens) override { return model_.next_logits(tokens); }

  weft::data::Share share() const override { return weft::data::detail::share_of(mesh_); }
  std::size_t parameters() const override {
    const BlockSize block = block_size(config_);
    return config_.layers * (block.matrices + block.others) + other_parameters(config_);
  }
  double flops_per_token() const override {
    const double matrices = double(config_.layers * block_size(config_).matrices + config_.vocabulary * config_.width);
    return 6 * matrices + 6 * double(config_.layers) * double(config_.sequence) * double(config_.width);
  }

 private:
  weft::Mesh<weft::dp, weft::tp, weft::pp> mesh_;
  Config config_;
  Parallel model_;
  weft::optim::AdamW optimizer_;
  double loss_ = 0;  // of the last train_step
};

template <class Model>
std::unique_ptr<TrainedModel> compose(weft::World& world, const Options& options) {
  if (options.schedule == "gpipe") return std::make_unique<Composition<Model, weft::schedule::GPipe>>(world, options);
  return std::make_unique<Composition<Model, weft::schedule::OneForwardOneBackward>>(world, options);
}

}  // namespace train_gpt
