// SPDX-License-Identifier: Apache-2.0
#pragma once
// The pointer through which `run` calls rehearsals (runtime/rehearse.hpp). A header-only program that is never rehearsed does not
// compile them. The library weft::compiled has them in every program.
//
//   #include <weft/runtime/rehearse.hpp>   // header-only: now WEFT_REHEARSE=2048 ./program rehearses it

#include <cstdlib>
#include <functional>
#include <optional>
#include <string_view>

#include <weft/comm/run_options.hpp>
#include <weft/core/error.hpp>
#include <weft/mesh/world.hpp>

namespace weft::runtime::detail {

/// Rehearses the program if its options, its arguments or the environment ask for it, and returns its exit code; nothing if they
/// do not. Throws UsageError for options of a rehearsal that are out of range, even if nothing is rehearsed.
std::optional<int> rehearse_if_asked(const RunOptions& options, const std::function<int(World&)>& f);

#ifdef WEFT_COMPILED
inline std::optional<int> (*rehearser)(const RunOptions&, const std::function<int(World&)>&) = &rehearse_if_asked;
#else
inline std::optional<int> (*rehearser)(const RunOptions&, const std::function<int(World&)>&) = nullptr;
#endif

/// Throws UsageError if a rehearsal is asked for: this program has none.
WEFT_COLD inline void refuse_rehearsal(const RunOptions& options) {
  const char* const variable = std::getenv("WEFT_REHEARSE");
  bool asked = options.rehearse != nullptr || (variable != nullptr && *variable != '\0');
  for (int i = 1; i < options.argc; ++i) {
    const std::string_view word = options.argv[i];
    asked = asked || word == "--rehearse" || word.starts_with("--rehearse=");
  }
  if (asked)
    throw_error<UsageError>(
        {"--rehearse, WEFT_REHEARSE: this program was compiled without rehearsals: include "
         "weft/runtime/rehearse.hpp in it, or link weft::compiled"});
}

}  // namespace weft::runtime::detail
