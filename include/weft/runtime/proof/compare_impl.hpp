// SPDX-License-Identifier: Apache-2.0
#pragma once
// The comparison of two runs' notes. Definitions for runtime/proof/compare.hpp.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include <weft/core/inline.hpp>
#include <weft/core/text.hpp>
#include <weft/runtime/proof/compare.hpp>

namespace weft::runtime::detail {

WEFT_COLD WEFT_INLINE double largest_element(const ProofNotes::Tensor& tensor) {
  double most = 0;
  for (const auto& [part, values] : tensor.parts)
    for (const double value : values)
      if (std::isfinite(value)) most = std::max(most, std::abs(value));
  return most;
}

/// Whether every layout must note this tensor, in full size. Others may be cut in another way: batches that are padded, results
/// of a micro-batch.
WEFT_COLD WEFT_INLINE bool must_be_there(ProofPhase phase) { return phase == ProofPhase::loss || phase >= ProofPhase::gradient; }

/// The largest difference of two tensors with that scale, and its place as text. `all`: false if a part was left out.
WEFT_COLD WEFT_INLINE std::pair<double, std::string> difference_of(const ProofNotes::Key& key, const ProofNotes::Tensor& one,
                                                                   const ProofNotes::Tensor& other, double scale, bool& all) {
  double size = other.replicas;
  std::string text = "ranks that must hold the same elements differ";
  const bool samples = one.parts.size() > 1 || key.phase == ProofPhase::batch || key.phase == ProofPhase::forward ||
                       key.phase == ProofPhase::backward;
  for (const auto& [part, mine] : one.parts) {
    const auto at = other.parts.find(part);
    const std::size_t elements = at == other.parts.end() ? 0 : at->second.size();
    if (at == other.parts.end() || elements != mine.size()) {
      all = false;
      if (!must_be_there(key.phase)) continue;
      return {std::numeric_limits<double>::infinity(),
              weft::detail::joined({"has ", elements, elements == 1 ? " element" : " elements", " instead of ", mine.size()})};
    }
    std::vector<double> wanted = mine, found = at->second;
    if (one.sorted || other.sorted) std::sort(wanted.begin(), wanted.end()), std::sort(found.begin(), found.end());
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const bool same = found[i] == wanted[i] || (std::isnan(found[i]) && std::isnan(wanted[i]));
      double off = same ? 0 : std::abs(found[i] - wanted[i]) / scale;
      if (std::isnan(off)) off = std::numeric_limits<double>::infinity();
      if (!(off > size)) continue;
      char numbers[80];
      std::snprintf(numbers, sizeof numbers, off < 1e-6 ? "%.17g instead of %.17g" : "%.9g instead of %.9g", found[i], wanted[i]);
      size = off;
      const bool scalar = wanted.size() == 1 && !samples;
      text = scalar ? std::string(numbers)
                    : weft::detail::joined({samples ? "sample " : "", samples ? weft::detail::joined({part, " "}) : "",
                                            "element ", i, ": ", numbers});
    }
  }
  return {size, text};
}

WEFT_COLD WEFT_INLINE void compare(const ProofNotes& one, const ProofNotes& other,
                                   const std::function<void(const ProofDifference&)>& f,
                                   const std::function<void(const ProofNotes::Key&, const char* reason)>& left_out) {
  std::map<std::pair<int, ProofPhase>, double> most;
  std::vector<std::tuple<const ProofNotes::Key*, const ProofNotes::Tensor*, double>> all;
  for (const auto& [key, tensor] : one.tensors) {
    const double size = largest_element(tensor);
    double& largest = most[{key.step, key.phase}];
    largest = std::max(largest, size);
    all.push_back({&key, &tensor, size});
  }
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) {
    const auto place = [](const auto& x) {
      const ProofNotes::Key& key = *std::get<0>(x);
      return std::tuple(key.step, key.phase, key.unit, std::get<1>(x)->place);
    };
    return place(a) < place(b);
  });
  for (const auto& [key, tensor, size] : all) {
    const auto at = other.tensors.find(*key);
    const bool there = at != other.tensors.end();
    if (key->step > other.steps) continue;
    if (!there && !must_be_there(key->phase)) {
      if (left_out) left_out(*key, "this layout does not note it");
      continue;
    }
    ProofDifference difference{key, std::numeric_limits<double>::infinity(), "is missing"};
    if (there) {
      const double of_phase = key->phase == ProofPhase::kept ? 0 : most[{key->step, key->phase}];  // kept values have no unit
      const double scale = std::max({size, 1e-3 * of_phase, 1e-300});
      bool all = true;
      std::tie(difference.size, difference.text) = difference_of(*key, *tensor, at->second, scale, all);
      if (!all && left_out && !must_be_there(key->phase)) left_out(*key, "samples are missing or have other sizes");
    }
    difference.text =
        weft::detail::joined({"step ", key->step, ", ", name_of(key->phase), ", ", key->name, ", ", difference.text});
    f(difference);
  }
}

}  // namespace weft::runtime::detail
