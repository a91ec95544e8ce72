// SPDX-License-Identifier: Apache-2.0
#pragma once
// A trained model as a function of arrays, for a solver's inner loop: no mesh, no optimizer, no batch and no targets. Any number
// of threads call it at the same time. A call allocates nothing once calls of its size have been made, except inside oneDNN,
// which multiplies more than four rows of float or bfloat16.
//
//   inference::Model<Surrogate> net(model);   // the parameters of a model in training; or inference::load<Surrogate>("run")
//   net(u, next);                             // next = forward(u), Kokkos Views of any layout
//   net(exec, u, next);                       // the same in the order of the solver's instance, in device memory on a GPU
//
// The model is one Module, whose forward takes the first fields of its Batch as for model.predict, or a stack, whose units read
// the first fields by name.

#include <cstddef>
#include <memory>
#include <type_traits>

#include <weft/inference/pool.hpp>
#include <weft/inference/replica.hpp>
#include <weft/parallel/single_device.hpp>

namespace weft::inference {

/// A trained model of type M. Numerics: the bits of model.predict of SingleDevice<M> with as many threads.
template <class M>
class Model {
  static_assert(detail::FunctionOfArrays<M>,
                "weft: inference::Model takes a model that is one Module, `struct Net : Module<Net>` with a Config and a scalar, "
                "or a stack on a FieldBatch; a recipe, and a stack on tokens, computes with model.predict");

 public:
  using Config = typename M::Config;

  /// The model with the parameters that `fill(model)` gives a SingleDevice<M>: checkpoint::load, load_parameters, set_parameter.
  template <class Fill>
  requires std::is_invocable_v < Fill&, SingleDevice<M>
  & > Model(const Config& config, Fill&& fill, const Options& options = {})
      : options_(options),
  source_(device_, config, options.model) {
    fill(source_);
    device_.exec().fence("weft: the parameters of an inference model");  // all instances read them
  }
  /// A copy of the parameters of a model in training, in any wrapper; later steps do not change it. Collective over the ranks of
  /// `model`; each rank gets the whole model.
  template <class Trained>
  requires std::is_same_v<typename Trained::model_type, M>
  explicit Model(Trained& model, const Options& options = {})
      : Model(
            model.stages().config(), [&](SingleDevice<M>& source) { detail::copy_state(model, source); }, options) {}

  /// net(inputs..., output): output = forward(inputs...), or the prediction of a stack's last unit. The inputs are the first
  /// fields of Batch; a stack that reads another one throws UsageError. Each argument is a Kokkos View of host memory, [samples,
  /// ...] in any layout, or a contiguous range (std::span, std::vector, an array), which is one sample, [1, size]. An input is
  /// read where it lies if it is row-major and of the model's scalar, else one kernel copies it; so is the output, which must not
  /// overlap an input. A range as output takes any shape of as many elements. Any number of threads may call it at the same time.
  /// Throws ShapeError if the output has another shape than the model returns.
  template <class... A>
  requires(sizeof...(A) >= 2 && !(detail::Instance<std::remove_cvref_t<A>> || ...)) void operator()(A&&... arrays) {
    const auto replica = taken(pool_, [this] { return detail::instance_of<Exec>(options_.threads); });
    detail::call(*replica, detail::HostElements(), arrays...);
  }
  /// net(exec, inputs..., output) as above, as work of an instance of Kokkos::DefaultExecutionSpace: after the program's earlier
  /// kernels on it and before its later ones. Returns when the work is launched; exec.fence() waits for the output. The Views are
  /// of memory that kernels of the instance read, on a GPU of device memory, which the host never touches. Each instance has the
  /// memory of a forward's values, and allocates nothing once it is warm. The instance has the threads of a call on a host.
  template <detail::Instance E, class... A>
  requires(sizeof...(A) >= 2) void operator()(const E& exec, A&&... arrays) {
    detail::require_instance<E>();
    if constexpr (std::is_same_v<E, Exec>) {
      const auto replica = taken(instances_.of(exec), [&] { return exec; });
      detail::call(*replica, detail::DeviceElements{replica->device()}, arrays...);
    }
  }

  /// The number of calls that have run at the same time; each needed the memory of a forward's values.
  std::size_t replicas() const { return pool_.size() + instances_.size(); }

 private:
  using Exec = DefaultDevice::execution_space;
  using Replica = detail::Replica<SingleDevice<M>>;

  template <class Of>
  auto taken(detail::Pool<Replica>& pool, const Of& instance) {
    return pool.take([&] { return std::make_unique<Replica>(source_, options_, instance()); });
  }

  Options options_;
  DefaultDevice device_;
  SingleDevice<M> source_;
  detail::Pool<Replica> pool_;
  detail::Pools<Exec, Replica> instances_;
};

}  // namespace weft::inference
