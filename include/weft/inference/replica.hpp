// SPDX-License-Identifier: Apache-2.0
#pragma once
// A model for one caller at a time: separate layers over the parameters of a SingleDevice or of a wrapper, with a device, so that
// callers share only memory that nobody writes.
//
//   Replica<SingleDevice<Net>> replica(source, options, instance_of<Exec>(options.threads));
//   replica.compute(std::tuple(strided_of(x)), strided_of(y));

#include <cstddef>
#include <map>
#include <memory>
#include <ranges>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include <weft/context/context.hpp>
#include <weft/inference/units.hpp>
#include <weft/parallel/single_device.hpp>
#include <weft/pipeline/model_builder.hpp>
#include <weft/tensor/strided_copy.hpp>
#include <weft/tensor/tensor.hpp>

namespace weft::inference {

/// The options of a model's calls.
struct Options {
  ModelOptions model = {};  ///< as it was trained: low-rank adapters, batch-invariant numbers
  int threads = 1;          ///< of a call without an instance; more than one pays for batches that take longer than about 20 us
};

namespace detail {

using weft::detail::StridedArray;

/// An execution-space instance of this many threads, if the space has such instances.
template <class Exec>
Exec instance_of([[maybe_unused]] int threads) {
#ifdef KOKKOS_ENABLE_OPENMP
  if constexpr (std::is_same_v<Exec, Kokkos::OpenMP>) return Exec(threads);
  else
#endif
    return Exec();
}

/// The handle of a block that another handle holds, with a count of its own: copies of it by several threads would contend for
/// one count.
inline weft::detail::Buffer shared_block(const weft::detail::Buffer& held) {
  return std::shared_ptr<void>(held.get(), [held](void*) {});
}

/// An input as a tensor X: where it lies if it is row-major and of X's type, else copied by one kernel.
template <class X, class T>
X input_tensor(DefaultDevice& device, const StridedArray<T>& from) {
  using S = typename X::value_type;
  static_assert(std::is_integral_v<T> == std::is_integral_v<S>,
                "weft: inference::Model: this input's elements are whole numbers and its field's are real, or the other way "
                "round; see T and X in this function's template arguments");
  return weft::detail::tensor_of<X>(device, from);
}

[[noreturn]] WEFT_COLD inline void refuse_output(const Shape& given, const Shape& expected) {
  throw_error<ShapeError>({"inference: the output is ", given.text(), " and the model returns ", expected.text()});
}

/// Writes the outputs to the caller's memory. `any_shape`: only the number of elements must be right.
template <AnyTensor Y, class T>
void write_output(const Y& y, const StridedArray<T>& to, bool any_shape) {
  static_assert(!std::is_const_v<T>, "weft: inference::Model writes its last argument, and this one is const");
  if (any_shape ? y.size() != to.shape.size() : y.shape() != to.shape) refuse_output(to.shape, y.shape());
  if constexpr (!std::is_const_v<T>) {
    const StridedArray<T> as_is = any_shape ? StridedArray<T>{to.data, Shape{to.shape.size()}, {1}} : to;
    weft::detail::copy_to_strided(y.device(), static_cast<const typename Y::value_type*>(y.data()), as_is);
  }
}

/// The context of a source's layers on this device, with the axes of its wrappers in force. `options` must outlive it.
template <class Source>
auto context_of(Source& source, DefaultDevice& device, const ModelOptions& options) {
  const auto one = weft::detail::context_of_one<typename Source::model_type>(device, options);
  if constexpr (requires { source.bound(one); }) return source.bound(one);
  else return one;
}

/// Whether a tensor has all of its elements on every rank.
template <class Y>
inline constexpr bool is_whole_tensor = true;
template <class T, class E, class... P>
inline constexpr bool is_whole_tensor<Tensor<T, E, P...>> = (is_whole<P> && ...);

template <class Source>
class Replica {
  using M = typename Source::model_type;
  using Context =
      decltype(context_of(std::declval<Source&>(), std::declval<DefaultDevice&>(), std::declval<const ModelOptions&>()));
  using Step = weft::detail::step_context_t<Context>;
  using Fields = typename Units<M, Context>::Fields;

 public:
  /// Its work is in the order of `instance`.
  Replica(Source& source, const Options& options, DefaultDevice::execution_space instance)
      : device_(std::move(instance)),
        whole_(built(source, device_, options.model)),
        context_(weft::detail::step_context(context_of(source, device_, options.model))),
        units_(device_, whole_) {
    if (options.model.numerics.batch_invariant) device_.make_batch_invariant();
    context_.env.training = false;
    context_.engine.records = false;
    if constexpr (!std::is_same_v<weft::detail::batch_of_t<M>, TokenBatch>)
      sequence_length(context_.env) = 1;  // as a sample of fields has in a step
    share_parameters(source);
  }
  Replica(const Replica&) = delete;
  Replica& operator=(const Replica&) = delete;

