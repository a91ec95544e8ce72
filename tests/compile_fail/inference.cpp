// SPDX-License-Identifier: Apache-2.0
// Calls of a trained model as a function of arrays.
#include <cstdint>
#include <span>
#include <weft/inference/model.hpp>
#include <weft/weft.hpp>

using namespace weft;

inline constexpr data::Field<"x", float> x;
struct Net : Module<Net> {
  using scalar = float;
  using Batch = FieldBatch<x>;
  struct Config {};
  Linear<> layer;
  Net(const auto& context, const Config&) : layer(context / "layer", 3, 2) {}
  auto forward(const auto& in) const { return layer(in); }
};

// section: inference_of_a_recipe
// A recipe.
// expect: weft: inference::Model takes a model that is one Module
#ifdef WEFT_FAIL
using M = models::Gpt;
#else
using M = Net;
#endif

void go(SingleDevice<M>& model) { inference::Model<M> net(model); }

// section: inference_from_whole_numbers
// expect: this input's elements are whole numbers and its field's are real
#ifdef WEFT_FAIL
using T = std::int32_t;
#else
using T = double;
#endif

void go(inference::Model<Net>& net, std::span<const T> in, std::span<float> out) { net(in, out); }

// section: inference_of_another_prediction
// A model whose predictions are not its forward.
// expect: inference::Model calls forward, and this model has another function for its predictions
struct Predicts : Module<Predicts> {
  using scalar = float;
  using Batch = FieldBatch<x>;
  struct Config {};
  Linear<> layer;
  Predicts(const auto& context, const Config&) : layer(context / "layer", 3, 2) {}
  auto forward(const auto& in) const { return layer(in); }
#ifdef WEFT_FAIL
  auto predict(const auto& batch) const { return silu(layer(batch[x])); }
#endif
};

void go(inference::Model<Predicts>& net, std::span<const float> in, std::span<float> out) { net(in, out); }

// section: inference_of_a_part
// An output of which each rank of tp has a part.
// expect: inference::ShardedModel takes a model whose forward returns all of its output on every rank
#include <weft/inference/sharded_model.hpp>
struct InParts : Module<InParts> {
  using scalar = float;
  using Batch = FieldBatch<x>;
  struct Config {};
  Linear<Column> layer;
  InParts(const auto& context, const Config&) : layer(context / "layer", 3, 2) {}
#ifdef WEFT_FAIL
  auto forward(const auto& in) const { return layer(in); }
#else
  auto forward(const auto& in) const { return to<Invariant<tp>>(layer(in)); }
#endif
};

void go(inference::ShardedModel<InParts>& net, std::span<const float> in, std::span<float> out) { net(in, out); }

// section: inference_on_another_space
// An instance of another execution space than weft's.
// expect: an inference model takes instances of the space on which weft computes, Kokkos::DefaultExecutionSpace
struct Other {
  using execution_space = Other;
};
#ifdef WEFT_FAIL
using Exec = Other;
#else
using Exec = Kokkos::DefaultExecutionSpace;
#endif

void go(inference::Model<Net>& net, const Exec& exec, std::span<const float> in, std::span<float> out) { net(exec, in, out); }

// section: inference_of_too_many_inputs
// expect: inference::Model: there are more inputs than the model's Batch has fields
inline constexpr data::Field<"y", float> y;
struct OfTwo {
  using scalar = float;
  using Batch = FieldBatch<x, y>;
  struct Config {};
  struct First : Module<First> {
    Linear<> layer;
    First(const auto& context, const Config&) : layer(context / "layer", 3, 2) {}
    auto forward(const auto& batch) const { return layer(batch[x]); }
  };
  struct Last : Module<Last> {
    auto predict(const auto& in, const auto& batch) const { return in + batch[y]; }
    auto forward(const auto& in, const auto& batch) const { return mse(in, batch[y]); }
  };
  static auto stack(const auto& context, const Config& c) {
    return Stack([=] { return First(context / "first", c); }, [] { return Last(); });
  }
};

void go(inference::Model<OfTwo>& net, std::span<const float> in, std::span<const float> more, std::span<float> out) {
#ifdef WEFT_FAIL
  net(in, more, more, out);
#else
  net(in, more, out);
#endif
}

// section: sharded_model_over_a_domain_axis
// Ranks of a domain axis have pieces of a field, and a ShardedModel takes whole arrays.
// expect: inference::ShardedModel cuts parameters over tp, and every rank has whole arrays
// mention: mesh.axes<tp>.
#include <weft/inference/sharded_model.hpp>
#ifdef WEFT_FAIL
using M = Mesh<dx>;
#else
using M = Mesh<tp>;
#endif

void go(const M& mesh) {
  inference::ShardedModel<Net> net(mesh, {}, [](auto&) {});
}
