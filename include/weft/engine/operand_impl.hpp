// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for engine/operand.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <weft/core/inline.hpp>
#include <weft/engine/operand.hpp>
#include <weft/engine/parameter_names.hpp>

namespace weft::detail {

WEFT_COLD WEFT_INLINE std::string NamedOperand::text() const {
  const std::string name = name_of_values(data_);
  return name.empty() ? shape_->text() : joined({name, " ", shape_->text()});
}

WEFT_COLD WEFT_INLINE std::string call_text(std::string_view operation, std::initializer_list<NamedOperand> operands) {
  std::string text = joined({operation, "("});
  for (const NamedOperand& operand : operands) append_to(text, {&operand == operands.begin() ? "" : ", ", operand.text()});
  return text += ')';
}

}  // namespace weft::detail
