// SPDX-License-Identifier: Apache-2.0
#pragma once
// The error of a sample that could not be loaded. Definitions for data/load_ahead.hpp.

#include <weft/core/inline.hpp>
#include <weft/data/load_ahead.hpp>

namespace weft::data::detail {

WEFT_COLD WEFT_INLINE void rethrow_with_sample(const std::exception& error, std::size_t index, std::uint64_t step) {
  std::string_view text = error.what();
  int exit_code = 1;
  if (const auto* ours = dynamic_cast<const Error*>(&error)) {
    exit_code = ours->exit_code();
    if (text.starts_with("weft: ")) text.remove_prefix(6);
  }
  std::throw_with_nested(Error(weft::detail::joined({"loader: sample ", index, " of step ", step, ": ", text}), exit_code));
}

}  // namespace weft::data::detail
