// SPDX-License-Identifier: Apache-2.0
#pragma once
// An operand in the message of an error: the shape of a value, and the name if the value is a parameter. All messages about
// operands begin with the call as the program wrote it.
//
//   throw_error<ShapeError>({call_text("matmul", {x, w}), ": the summed dims differ"});
//   // "matmul([4, 6], blocks.3.mlp.up [2, 7]): the summed dims differ"

#include <initializer_list>
#include <string>
#include <string_view>

#include <weft/tensor/shape.hpp>
#include <weft/tensor/tensor.hpp>

namespace weft::detail {

/// A tensor, or the shape of one; it must outlive the NamedOperand.
class NamedOperand {
 public:
  template <AnyTensor X>
  NamedOperand(const X& x) : shape_(&x.shape()), data_(x.stored()) {}
  NamedOperand(const Shape& shape) : shape_(&shape) {}

  const Shape& shape() const { return *shape_; }
  /// "[4, 6]", of a parameter "blocks.3.mlp.up [2, 7]".
  std::string text() const;

 private:
  const Shape* shape_;
  const void* data_ = nullptr;
};

/// "matmul([4, 6], blocks.3.mlp.up [2, 7])".
std::string call_text(std::string_view operation, std::initializer_list<NamedOperand> operands);

}  // namespace weft::detail

#ifndef WEFT_COMPILED
#include <weft/engine/operand_impl.hpp>
#endif