  DefaultDevice& device() { return device_; }
  /// output = forward(inputs...). The sizes of the first dims of the inputs are the samples.
  template <class... T, class Y>
  void compute(const std::tuple<StridedArray<T>...>& inputs, const StridedArray<Y>& output, bool any_shape) {
    constexpr bool fits = sizeof...(T) <= Fields::count;
    static_assert(fits, "weft: inference::Model: there are more inputs than the model's Batch has fields");
    if constexpr (fits) {
      context_.env.rows = std::get<0>(inputs).shape.rank() == 0 ? 1 : std::get<0>(inputs).shape[0];
      const auto y = [&]<std::size_t... I>(std::index_sequence<I...>) {
        return units_(context_, context_.env.rows,
                      input_tensor<typename Fields::template tensor_t<I>>(device_, std::get<I>(inputs))...);
      }
      (std::index_sequence_for<T...>());
      using Output = std::remove_const_t<decltype(y)>;
      static_assert(AnyTensor<Output>, "weft: inference::Model takes a model whose forward returns one tensor");
      static_assert(is_whole_tensor<Output>,
                    "weft: inference::ShardedModel takes a model whose forward returns all of its output on every rank: "
                    "to<Invariant<tp>>(y)");
      if constexpr (AnyTensor<Output>) write_output(y, output, any_shape);
    }
  }

 private:
  static auto built(Source& source, DefaultDevice& device, const ModelOptions& options) {
    const Context context = context_of(source, device, options);
    return weft::detail::ModelBuilder<M, Context>(weft::detail::constructor_context(context), source.stages().config()).take();
  }
  void share_parameters(Source& source) {
    std::map<std::string, weft::detail::Buffer> values;
    source.for_each_state([&](ParameterState& state) { values.emplace(state.name(), state.storage().layer_value()); });
    for (const weft::detail::Registered& one : whole_.parameters)
      one.state->storage().set_value(shared_block(values.at(one.state->name())));
    const auto buffers = source.buffers();
    std::size_t i = 0;
    for (const auto& unit : whole_.units)
      for (const auto& buffer : unit.buffers) buffer->value = buffers[i++]->value;
  }

  DefaultDevice device_;
  weft::detail::WholeModel<DefaultDevice::execution_space> whole_;
  Step context_;
  Units<M, Context> units_;
};

/// The elements of an array of host memory.
struct HostElements {
  template <class A>
  auto operator()(A& array) const {
    static_assert(weft::detail::on_host<std::conditional_t<std::is_void_v<A>, void, DefaultDevice::execution_space>>,
                  "weft: an inference model without an execution space instance computes on hosts, and this Kokkos computes on "
                  "GPUs: give an instance and Views of memory that its kernels read, net(exec, u, next)");
    return weft::detail::strided_of(array);
  }
  template <class T>
  void fetch(const StridedArray<T>& from, std::remove_const_t<T>* out) const {
    weft::detail::copy_elements(from, out);
  }
};
/// The elements of an array that kernels of the device read.
struct DeviceElements {
  DefaultDevice& device;
  template <class A>
  auto operator()(A& array) const {
    using E = DefaultDevice::execution_space;
    if constexpr (requires {
                    typename A::value_type;
                    weft::detail::strided_on<typename A::value_type>(device, array);
                  }) {
      return weft::detail::strided_on<typename A::value_type>(device, array);
    } else {
      static_assert(weft::detail::on_host<std::conditional_t<std::is_void_v<A>, void, E>>,
                    "weft: an inference model on a GPU takes Views of memory that its kernels read, and this range is of host "
                    "memory");
      return weft::detail::strided_of(array);
    }
  }
  template <class T>
  void fetch(const StridedArray<T>& from, std::remove_const_t<T>* out) const {
    weft::detail::fetch_elements(device, StridedArray<const T>{from.data, from.shape, from.strides}, out);
  }
};
/// An execution space instance as the first argument of a call.
template <class E>
concept Instance = Kokkos::is_execution_space<E>::value;
template <class E>
void require_instance() {
  static_assert(
      std::is_same_v<E, DefaultDevice::execution_space>,
      "weft: an inference model takes instances of the space on which weft computes, Kokkos::DefaultExecutionSpace, and "
      "this instance is of another");
}

/// replica.compute(inputs..., output) with arrays of the program; `elements(array)` are their elements.
template <class Source, class Elements, class... A>
void call(Replica<Source>& replica, const Elements& elements, A&... arrays) {
  const auto all = std::tuple(elements(arrays)...);
  constexpr std::size_t inputs = sizeof...(A) - 1;
  using Last = std::tuple_element_t<inputs, std::tuple<std::remove_const_t<A>...>>;
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    replica.compute(std::tuple(std::get<I>(all)...), std::get<inputs>(all), std::ranges::contiguous_range<Last>);
  }
  (std::make_index_sequence<inputs>());
}

/// Sets the parameters and buffers of `to` to those of a model in training. Collective over the ranks of both.
template <class From, class To>
void copy_state(From& from, To& to) {
  const auto given = from.buffers(), taken = to.buffers();
  const int here = given.size() == taken.size();
  std::int32_t all[] = {here};
  from.communicator().all_reduce(std::span(all), Reduction::min);  // a rank of a pipeline has the buffers of its stages
  if (all[0] == 0)
    throw_error<UsageError>(
        {"inference: this model has buffers (running statistics) on several pipeline stages: save a "
         "checkpoint, and make the inference model of that"});
  for (const std::string& name : from.parameter_names()) to.set_parameter(name, std::span<const double>(from.parameter(name)));
  for (std::size_t i = 0; i < taken.size(); ++i) taken[i]->value = given[i]->value;
}

}  // namespace detail

}  // namespace weft::inference
