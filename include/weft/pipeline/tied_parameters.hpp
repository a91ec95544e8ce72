// SPDX-License-Identifier: Apache-2.0
#pragma once
// The shared parameters of a rank whose gradients are added at the end of a step: those that several of its chunks use (a tied
// embedding if both ends of the model are here), whose gradients are ready when all chunks are, and those that several stages
// use, whose ranks add up their gradients. If gradients are separate terms (reproducible runs), every parameter that several
// units use is among them, because the way in which data ranks share it must not depend on where the stages are.

#include <memory>
#include <span>
#include <vector>

#include <weft/comm/communicator.hpp>
#include <weft/context/axes_in_force.hpp>
#include <weft/engine/gradient_accumulator.hpp>
#include <weft/engine/registry.hpp>

namespace weft::detail {

class Ties {
 public:
  /// Takes one parameter of the model; all ranks call it for the same parameters in the same order. `stage_of` and `rank_of`: the
  /// place of each unit of the model. Returns true if this rank adds up the gradient here, so that no unit owns it.
  /// `separate_uses`: GradientAccumulator::separates_terms. Collective over the pipeline.
  bool add(const AxesInForce& axes, const Registered& parameter, std::span<const std::size_t> stage_of,
           std::span<const int> rank_of, bool separate_uses);

  std::span<const Tie> all() const { return {ties_.data(), ties_.size()}; }
  /// One unit per tie, in the same order.
  std::vector<Unit>& units() { return units_; }

 private:
  std::shared_ptr<const Communicator> ranks_of(const Communicator& pipeline, const std::vector<int>& holders);

  struct Group {
    std::vector<int> holders;
    std::shared_ptr<const Communicator> ranks;
  };
  std::vector<Tie> ties_;
  std::vector<Unit> units_;
  std::vector<Group> groups_;
};

}  // namespace weft::detail

#ifndef WEFT_COMPILED
#include <weft/pipeline/tied_parameters_impl.hpp>
#endif
