// SPDX-License-Identifier: Apache-2.0
#pragma once
// A folder's model behind one virtual interface, so that each architecture is compiled in a separate file.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <weft/generation/generate.hpp>
#include <weft/hugging_face/hugging_face.hpp>
#include <weft/mesh/mesh.hpp>
#include <weft/mesh/world.hpp>

namespace generate_text {

struct Layout {
  std::size_t tp = 1, pp = 1;
  bool batch_invariant = false;
};

/// All ranks call every function together, and each gets the same result.
class LoadedModel {
 public:
  virtual ~LoadedModel() = default;
  virtual weft::Generated generate(std::span<const std::vector<std::int32_t>> prompts, const weft::GenerateOptions& options) = 0;
  /// [tokens, vocabulary], by the ordinary forward.
  virtual std::vector<double> logits(std::span<const std::int32_t> tokens) = 0;
  virtual std::size_t vocabulary() = 0;
  /// Length of the longest sequence that the model supports; 0: unlimited.
  virtual std::size_t positions() = 0;
};

template <class Model, class Grid>
class Loaded final : public LoadedModel {
 public:
  Loaded(weft::World& world, const std::string& folder, const typename Model::Config& config, const Layout& layout,
         std::size_t ep = 1)
      : mesh_(world, weft::Degrees{.tp = layout.tp, .ep = ep, .pp = layout.pp}),
        model_(mesh_, config, {.numerics = {.batch_invariant = layout.batch_invariant}}) {
    weft::hugging_face::load(folder, model_);
  }
  weft::Generated generate(std::span<const std::vector<std::int32_t>> prompts, const weft::GenerateOptions& options) override {
    return weft::generate(model_, prompts, options);
  }
  std::vector<double> logits(std::span<const std::int32_t> tokens) override { return model_.logits(tokens); }
  std::size_t vocabulary() override { return model_.vocabulary(); }
  std::size_t positions() override { return Model::model_type::sequence(model_.stages().config()); }

 private:
  Grid mesh_;
  Model model_;
};

std::unique_ptr<LoadedModel> load_gpt(weft::World& world, const std::string& folder, const Layout& layout);
std::unique_ptr<LoadedModel> load_llama(weft::World& world, const std::string& folder, const Layout& layout);
std::unique_ptr<LoadedModel> load_mixtral(weft::World& world, const std::string& folder, const Layout& layout);

/// Loads the model of a `transformers` folder.
inline std::unique_ptr<LoadedModel> load(weft::World& world, const std::string& folder, const Layout& layout) {
  const std::string type = weft::hugging_face::model_type(folder);
  if (type == "gpt2") return load_gpt(world, folder, layout);
  if (type == "mixtral") return load_mixtral(world, folder, layout);
  return load_llama(world, folder, layout);
}

}  // namespace generate_text
