// SPDX-License-Identifier: Apache-2.0
#pragma once
// The parameters of a model of DTensors by name: distributed by a plan of name patterns, and updated by weft's optimizers.
//
//   auto named = dtensor::distribute_parameters(grid, whole, {{"*.up", {shard(1)}}, {"*.down", {shard(0)}}});
//   dtensor::Parameters<float> parameters(world.communicator(), named);
//   optim::AdamW optimizer(parameters, {.learning_rate = 1e-3, .clip = 1});
//   cross_entropy(model(parameters["mlp.up"], ...), labels).backward();
//   optimizer.step();   // takes the gradients, and drops them from the tensors

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <weft/dtensor/dtensor.hpp>
#include <weft/engine/name_pattern.hpp>
#include <weft/engine/parameter_state.hpp>
#include <weft/engine/step_gradients.hpp>
#include <weft/kernels/elementwise.hpp>
#include <weft/optim/optimizer.hpp>

namespace weft::dtensor {

/// Tensors with their names, in the order in which Parameters keeps them.
template <class T, class Exec = DefaultDevice::execution_space>
using NamedTensors = std::vector<std::pair<std::string, DTensor<T, Exec>>>;

/// A pattern of names (`*`: any characters, `?`: one) and the placements of the tensors that it matches.
struct PlanLine {
  std::string pattern;
  Placements placements;
};

/// Distributes each tensor as the first line of the plan whose pattern its name matches, replicated without one, as a leaf
/// (requires_grad). `source` as in distribute_tensor. Collective. Throws UsageError for a pattern that matches no name.
template <weft::detail::Real T, class Exec>
NamedTensors<T, Exec> distribute_parameters(const DeviceMesh& mesh,
                                            const std::vector<std::pair<std::string, Tensor<T, Exec>>>& whole,
                                            const std::vector<PlanLine>& plan, Source source = Source::first_rank) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : whole) names.push_back(name);
  for (const PlanLine& line : plan) {
    bool found = false;
    for (const std::string& name : names) found = found || weft::detail::matches(line.pattern, name);
    if (!found)
      throw_error<UsageError>({"dtensor: distribute_parameters: the pattern ", line.pattern,
                               " matches no tensor; similar names: ", weft::detail::text_of_names_near(line.pattern, names)});
  }
  NamedTensors<T, Exec> named;
  for (const auto& [name, tensor] : whole) {
    Placements placements(mesh.axes());
    for (std::size_t line = plan.size(); line-- > 0;)
      if (weft::detail::matches(plan[line].pattern, name)) placements = plan[line].placements;
    named.emplace_back(name, distribute_tensor(mesh, tensor, placements, source));
    named.back().second.requires_grad();
  }
  return named;
}

/// Named leaves as a model that optimizers with elementwise rules (optim::AdamW, optim::Sgd) update: each rank updates its
/// elements of each tensor in place, and clipping uses the norm over all elements of the whole tensors. A step takes the
/// gradients that backward has added up since the last one; a tensor that no backward has reached is not updated.
template <weft::detail::Real T, class Exec = DefaultDevice::execution_space>
class Parameters {
 public:
  struct model_type {
    using scalar = T;
  };

  /// `ranks`: the communicator of all ranks of the tensors' mesh. Throws UsageError for no tensor, two of one name, a tensor that
  /// is no leaf or is partial, tensors of different meshes, and a communicator of another size.
  Parameters(Communicator ranks, NamedTensors<T, Exec> named) : communicator_(std::move(ranks)), named_(std::move(named)) {
    if (named_.empty()) throw_error<UsageError>({"dtensor: Parameters of no tensor"});
    std::size_t all = 1;
    for (const AxisPlace& axis : named_[0].second.mesh().places()) all *= axis.ranks;
    if (all != std::size_t(communicator_.size()))
      throw_error<UsageError>({"dtensor: Parameters on ", named_[0].second.mesh().text(), " with a communicator of ",
                               communicator_.size(), " ranks: give the one of all ranks of the mesh"});
    for (auto& [name, tensor] : named_) add(name, tensor);
    gradients_->open = std::make_unique<Collect>(*this);
  }
  Parameters(const Parameters&) = delete;
  Parameters& operator=(const Parameters&) = delete;

