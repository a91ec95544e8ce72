// SPDX-License-Identifier: Apache-2.0
#pragma once
// A trained model whose parameters are cut over the ranks of tp, as a function of arrays: for models that one rank cannot hold,
// or whose layers are faster on several. All ranks of the axis call it together.
//
//   inference::ShardedModel<Surrogate> net(mesh[axes<tp>], model);   // a model in training, in any wrapper
//   net(u, next);                                                    // next = forward(u), equal on all ranks

#include <cstddef>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <weft/comm/agree.hpp>
#include <weft/comm/in_function.hpp>
#include <weft/core/hash.hpp>
#include <weft/inference/replica.hpp>
#include <weft/mesh/mesh.hpp>
#include <weft/parallel/tensor_parallel.hpp>

namespace weft::inference {

/// A trained model of type M on the ranks of tp, on hosts. Numerics: equal to inference::Model up to the rounding of sums.
template <class M>
class ShardedModel {
  static_assert(weft::detail::ModuleModel<M>,
                "weft: inference::ShardedModel takes a model that is one Module, `struct Net : Module<Net>` with a Config and a "
                "scalar, without a wrapper");
  static_assert(weft::detail::on_host<std::conditional_t<std::is_void_v<M>, void, DefaultDevice::execution_space>>,
                "weft: inference::ShardedModel computes on hosts, and this Kokkos computes on GPUs: use model.predict");

 public:
  using Config = typename M::Config;
  using Source = TensorParallel<M>;

  /// The model with the parameters that `fill(model)` gives a TensorParallel<M>: checkpoint::load, load_parameters,
  /// set_parameter. Collective over the mesh, whose only axis is tp: mesh[axes<tp>] of a larger one.
  template <class Fill>
  requires std::is_invocable_v<Fill&, Source&> ShardedModel(const Mesh<tp>& mesh, const Config& config, Fill&& fill,
                                                            const Options& options = {})
      : options_(options), source_(mesh, config, options.model), replica_(filled(fill), options_) {}
  /// A copy of the parameters of a model in training; later steps do not change it. Collective over the ranks of `model`.
  template <class Trained>
  requires std::is_same_v<typename Trained::model_type, M> ShardedModel(const Mesh<tp>& mesh, Trained& model,
                                                                        const Options& options = {})
      : ShardedModel(
            mesh, model.stages().config(), [&](Source& source) { detail::copy_state(model, source); }, options) {}
  ShardedModel(const ShardedModel&) = delete;
  ShardedModel& operator=(const ShardedModel&) = delete;

  /// net(inputs..., output) as Model::operator(), called by all ranks of tp in one order with equal inputs, by one thread of a
  /// rank at a time. The first call compares the inputs and throws UsageError on all ranks if they differ.
  template <class... A>
  requires(sizeof...(A) >= 2) void operator()(A&&... arrays) {
    const comm::InFunction mark(source_.communicator(), comm::ProgramFunction::predict);
    if (!compared_) {
      std::vector<NamedValue> inputs;
      const auto add = [&](auto& array) {  // the last is the output
        if (inputs.size() + 1 < sizeof...(A))
          inputs.emplace_back("the inputs of inference::ShardedModel", hash_of(weft::detail::strided_of(array)));
      };
      (add(arrays), ...);
      agree(source_.communicator(), inputs, "give all ranks of tp the same inputs");
      compared_ = true;
    }
    detail::call(replica_, arrays...);
  }

 private:
  template <class Fill>
  Source& filled(Fill& fill) {
    fill(source_);
    return source_;
  }
  template <class T>
  static std::string hash_of(const weft::detail::StridedArray<T>& array) {
    std::vector<std::remove_const_t<T>> values(array.shape.size());
    weft::detail::copy_elements(array, values.data());
    return weft::detail::joined({array.shape.text(), ", ", weft::detail::hash_bytes(values.data(), values.size() * sizeof(T))});
  }

  Options options_;
  Source source_;
  detail::Replica<Source> replica_;
  bool compared_ = false;
};

}  // namespace weft::inference
