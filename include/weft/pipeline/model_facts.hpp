// SPDX-License-Identifier: Apache-2.0
#pragma once
// The facts about a model that its type and its context's type determine, as values for the engine.
//
//   const ModelFacts facts = facts_of<Model>(context);   // pipeline/model_batch.hpp

#include <cstddef>

#include <weft/pipeline/loss_axes.hpp>

namespace weft::detail {

struct ModelFacts {
  bool recipe = false;           ///< a front, equal blocks and a back
  const void* module = nullptr;  ///< of a model that is one Module: layer_kind of its type
  bool one_unit = false;         ///< its loss is checked in forwards of the whole model (Stages::check_whole_loss)
  bool says_sum = false;         ///< it declares its loss a sum, which is then not checked
  std::size_t scalar_bytes = 4;  ///< of the type in which the model computes
  LossAxes loss;
};

}  // namespace weft::detail