  /// The tensor of this name. Throws UsageError if there is none.
  const DTensor<T, Exec>& operator[](std::string_view name) const {
    std::vector<std::string> names;
    for (const auto& [of, tensor] : named_) {
      if (of == name) return tensor;
      names.push_back(of);
    }
    throw_error<UsageError>({"dtensor: no parameter ", name, "; similar names: ", weft::detail::text_of_names_near(name, names)});
  }
  const NamedTensors<T, Exec>& named() const { return named_; }

  // ---- for optimizers
  Communicator communicator() const { return communicator_; }
  Device<Exec>& device() const { return named_[0].second.to_local().device(); }
  template <class F>
  void for_each_state(F&& f) {
    for (const auto& state : states_) f(*state);
  }
  struct Stages {
    std::shared_ptr<weft::detail::StepGradients> steps;
    const std::shared_ptr<weft::detail::StepGradients>& gradients() const { return steps; }
  };
  Stages stages() const { return {gradients_}; }
  /// Asked for by rules that need whole matrices (optim::Muon). Throws UsageError.
  mesh_layout::RankGrids grids() const {
    throw_error<UsageError>(
        {"dtensor: this optimizer's rule needs whole rows or matrices, and ranks hold parts of DTensors: use an "
         "elementwise rule, optim::AdamW or optim::Sgd"});
  }

 private:
  // Called when an optimizer's step begins.
  struct Collect final : weft::detail::OpenStep {
    explicit Collect(Parameters& of) : parameters(of) {}
    void complete() override { parameters.collect(); }
    Parameters& parameters;
  };

  void add(const std::string& name, DTensor<T, Exec>& tensor) {
    for (const auto& state : states_)
      if (state->name() == name) throw_error<UsageError>({"dtensor: two parameters ", name});
    if (!(tensor.mesh() == named_[0].second.mesh()))
      throw_error<UsageError>({"dtensor: parameter ", name, " on ", tensor.mesh().text(), ", and ", named_[0].first, " on ",
                               named_[0].second.mesh().text(), ": all need one mesh"});
    for (const AxisPlacement& placement : tensor.placements())
      if (placement.is_partial())
        throw_error<UsageError>({"dtensor: parameter ", name, " ", text(tensor.placements()),
                                 ": an update of each term would be made once for each rank; redistribute it first"});
    tensor.requires_grad();
    const Tensor<T, Exec>& local = tensor.to_local();
    states_.push_back(std::make_unique<ParameterState>(ParameterInfo{.name = name,
                                                                     .global = tensor.shape(),
                                                                     .local = local.shape(),
                                                                     .type = weft::data_type_of<T>,
                                                                     .gradient_type = weft::data_type_of<accumulate_t<T>>}));
    ParameterState& state = *states_.back();
    state.storage().set_value(std::shared_ptr<void>(local.buffer(), local.data()));
    const auto places = tensor.mesh().places();
    for (std::size_t axis = 0; axis < places.size(); ++axis)
      if (tensor.placements()[axis].is_replicate() && places[axis].rank != 0) state.storage().count_elsewhere();
  }

  void collect() {
    bool any = false;
    for (std::size_t i = 0; i < named_.size(); ++i) {
      DTensor<T, Exec>& tensor = named_[i].second;
      weft::detail::GradientState& gradients = states_[i]->gradients();
      gradients.set_touched(tensor.has_grad());
      if (!tensor.has_grad()) continue;
      any = true;
      const Tensor<T, Exec> g = tensor.grad().to_local();
      if constexpr (std::is_same_v<T, accumulate_t<T>>) gradients.set_buffer(std::shared_ptr<void>(g.buffer(), g.data()));
      else {
        const Tensor<accumulate_t<T>, Exec> wide(g.device(), g.shape());
        kernels::cast<T, accumulate_t<T>>(g.device(), g.size(), g.data(), wide.data());
        gradients.set_buffer(wide.buffer());
      }
      tensor.zero_grad();
    }
    if (any) gradients_->begin(gradients_->next, false);
    gradients_->open = std::make_unique<Collect>(*this);
  }

  Communicator communicator_;
  NamedTensors<T, Exec> named_;
  std::vector<std::unique_ptr<ParameterState>> states_;
  std::shared_ptr<weft::detail::StepGradients> gradients_ = std::make_shared<weft::detail::StepGradients>();
};

}  // namespace weft::dtensor
