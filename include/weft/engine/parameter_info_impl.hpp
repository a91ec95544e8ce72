// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for engine/parameter_info.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <weft/core/inline.hpp>
#include <weft/core/text.hpp>
#include <weft/engine/parameter_info.hpp>

namespace weft::detail {

WEFT_COLD WEFT_INLINE std::string names_of_axes(const ParameterInfo& info, unsigned axes) {
  std::string names;
  const std::pair<unsigned, std::string_view> known[] = {
      {axis_bit<dp>, dp::name}, {axis_bit<cp>, cp::name},   {axis_bit<tp>, tp::name},  {axis_bit<pp>, pp::name},
      {axis_bit<ep>, ep::name}, {axis_bit<etp>, etp::name}, {axis_bit<edp>, edp::name}};
  for (const auto& [bit, name] : known)
    if (axes & bit) append_to(names, {names.empty() ? "" : ", ", name});
  for (const auto& [bit, name] : info.user_axes)
    if (axes & bit) append_to(names, {names.empty() ? "" : ", ", name});
  return names.empty() ? "none" : names;
}

}  // namespace weft::detail
