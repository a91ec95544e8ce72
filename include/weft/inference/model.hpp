// SPDX-License-Identifier: Apache-2.0
#pragma once
// A trained model as a function of arrays, for a solver's inner loop: no mesh, no optimizer, no batch and no targets. Any number
// of threads call it at the same time. A call allocates nothing once calls of its size have been made, except inside oneDNN,
// which multiplies more than four rows of float or bfloat16.
//
//   inference::Model<Surrogate> net(model);   // the parameters of a model in training; or inference::load<Surrogate>("run")
//   net(u, next);                             // next = forward(u), Kokkos Views of any layout
//
// The model is one Module. Its forward takes the first fields of its Batch, as for model.predict.

#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

#include <weft/inference/pool.hpp>
#include <weft/inference/replica.hpp>
#include <weft/parallel/single_device.hpp>

namespace weft::inference {

/// A trained model of type M, on hosts. Numerics: the bits of a forward of SingleDevice<M> with as many threads, without dropout.
template <class M>
class Model {
  static_assert(weft::detail::ModuleModel<M>,
                "weft: inference::Model takes a model that is one Module, `struct Net : Module<Net>` with a Config and a scalar; "
                "a model of several units computes with model.predict");
  static_assert(weft::detail::on_host<std::conditional_t<std::is_void_v<M>, void, DefaultDevice::execution_space>>,
                "weft: inference::Model computes on hosts, and this Kokkos computes on GPUs: use model.predict");

 public:
  using Config = typename M::Config;

  /// The model with the parameters that `fill(model)` gives a SingleDevice<M>: checkpoint::load, load_parameters, set_parameter.
  template <class Fill>
  requires std::is_invocable_v < Fill&, SingleDevice<M>
  & > Model(const Config& config, Fill&& fill, const Options& options = {})
      : options_(options),
  source_(device_, config, options.model) {
    fill(source_);
  }
  /// A copy of the parameters of a model in training, in any wrapper; later steps do not change it. Collective over the ranks of
  /// `model`; each rank gets the whole model.
  template <class Trained>
  requires std::is_same_v<typename Trained::model_type, M>
  explicit Model(Trained& model, const Options& options = {})
      : Model(
            model.stages().config(), [&](SingleDevice<M>& source) { detail::copy_state(model, source); }, options) {}

  /// net(inputs..., output): output = forward(inputs...). Each argument is a Kokkos View of host memory, [samples, ...] in any
  /// layout, or a contiguous range (std::span, std::vector, an array), which is one sample, [1, size]. An input is read where it
  /// lies if it is row-major and of the model's scalar, else one kernel copies it; so is the output, which must not overlap an
  /// input. A range as output takes any shape of as many elements. Any number of threads may call it at the same time. Throws
  /// ShapeError if the output has another shape than the model returns.
  template <class... A>
  requires(sizeof...(A) >= 2) void operator()(A&&... arrays) {
    detail::call(*pool_.take([this] { return std::make_unique<detail::Replica<SingleDevice<M>>>(source_, options_); }),
                 arrays...);
  }

  /// The number of calls that have run at the same time; each needed the memory of a forward's values.
  std::size_t replicas() const { return pool_.size(); }

 private:
  Options options_;
  DefaultDevice device_;
  SingleDevice<M> source_;
  detail::Pool<detail::Replica<SingleDevice<M>>> pool_;
};

}  // namespace weft::inference
