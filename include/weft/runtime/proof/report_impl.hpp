// SPDX-License-Identifier: Apache-2.0
#pragma once
// The lines and the certificate of a proof. Definitions for runtime/proof/report.hpp.

#include <algorithm>
#include <cstdio>
#include <utility>

#include <weft/core/hash.hpp>
#include <weft/core/inline.hpp>
#include <weft/core/json_writer.hpp>
#include <weft/core/text.hpp>
#include <weft/core/version.hpp>
#include <weft/runtime/proof/report.hpp>

namespace weft::runtime {

namespace detail {

WEFT_COLD WEFT_INLINE const char* verdict_text(ProvenLayout::Verdict verdict) {
  constexpr const char* texts[] = {"agrees", "differs", "fails", "refused", "not compared", "not begun"};
  return texts[std::size_t(verdict)];
}

/// The largest differences of loss, gradients and updated parameters: "loss 2e-16, gradient 3e-15, updated parameter 0".
WEFT_COLD WEFT_INLINE std::string largest_text(const std::array<double, weft::detail::proof_phases>& largest) {
  std::string text;
  for (const ProofPhase phase : {ProofPhase::loss, ProofPhase::gradient, ProofPhase::updated}) {
    char number[32];
    std::snprintf(number, sizeof number, "%.1e", largest[std::size_t(phase)]);
    weft::detail::append_to(text,
                            {text.empty() ? "" : ", ", name_of(phase), " ", largest[std::size_t(phase)] == 0 ? "0" : number});
  }
  return text;
}

}  // namespace detail

WEFT_COLD WEFT_INLINE std::size_t ProofReport::count(ProvenLayout::Verdict verdict) const {
  return std::size_t(
      std::count_if(layouts.begin(), layouts.end(), [verdict](const ProvenLayout& one) { return one.verdict == verdict; }));
}

WEFT_COLD WEFT_INLINE bool ProofReport::proven() const {
  using V = ProvenLayout::Verdict;
  return count(V::agrees) != 0 && count(V::differs) == 0 && count(V::fails) == 0 && count(V::not_begun) == 0 &&
         count(V::not_compared) == 0;
}

WEFT_COLD WEFT_INLINE std::string ProofReport::text() const {
  using V = ProvenLayout::Verdict;
  std::string all;
  for (const V verdict : {V::refused, V::not_compared, V::fails, V::differs}) {
    std::vector<std::pair<std::string, std::vector<const ProvenLayout*>>> reasons;
    for (const ProvenLayout& one : layouts) {
      if (one.verdict != verdict) continue;
      const auto at = std::find_if(reasons.begin(), reasons.end(), [&](const auto& known) { return known.first == one.text; });
      if (at == reasons.end()) reasons.push_back({one.text, {&one}});
      else at->second.push_back(&one);
    }
    for (const auto& [reason, of] : reasons) {
      weft::detail::append_to(all, {"prove: ", detail::verdict_text(verdict), ": ", of.front()->layout.text()});
      if (of.size() > 1) weft::detail::append_to(all, {" and ", of.size() - 1, " more"});
      weft::detail::append_to(all, {": ", reason, "\n"});
    }
  }
  for (const std::string& left_out : not_compared) weft::detail::append_to(all, {"prove: not compared: ", left_out, "\n"});
  if (const std::size_t left = count(V::not_begun); left != 0)
    weft::detail::append_to(
        all, {"prove: ", left, left == 1 ? " layout was" : " layouts were",
              " not begun in the time: a larger WEFT_PROVE_SECONDS, or a smaller ", "WEFT_PROVE than ", ranks, "\n"});
  char time[32];
  std::snprintf(time, sizeof time, "%.1f", seconds);
  const std::size_t right = count(V::agrees), possible = layouts.size() - count(V::refused);
  weft::detail::append_to(all, {"prove: ", proven() ? "proven" : "NOT proven", ": ", right, " of ", possible,
                                possible == 1 ? " possible layout of up to " : " possible layouts of up to ", ranks,
                                " ranks agree with one rank, ", steps, steps == 1 ? " step" : " steps", ", ",
                                in_double ? "computed in double" : "in the types of the program, within measured rounding",
                                "; largest differences: ", detail::largest_text(largest), "; ", time, " s\n"});
  return all;
}

WEFT_COLD WEFT_INLINE std::string ProofReport::certificate(const std::string& program) const {
  const std::string version = weft::version();
  weft::detail::JsonWriter json(6);
  json.object().member("program", program).member("weft", version).member("compiler", __VERSION__);
  json.member("proven", proven()).member("ranks", ranks).member("steps", steps).member("in_double", in_double);
  json.key("largest").object();
  for (std::size_t phase = 0; phase < largest.size(); ++phase) json.member(name_of(ProofPhase(phase)), largest[phase]);
  json.end().key("layouts").array();
  for (const ProvenLayout& one : layouts) {
    json.line().object().member("layout", one.layout.text()).member("ranks", one.layout.ranks);
    json.member("verdict", detail::verdict_text(one.verdict));
    if (!one.text.empty()) json.member("text", one.text);
    json.end();
  }
  json.end().key("not_compared").array();
  for (const std::string& left_out : not_compared) json.value(left_out);
  json.end();
  char hash[20];
  std::snprintf(hash, sizeof hash, "%016llx",
                static_cast<unsigned long long>(weft::detail::hash_bytes(json.text().data(), json.text().size())));
  json.member("hash", hash).end();
  return json.text() + "\n";
}

}  // namespace weft::runtime
