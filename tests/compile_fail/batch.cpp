// SPDX-License-Identifier: Apache-2.0
// Batches, fields and data sets.
#include <Kokkos_Core.hpp>
#include <weft/data/fields.hpp>
#include <weft/data/loader.hpp>
#include <weft/weft.hpp>

using namespace weft;

inline constexpr weft::data::Field<"label", std::int32_t> label;
inline constexpr weft::data::Field<"x", float> x;

// section: field_of_another_type
// A label that the model needs as an integer and the batch has as a float: another field.
// expect: the batch has no such field: ask for one of those that its FieldBatch names
// mention: float
#ifdef WEFT_FAIL
inline constexpr weft::data::Field<"label", float> given;
#else
inline constexpr weft::data::Field<"label", std::int32_t> given;
#endif

void go(const weft::FieldBatch<given>& batch) { batch[label].check_labels(10); }

// section: no_such_field
// A field that the batch lacks; the compilers name it together with the existing ones.
// expect: the batch has no such field: ask for one of those that its FieldBatch names
// mention: 'w', 'e', 'i', 'g', 'h', 't'|"weight"|119, 101, 105, 103, 104, 116
inline constexpr weft::data::Field<"image", float> image;
inline constexpr weft::data::Field<"weight", float> weight;

#ifdef WEFT_FAIL
std::size_t go(const weft::FieldBatch<image, label>& batch) { return batch[weight].values().size(); }
#else
std::size_t go(const weft::FieldBatch<image, label, weight>& batch) { return batch[weight].values().size(); }
#endif

// section: of_another_model
// A batch that lacks a field which the model's has.
// expect: this batch is of another type than the model's: a field is missing
inline constexpr data::Field<"input", float> input;
inline constexpr data::Field<"wanted", float> wanted;

struct Regression : Module<Regression> {
  using scalar = float;
  using Batch = FieldBatch<input, wanted>;
  struct Config {};
  Linear<> layer;
  Regression(const auto& context, const Config&) : layer(context / "layer", 4, 1) {}
  auto loss(const auto& batch) const { return mse(layer(batch[input]), batch[wanted]); }
};

#ifdef WEFT_FAIL
using Given = FieldBatch<input>;
#else
using Given = FieldBatch<input, wanted>;
#endif

double go(World& world, const Given& batch) {
  Mesh<dp> mesh(world);
  DataParallel<Regression> model(mesh, {});
  return model.train_step(batch);
}

// section: config_no_such_field
// A misspelt field of a config: the compilers name the type without such a field.
// expect: no matching (function for call to .*DataParallel|constructor for initialization of .DataParallel)
// mention: GptConfig
// mention: names a field that it lacks
double go(World& world, const Batch& batch) {
  Mesh<dp> mesh(world);
#ifdef WEFT_FAIL
  DataParallel<models::Gpt> model(mesh, {.layrs = 12});
#else
  DataParallel<models::Gpt> model(mesh, {.layers = 12});
#endif
  return model.train_step(batch);
}

// section: config_no_such_field_of_a_user_model
// A misspelt field of a user's config.
// expect: no matching (function for call to .*DataParallel|constructor for initialization of .DataParallel)
// mention: Model::Config
// mention: names a field that it lacks
struct Model {
  struct Config {
    std::size_t vocabulary = 16, width = 8, layers = 2;
  };
  using scalar = float;
  using Front = Embedding;
  using Block = Residual<LayerNorm>;
  using Back = LanguageHead<LayerNorm>;
  static std::size_t blocks(const Config& config) { return config.layers; }
  static std::size_t vocabulary(const Config& config) { return config.vocabulary; }
  static void check(const Config&, const ModelDegrees&) {}
  static Front make_front(const auto& context, const Config& config) {
    return Embedding(context / "tokens", config.vocabulary, config.width);
  }
  static Block make_block(const auto& context, const Config& config, std::size_t index) {
    return Block(LayerNorm(context / "blocks" / std::to_string(index), config.width));
  }
  static Back make_back(const auto& context, const Config& config, Front*) {
    return Back{LayerNorm(context / "norm", config.width), Embedding(context / "tokens", config.vocabulary, config.width).table};
  }
};

double go(World& world, const Batch& batch) {
  Mesh<dp, tp> mesh(world);
#ifdef WEFT_FAIL
  DataParallel<TensorParallel<Model>> model(mesh, {.widht = 16});
#else
  DataParallel<TensorParallel<Model>> model(mesh, {.width = 16});
#endif
  return model.train_step(batch);
}

// section: dataset_without_fields
// A dataset that does not declare the fields of its samples.
// expect: a Dataset names its fields: using Fields = weft::FieldBatch
// mention: Squares
struct Squares {
#ifndef WEFT_FAIL
  using Fields = weft::FieldBatch<x>;
#endif
  std::size_t size() const { return 100; }
  void load(std::size_t index, auto& sample) const { sample[x][0] = float(index * index); }
};

void go(weft::data::Share share) {
  for (auto&& batch : weft::data::Loader(share, Squares(), {.global_batch = 4})) batch.check();
}

// section: dataset_without_load
// A dataset whose load() is not const: the threads of several ranks call it.
// expect: a Dataset has size\(\) const and load\(std::size_t index, Fields::Sample& sample\) const
// mention: Squares
struct Squares {
  using Fields = weft::FieldBatch<x>;
  std::size_t size() const { return 100; }
#ifdef WEFT_FAIL
  void load(std::size_t index, Fields::Sample& sample) { sample[x][0] = float(index * index); }
#else
  void load(std::size_t index, Fields::Sample& sample) const { sample[x][0] = float(index * index); }
#endif
};

void go(weft::data::Share share) {
  for (auto&& batch : weft::data::Loader(share, Squares(), {.global_batch = 4})) batch.check();
}

// section: field_view_of_another_type
// A View of doubles for a field of floats: without a copy there is nothing to convert.
// expect: the View's elements are of another type than the field's scalars
// mention: double
#ifdef WEFT_FAIL
inline constexpr weft::data::Field<"heat", float> heat;
#else
inline constexpr weft::data::Field<"heat", double> heat;
#endif

void go(weft::FieldBatch<heat>& batch, const Kokkos::View<double**, Kokkos::LayoutRight, Kokkos::HostSpace>& frames) {
  batch[heat].view(frames);
}
