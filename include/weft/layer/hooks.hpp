// SPDX-License-Identifier: Apache-2.0
#pragma once
// What wrappers see of a model: its parameters without their types, grouped into units (front, each block, back), and the
// moments of a step at which they may act. One virtual call per unit, never per operation.

#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <weft/comm/communicator.hpp>
#include <weft/core/list.hpp>
#include <weft/core/owner.hpp>
#include <weft/core/scalar.hpp>
#include <weft/mesh/axis.hpp>
#include <weft/device/arena.hpp>
#include <weft/tensor/shape.hpp>
#include <weft/device/offload_store.hpp>

namespace weft {

namespace detail {

/// How a parameter's elements start: a function of (name, seed, global element index), so the same in every layout.
struct Initial {
  enum class Kind { constant, normal } kind = Kind::constant;
  double value = 0;  ///< the constant, or the standard deviation
};

}  // namespace detail

inline constexpr detail::Initial zeros{detail::Initial::Kind::constant, 0};
inline constexpr detail::Initial ones{detail::Initial::Kind::constant, 1};
constexpr detail::Initial normal(double standard_deviation) { return {detail::Initial::Kind::normal, standard_deviation}; }

namespace detail {

/// A contiguous run of a rank's elements and where it lies in the whole parameter.
struct Run {
  std::size_t local = 0, global = 0, length = 0;
  bool owned = true;    ///< false where another rank of the axis holds the same elements and counts them
  bool shared = false;  ///< other ranks of the axis hold the same elements
};

class Hooks;
class ReductionTree;

}  // namespace detail

struct ParameterState;

namespace detail {

/// Elements of a gradient, for a norm: those that another rank counts are only asked whether they are finite.
struct GradientPart {
  const ParameterState* state;
  Run run;
  bool counted;
};

/// Where layers find a parameter of which this rank keeps only a part between steps: local.size() elements each.
struct Gathered {
  Hooks* keeper = nullptr;  ///< makes room for a gradient
  std::size_t kept = 0;     ///< elements of the part
  /// Element types of the part: wider than the parameter's where the part is its master copy, narrower than gradients are added in
  /// where their sums are rounded.
  DataType type = DataType::float32, gradient_type = DataType::float32;
  Buffer value;             ///< null while released
  Buffer gradient;          ///< null until a layer adds to it
  List<Run> runs;    ///< of the local elements
};

}  // namespace detail

/// A parameter without its placement rules. Layers add gradients in accumulate_t of the element type (float for bfloat16).
struct ParameterState {
  using Run = detail::Run;

  std::string name;  ///< global: random-number site, checkpoint name; no two parameters of a model have one name
  Shape global, local;
  DataType type = DataType::float32, gradient_type = DataType::float32;
  detail::Initial initial;
  detail::Buffer value, gradient;  ///< kept() elements of kept_type() and kept_gradient_type(): what this rank holds between steps and updates
  detail::List<Run> runs;   ///< those elements in the whole; padding belongs to no run
  detail::List<detail::Buffer> nodes;         ///< further sums of micro-batches that may not be added here yet (reproducible runs)
  detail::List<detail::Buffer> terms;         ///< gradients of other data ranks' micro-batches before the last one (experts, reproducible runs)
  std::shared_ptr<detail::Store> store;      ///< where the value lies instead, between its uses (ModelOptions::offload)
  std::size_t record = 0;            ///< there
  detail::Maybe<detail::Gathered> gathered;  ///< set where that is not all that layers use here (FullyShardedDataParallel)

  unsigned axes = 0;     ///< axis bits on which its gradient must say how it lies
  unsigned sharded = 0;  ///< axis bits over which the elements are cut
  unsigned later = 0;    ///< axis bits on which this rank is not the first: it does not count what the first one has, too
  unsigned pending = 0;  ///< axis bits over which the gradient still owes a sum
  unsigned whole = 0;    ///< axis bits on which something that was added is the same on every rank
  bool fresh = true;     ///< nothing accumulated since the step began: the next gradient overwrites
  bool touched = true;   ///< some micro-batch of some rank added to the gradient in this step
  bool counted = true;   ///< this rank counts it in norms and writes it in checkpoints
  bool tied = false;     ///< other ranks of the pipeline hold it, too
  /// Of a parameter on the expert mesh: the ranks of edp. Its gradient is summed over them, and not over dp.
  detail::Maybe<Communicator> expert_data;
  bool gradient_only = false;  ///< stands for a second use of a parameter: it has no value
  int replicas = 1;      ///< ranks of tp that hold the same elements of a sharded parameter (key-value heads < tp)

