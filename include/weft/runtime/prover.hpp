// SPDX-License-Identifier: Apache-2.0
#pragma once
// The pointer through which `run` calls proofs (runtime/prove.hpp). A header-only program that is never proven does not compile
// them. The library weft::compiled has them in every program.
//
//   #include <weft/runtime/prove.hpp>   // header-only: now WEFT_PROVE=8 ./program proves it

#include <cstdlib>
#include <functional>
#include <optional>

#include <weft/core/error.hpp>
#include <weft/mesh/world.hpp>

namespace weft::runtime::detail {

/// Proves the program if WEFT_PROVE asks for it, and returns its exit code; nothing if it does not. Throws UsageError for invalid
/// variables of a proof, and for a program that a launcher started.
std::optional<int> prove_if_asked(const std::function<int(World&)>& f);

#ifdef WEFT_COMPILED
inline std::optional<int> (*prover)(const std::function<int(World&)>&) = &prove_if_asked;
#else
inline std::optional<int> (*prover)(const std::function<int(World&)>&) = nullptr;
#endif

/// Whether the environment asks for a proof. Throws UsageError if this program has none.
WEFT_COLD inline bool asks_for_proof() {
  const char* const wanted = std::getenv("WEFT_PROVE");
  if (wanted == nullptr || *wanted == '\0') return false;
  if (prover == nullptr)
    throw UsageError(
        "WEFT_PROVE: this program was compiled without proofs: compile it with -include weft/runtime/prove.hpp, or link "
        "weft::compiled");
  return true;
}

}  // namespace weft::runtime::detail
