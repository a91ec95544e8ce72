// SPDX-License-Identifier: Apache-2.0
#pragma once
// A parameter without its placement rules, for wrappers, optimizers and checkpoints: its description, the storage of its value,
// and the state of its gradient.
//
//   model.for_each_state([](ParameterState& state) { std::cout << state.name() << ' ' << state.global().text() << '\n'; });

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include <weft/core/error.hpp>
#include <weft/engine/gradient_state.hpp>
#include <weft/engine/live_parameters.hpp>
#include <weft/engine/parameter_info.hpp>
#include <weft/engine/parameter_storage.hpp>

namespace weft {

class ParameterState;

namespace detail {
/// Notified when a layer asks for the values of a parameter of a model that is a Module (engine/child_calls.hpp).
class ParameterWatch {
 public:
  ParameterWatch() = default;
  ParameterWatch(const ParameterWatch&) = delete;
  ParameterWatch& operator=(const ParameterWatch&) = delete;
  virtual ~ParameterWatch() = default;

  virtual void asked(ParameterState& state) = 0;
};

class Registry;
}  // namespace detail

/// One parameter of a rank, shared by all handles (Parameter) of it.
class ParameterState {
 public:
  using Run = detail::Run;

  explicit ParameterState(ParameterInfo info) : info_(std::move(info)) {}

  // ---- the description
  const ParameterInfo& info() const { return info_; }
  const std::string& name() const { return info_.name; }
  const Shape& global() const { return info_.global; }
  const Shape& local() const { return info_.local; }
  DataType type() const { return info_.type; }
  DataType gradient_type() const { return info_.gradient_type; }
  std::size_t size() const { return info_.size(); }  ///< elements that layers use
  std::size_t bytes() const { return info_.bytes(); }
  std::size_t gradient_bytes() const { return info_.gradient_bytes(); }
  /// Axis bits over which the elements are cut, data ranks' sharding included.
  unsigned sharded() const { return info_.sharded | (storage_.sharder() ? info_.data_bit() | storage_.others() : 0u); }

  // ---- the part that this rank keeps between steps and updates
  std::size_t kept() const { return storage_.sharder() ? storage_.kept().size : size(); }  ///< elements
  DataType kept_type() const { return storage_.sharder() ? storage_.kept().type : type(); }
  DataType kept_gradient_type() const { return storage_.sharder() ? storage_.kept().gradient_type : gradient_type(); }
  const detail::Runs& runs() const { return storage_.sharder() ? storage_.kept().runs : info_.runs; }  ///< of those elements
  const detail::Buffer& value() const { return storage_.value(); }
  const detail::Buffer& gradient() const { return gradients_.buffer(); }
  bool counted() const { return storage_.counted(); }

  detail::ParameterStorage& storage() { return storage_; }
  const detail::ParameterStorage& storage() const { return storage_; }
  detail::GradientState& gradients() { return gradients_; }
  const detail::GradientState& gradients() const { return gradients_; }

  /// Whether training changes the parameter. If not, its layers compute and add no gradient, no wrapper sums one, and an
  /// optimizer keeps no state for it and neither updates nor decays it.
  bool trainable() const { return trainable_; }
  /// Without effect on the wrappers' memory: programs call freeze and unfreeze of the model.
  void set_trainable(bool trainable) {
    trainable_ = trainable;
    if (!trainable) gradients_.drop();
  }

  // ---- the optimizer that updates it
  /// Whether it is updated by the optimizer of this token, or by none that exists.
  bool is_free_for(const std::shared_ptr<const char>& token) const {
    const auto by = optimizer_.lock();
    return !by || by == token;
  }
  void claim(const std::shared_ptr<const char>& token) { optimizer_ = token; }

  /// From now on data ranks shard the parameter, and those of the axes in `others`; `sharder` manages this rank's part.
  void shard(detail::Hooks& sharder, unsigned others = 0) {
    storage_.shard(sharder, others);
    gradients_.separate();
  }

  // ---- for the engine
  /// The registry of the model under construction; null: the model is complete.
  detail::Registry* registry() const { return registry_; }
  void set_registry(detail::Registry* registry) { registry_ = registry; }
  /// From now on `watch` is notified when layers ask for the values; `part` is its number for the parameter.
  void watch(detail::ParameterWatch& watch, std::size_t part) {
    watch_ = &watch;
    part_ = part;
  }
  std::size_t part() const { return part_; }
  /// Whether a layer has asked for the values since `forget_asking`.
  bool asked() const { return asked_; }
  void forget_asking() { asked_ = false; }
  void ask() {
    asked_ = true;
    if (watch_ != nullptr) watch_->asked(*this);
  }

  // ---- for wrappers
  /// Whether the gradient is unreduced over this axis. The caller reduces it now: from here on it counts as reduced.
  template <detail::Axis A>
  bool take_unreduced(A axis) {
    return gradients_.take_unreduced(axis);
  }
  /// The same for the sum over data ranks, a gradient's last one, in which every parameter takes part. Throws
  /// UnreducedGradientError if another sum is missing.
  void take_unreduced_over_data() {
    if (const unsigned others = gradients_.unreduced() & ~info_.data_bit())
      throw_error<UnreducedGradientError>({"the gradient of ", name(), " is to be summed over ", info_.expert_data ? "edp" : "dp",
                                           " while it is unreduced over ", detail::names_of_axes(info_, others),
                                           ": no wrapper sums it"});
    gradients_.take_unreduced();
  }
  /// Calls f(std::span<float>) or f(std::span<double>) with the whole local gradient, [size()]. On a GPU its memory is the
  /// device's.
  template <class F>
  void gradient_span(F&& f) {
    const auto call = [&]<class G>(G*) { f(std::span<G>(static_cast<G*>(gradients_.layer_buffer().get()), size())); };
    if (gradient_type() == DataType::float64) call(static_cast<double*>(nullptr));
    else call(static_cast<float*>(nullptr));
  }

 private:
  ParameterInfo info_;
  detail::ParameterStorage storage_;
  detail::GradientState gradients_;
  std::weak_ptr<const char> optimizer_;
  detail::ParameterWatch* watch_ = nullptr;
  detail::Registry* registry_ = nullptr;
  std::size_t part_ = 0;
  bool trainable_ = true, asked_ = false;
  detail::LiveParameter live_{*this};
};

namespace detail {

/// A part of a gradient, for a norm: elements that another rank counts are only checked for being finite.
struct GradientPart {
  const ParameterState* state;
  Run run;
  bool counted;
};

}  // namespace detail

}  // namespace weft