  /// A step begins: gradients start anew.
  void begin_step() {
    fresh = true;
    touched = false;
  }
  /// The bit of the axis that a data wrapper sums and shards over.
  unsigned data_bit() const { return expert_data ? axis_bit<edp> : axis_bit<dp>; }
  std::size_t size() const { return local.size(); }  ///< elements that layers use
  std::size_t kept() const { return gathered ? gathered->kept : size(); }
  DataType kept_type() const { return gathered ? gathered->type : type; }
  DataType kept_gradient_type() const { return gathered ? gathered->gradient_type : gradient_type; }
  detail::Buffer& layer_value() { return gathered ? gathered->value : value; }
  const detail::Buffer& layer_value() const { return gathered ? gathered->value : value; }
  detail::Buffer& layer_gradient() { return gathered ? gathered->gradient : gradient; }
  const detail::List<Run>& layer_runs() const { return gathered ? gathered->runs : runs; }
  std::size_t bytes() const { return size() * size_of(type); }
  std::size_t gradient_bytes() const { return size() * size_of(gradient_type); }
};

namespace detail {

/// Whether the gradients of a model's last training step have been used.
struct StepGradients {
  bool applied = true;
};

/// What is gathered, released and reduced together.
struct Unit {
  std::string name;
  List<ParameterState*> parameters;
  bool complete = true;  ///< at gradients_ready: no micro-batch of the step adds to these gradients any more

  bool uses(const ParameterState* state) const {
    for (const ParameterState* mine : parameters)
      if (mine == state) return true;
    return false;
  }
};

/// What a wrapper does around a step. "After" events and gradients_ready run innermost wrapper first: sums over tp are paid
/// before a bucket leaves over dp. This is a matter of correctness.
class Hooks {
 public:
  virtual ~Hooks() = default;
  /// A parameter is being made on this rank; the shapes are known. True: this wrapper allocates and fills it.
  virtual bool allocate(ParameterState&) { return false; }
  /// The model is complete; units in the order in which their gradients will become ready.
  virtual void prepare(std::span<Unit*>) {}
  /// This wrapper sums over data ranks: it comes after all others, also where those have their turn after every micro-batch.
  virtual bool sums_data() const { return false; }
  /// The order in which data ranks' gradients are added in the next step of a reproducible run. The tree outlives the step.
  virtual void add_in_order(const ReductionTree&) {}
  /// gradients_ready comes after every micro-batch, not only after the last one.
  virtual bool reduces_each_micro_batch() const { return false; }
  /// A step, or forward alone, begins.
  virtual void begin(bool /*training*/) {}
  virtual void before_forward(Unit&) {}
  virtual void after_forward(Unit&) {}
  virtual void before_backward(Unit&) {}
  virtual void after_backward(Unit&) {}
  /// A layer is about to add to a gradient that this wrapper keeps and that has no room yet.
  virtual void open_gradient(ParameterState&) {}
  /// The last micro-batch's weight gradients of this unit are in place.
  virtual void gradients_ready(Unit&) {}
  /// The sums over data ranks of the next step are compared with plain ones, where a user's hook makes them.
  virtual void check_sums() {}
  /// The end of what `begin` began; all gradients are in place: wait for what is under way.
  virtual void finish() {}
};

/// What was added so far is the gradient of one data rank's micro-batch; that of the next one's begins in a place of its own.
template <class Device>
void next_term(Device& device, ParameterState& state) {
  state.terms.push_back(std::exchange(state.layer_gradient(), device.allocate(state.gradient_bytes())));
  state.fresh = true;
}

/// Room for the gradient that layers add to.
template <class Device>
void open_layer_gradient(Device& device, ParameterState& state) {
  if (state.layer_gradient()) return;
  if (state.gathered) state.gathered->keeper->open_gradient(state);
  else state.gradient = device.allocate_persistent(state.gradient_bytes());
}

}  // namespace detail

}  // namespace weft
