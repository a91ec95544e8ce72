// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for autograd/parameter.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <weft/autograd/parameter.hpp>
#include <weft/core/inline.hpp>

namespace weft::detail {

WEFT_COLD WEFT_INLINE void refuse_axes(const ParameterState& state, unsigned axes) {
  throw_error<ShapeError>(
      {"the gradient of parameter ", state.name(), " says how it lies on ", names_of_axes(state.info(), axes), ", in force are ",
       names_of_axes(state.info(), state.info().axes),
       ": whether it is a term of a sum over the others is not known; compute it with operations on placed tensors"});
}

WEFT_OUT_OF_LINE WEFT_INLINE ParameterHandle::ParameterHandle() {}

WEFT_COLD WEFT_INLINE void ParameterHandle::make_state(ParameterInfo&& info) {
  state_ = std::make_shared<ParameterState>(std::move(info));
}

WEFT_OUT_OF_LINE WEFT_INLINE ParameterHandle::ParameterHandle(const ParameterHandle& other) : state_(other.state_) {
  if (state_ != nullptr && state_->registry() != nullptr) state_->registry()->add_use(*state_);
}

WEFT_OUT_OF_LINE WEFT_INLINE ParameterHandle::ParameterHandle(ParameterHandle&& other) noexcept
    : state_(std::move(other.state_)) {}

WEFT_OUT_OF_LINE WEFT_INLINE ParameterHandle& ParameterHandle::operator=(ParameterHandle other) noexcept {
  state_.swap(other.state_);
  return *this;
}

WEFT_OUT_OF_LINE WEFT_INLINE ParameterHandle::~ParameterHandle() {}

WEFT_OUT_OF_LINE WEFT_INLINE void ParameterHandle::require_usable(DataType beside) const {
  if (beside != state_->type())
    throw_error<ShapeError>(
        {"parameter ", state_->name(), " holds ", name_of(state_->type()), ", used beside a tensor of ", name_of(beside)});
  state_->ask();
  if (!state_->storage().layer_value())
    throw_error<Error>({"parameter ", state_->name(),
                        " is used while it is released, or by a unit that has no copy of it: copy a layer that units share into "
                        "each of them, not a pointer to it"});
}

WEFT_OUT_OF_LINE WEFT_INLINE void ParameterHandle::require_gradient(const Shape& shape, DataType type) const {
  if (shape.size() != state_->size())
    throw_error<ShapeError>({"gradient ", shape.text(), " of parameter ", state_->name(), " ", state_->local().text()});
  if (type != state_->gradient_type())
    throw_error<ShapeError>({"gradient of parameter ", state_->name(), " in another element type"});
}

}  // namespace weft::detail
