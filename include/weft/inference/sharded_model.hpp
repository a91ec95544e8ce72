// SPDX-License-Identifier: Apache-2.0
#pragma once
// A trained model whose parameters are cut over the ranks of tp, as a function of arrays: for models that one rank cannot hold,
// or whose layers are faster on several. All ranks of the axis call it together.
//
//   inference::ShardedModel<Surrogate> net(mesh[axes<tp>], model);   // a model in training, in any wrapper
//   net(u, next);                                                    // next = forward(u), equal on all ranks
//   net(world.device().exec(), u, next);                             // the same in device memory on GPUs

#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include <weft/comm/agree.hpp>
#include <weft/comm/in_function.hpp>
#include <weft/core/hash.hpp>
#include <weft/inference/pool.hpp>
#include <weft/inference/replica.hpp>
#include <weft/mesh/mesh.hpp>
#include <weft/parallel/tensor_parallel.hpp>

namespace weft::inference {

/// A trained model of type M on the ranks of tp. Numerics: equal to inference::Model up to the rounding of sums.
template <class M>
class ShardedModel {
  static_assert(detail::FunctionOfArrays<M>,
                "weft: inference::ShardedModel takes a model that is one Module, `struct Net : Module<Net>` with a Config and a "
                "scalar, or a stack on a FieldBatch, without a wrapper");

 public:
  using Config = typename M::Config;
  using Source = TensorParallel<M>;

  /// The model with the parameters that `fill(model)` gives a TensorParallel<M>: checkpoint::load, load_parameters,
  /// set_parameter. Collective over the mesh, whose only axis is tp: mesh[axes<tp>] of a larger one.
  template <class Fill>
  requires std::is_invocable_v<Fill&, Source&> ShardedModel(const Mesh<tp>& mesh, const Config& config, Fill&& fill,
                                                            const Options& options = {})
      : options_(options), source_(mesh, config, options.model) {
    fill(source_);
  }
  /// A copy of the parameters of a model in training; later steps do not change it. Collective over the ranks of `model`.
  template <class Trained>
  requires std::is_same_v<typename Trained::model_type, M> ShardedModel(const Mesh<tp>& mesh, Trained& model,
                                                                        const Options& options = {})
      : ShardedModel(
            mesh, model.stages().config(), [&](Source& source) { detail::copy_state(model, source); }, options) {}
  template <class... A>
  requires(!std::is_same_v<Mesh<A...>, Mesh<tp>>) ShardedModel(const Mesh<A...>&, const auto&, const Options& = {})
      : ShardedModel(refused_mesh<A...>()) {}
  template <class... A>
  requires(!std::is_same_v<Mesh<A...>, Mesh<tp>>) ShardedModel(const Mesh<A...>&, const Config&, const auto&, const Options& = {})
      : ShardedModel(refused_mesh<A...>()) {}
  ShardedModel(const ShardedModel&) = delete;
  ShardedModel& operator=(const ShardedModel&) = delete;

  /// net(inputs..., output) as Model::operator(), called by all ranks of tp in one order with equal inputs, by one thread of a
  /// rank at a time. The first call compares the inputs and throws UsageError on all ranks if they differ.
  template <class... A>
  requires(sizeof...(A) >= 2 && !(detail::Instance<std::remove_cvref_t<A>> || ...)) void operator()(A&&... arrays) {
    const auto replica = taken(pool_, [this] { return detail::instance_of<Exec>(options_.threads); });
    call(*replica, detail::HostElements(), arrays...);
  }
  /// net(exec, inputs..., output) as Model::operator() with an instance, which is that of the mesh's device: the messages between
  /// ranks are in its order. Throws UsageError for another one.
  template <detail::Instance E, class... A>
  requires(sizeof...(A) >= 2) void operator()(const E& exec, A&&... arrays) {
    detail::require_instance<E>();
    if constexpr (std::is_same_v<E, Exec>) {
      if (!detail::same_order(exec, source_.device().exec())) refuse_instance();
      const auto replica = taken(instance_pool_, [&] { return exec; });
      call(*replica, detail::DeviceElements{replica->device()}, arrays...);
    }
  }

 private:
  using Exec = DefaultDevice::execution_space;
  using Replica = detail::Replica<Source>;

  template <class... A>
  static weft::detail::AlreadyRefused refused_mesh() {
    static_assert(
        sizeof...(A) != sizeof...(A),
        "weft: inference::ShardedModel cuts parameters over tp, and every rank has whole arrays: give it the axis tp of "
        "the mesh, mesh[axes<tp>]; of fields that domain axes cut, model.predict(batch, Gather::piece) computes the "
        "pieces");
    return {};
  }
  explicit ShardedModel(weft::detail::AlreadyRefused);  // not defined: refused_mesh() does not compile

  template <class Of>
  auto taken(detail::Pool<Replica>& pool, const Of& instance) {
    return pool.take([&] { return std::make_unique<Replica>(source_, options_, instance()); });
  }
  template <class Elements, class... A>
  void call(Replica& replica, const Elements& elements, A&... arrays) {
    const comm::InFunction mark(source_.communicator(), comm::ProgramFunction::predict);
    if (!compared_) {
      std::vector<NamedValue> inputs;
      const auto add = [&](auto& array) {  // the last is the output
        if (inputs.size() + 1 < sizeof...(A))
          inputs.emplace_back("the inputs of inference::ShardedModel", hash_of(elements, elements(array)));
      };
      (add(arrays), ...);
      agree(source_.communicator(), inputs, "give all ranks of tp the same inputs");
      compared_ = true;
    }
    detail::call(replica, elements, arrays...);
  }
  template <class Elements, class T>
  static std::string hash_of(const Elements& elements, const weft::detail::StridedArray<T>& array) {
    std::vector<std::remove_const_t<T>> values(array.shape.size());
    elements.fetch(array, values.data());
    return weft::detail::joined({array.shape.text(), ", ", weft::detail::hash_bytes(values.data(), values.size() * sizeof(T))});
  }
  [[noreturn]] WEFT_COLD static void refuse_instance() {
    throw_error<UsageError>(
        {"inference: ShardedModel was called with another execution space instance than the mesh's, in whose order its messages "
         "are: net(world.device().exec(), u, next)"});
  }

  Options options_;
  Source source_;
  detail::Pool<Replica> pool_, instance_pool_;
  bool compared_ = false;
};

}  // namespace weft::inference
