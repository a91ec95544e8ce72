// SPDX-License-Identifier: Apache-2.0
#pragma once
// A bucket of gradients as a communication hook sees it, and the base class of hooks. The bucket carries its element type as a
// value, so that a hook need not be a template.
//
//   Request request = comm.all_reduce_async(bucket.all());

#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>

#include <weft/comm/communicator.hpp>
#include <weft/core/error.hpp>
#include <weft/device/device.hpp>
#include <weft/engine/hook/keeper.hpp>
#include <weft/engine/parameter_state.hpp>
#include <weft/tensor/tensor.hpp>

namespace weft::detail {

/// A parameter's gradient in a flat array, from index `first` on.
struct FlatMember {
  ParameterState* state;
  std::size_t first;
};

}  // namespace weft::detail

namespace weft::hook {

/// Gradients that are summed together: `elements` of `type` (float32, or float64 for a model in double) in the device's memory.
/// Gaps between the parameters hold zeros or arbitrary values.
class Bucket {
 public:
  Bucket(std::size_t number, DataType element_type, weft::detail::Buffer storage, std::size_t count,
         std::span<const weft::detail::FlatMember> parameters)
      : index(number), type(element_type), elements(count), members(parameters), storage_(std::move(storage)) {}

  const std::size_t index;  ///< the same in every step
  const DataType type;
  const std::size_t elements;
  const std::span<const weft::detail::FlatMember> members;  ///< the parameters, each with the index of its first element

  /// The elements as T. Throws UsageError if the bucket holds another type.
  template <class T>
  std::span<T> span() const {
    using Value = std::remove_const_t<T>;
    static_assert(std::is_same_v<Value, float> || std::is_same_v<Value, double>,
                  "weft: a bucket of gradients holds float, or double for a model in double");
    if (type != data_type_of<Value>) refuse(data_type_of<Value>);
    return {static_cast<T*>(storage_.get()), elements};
  }
  /// Calls f(std::span<float>) or f(std::span<double>), by the bucket's type.
  template <class F>
  decltype(auto) visit(F&& f) const {
    if (type == DataType::float64) return f(span<double>());
    return f(span<float>());
  }
  /// The elements with their type as a value, for `comm.all_reduce_async(bucket.all())`.
  comm::Elements all() const {
    return comm::elements_of<float, double>(type, weft::detail::memory_kind<Tensor<float, DefaultDevice::execution_space>>(),
                                            storage_.get(), elements);
  }
  /// The memory of the elements, for weft's own hooks.
  const weft::detail::Buffer& storage() const { return storage_; }
  /// Does not compile: through a pointer without a type, hooks would add doubles as floats.
  template <class T = void>
  T* data() const {
    static_assert(sizeof(T*) == 0,
                  "weft: a bucket's elements are float or double, as its model's gradients are: take bucket.span<float>(), which "
                  "throws for the other type, bucket.visit(f) or bucket.all()");
    return nullptr;
  }

 private:
  [[noreturn]] WEFT_COLD void refuse(DataType asked) const {
    throw_error<UsageError>(
        {"hook: bucket ", index, " holds ", elements, " ", name_of(type), ", and ", name_of(asked),
         " was asked for: ask for span<", type == DataType::float64 ? "double" : "float",
         ">(), or write the hook for both, bucket.visit([&](auto gradients) { ... }), or hand bucket.all() to all_reduce_async"});
  }

  weft::detail::Buffer storage_;
};

/// The type-erased base of a communication hook.
class AnyHook {
 public:
  virtual ~AnyHook() = default;
  virtual Request start(Bucket& bucket, const Communicator& comm) = 0;
  virtual void finish(Bucket& bucket, const Communicator& comm) = 0;
  /// Compares the next step's sums with plain ones.
  virtual void check_next_step() {}
  /// Names the state that it keeps for this bucket from step to step.
  virtual void keep(Bucket&, Keeper&) {}
};

}  // namespace weft::hook
