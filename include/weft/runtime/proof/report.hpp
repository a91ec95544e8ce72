// SPDX-License-Identifier: Apache-2.0
#pragma once
// The report of a proof: the verdict of each layout, lines for people, and a certificate as JSON.
//
//   std::fputs(report.text().c_str(), stdout);
//   return report.proven() ? 0 : 1;

#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include <weft/device/proof.hpp>

namespace weft::runtime {

using weft::detail::ProofLayout;
using weft::detail::ProofPhase;

/// The result of one layout.
struct ProvenLayout {
  enum class Verdict { agrees, differs, fails, refused, not_compared, not_begun };
  ProofLayout layout;
  Verdict verdict = Verdict::not_begun;
  std::string text = {};  ///< the first tensor that differs, the error, or the reason
};

struct ProofReport {
  std::vector<ProvenLayout> layouts;
  int ranks = 0, steps = 0;
  bool in_double = false;  ///< the program computed in double: bounds are 1e-11
  /// The largest difference that was allowed, by phase, over the tensor's largest element.
  std::array<double, weft::detail::proof_phases> largest = {};
  std::vector<std::string> not_compared = {};  ///< tensors that were left out, a text for each reason
  double seconds = 0;

  std::size_t count(ProvenLayout::Verdict verdict) const;
  /// At least one layout agrees, and all others were refused: none differs or fails, and all were begun and compared.
  bool proven() const;
  /// Lines for people.
  std::string text() const;
  /// A JSON object: program, versions, layouts with their verdicts, largest differences, and a hash of the rest. `program`: the
  /// name and the hash of a file.
  std::string certificate(const std::string& program) const;
};

}  // namespace weft::runtime

#ifndef WEFT_COMPILED
#include <weft/runtime/proof/report_impl.hpp>
#endif
