// SPDX-License-Identifier: Apache-2.0
#pragma once
// Remedies for a model that does not fit. Each one is rehearsed, so the advice is correct.

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <weft/core/error.hpp>
#include <weft/runtime/rehearse.hpp>

#include "memory_options.hpp"

namespace plan {

/// The largest peak of these options' ranks; nothing if the options are impossible.
using LargestPeak = std::function<std::optional<double>(const MemoryOptions&)>;

/// An option with another value, and all options with it.
struct Change {
  std::string option, value;
  MemoryOptions options;
  std::string text() const { return value.empty() ? option : option + " " + value; }
};
/// The cheapest first: in time, then in ranks.
inline std::vector<Change> changes_of(const MemoryOptions& o) {
  std::vector<Change> all;
  const auto add = [&](const std::string& option, const std::string& value, const auto& change) {
    all.push_back({option, value, o});
    change(all.back().options);
  };
  const auto doubled = [](std::int64_t& degree, weft::mesh_layout::Layout& l) {
    degree *= 2;
    if (l.dp && *l.dp % 2 == 0) *l.dp /= 2;  // with the same ranks; with an odd dp, twice as many
    else if (l.dp && l.world) l.world = *l.world * 2;
  };
  constexpr std::int64_t part = 2048;  // tokens, which are enough for fast products
  if (const std::int64_t parts = (o.layout.micro_batch * o.sequence / o.layout.cp + part - 1) / part; parts > o.loss_chunks)
    add("--loss-chunks", std::to_string(parts), [parts](MemoryOptions& m) { m.loss_chunks = parts; });
  if (o.recompute == "none") add("--recompute", "selective", [](MemoryOptions& m) { m.recompute = "selective"; });
  for (std::int64_t stage = o.zero + 1; stage <= 3; ++stage)
    add("--zero", std::to_string(stage), [&](MemoryOptions& m) { m.zero = stage; });
  if (o.layout.micro_batch % 2 == 0)
    add("--micro-batch", std::to_string(o.layout.micro_batch / 2), [](MemoryOptions& m) { m.layout.micro_batch /= 2; });
  if (o.activations != "host") add("--activations", "host", [](MemoryOptions& m) { m.activations = "host"; });
  if (o.recompute != "full") add("--recompute", "full", [](MemoryOptions& m) { m.recompute = "full"; });
  if (!o.sequence_parallel && o.layout.tp > 1)
    add("--sequence-parallel", "", [](MemoryOptions& m) { m.sequence_parallel = true; });
  add("--tp", std::to_string(2 * o.layout.tp), [&](MemoryOptions& m) {
    doubled(m.layout.tp, m.layout);
    m.layout.etp.reset();
  });
  add("--pp", std::to_string(2 * o.layout.pp), [&](MemoryOptions& m) { doubled(m.layout.pp, m.layout); });
  if (o.offload == "none") add("--offload", "host", [](MemoryOptions& m) { m.offload = "host"; });
  return all;
}

/// Changes that make the options fit into `memory` bytes: single changes that are enough, otherwise several together, if any.
inline std::string advice_for(MemoryOptions o, double memory, double needed, const LargestPeak& largest_peak) {
  const auto with = [](const Change& change, double peak) {
    return change.text() + " (" + weft::runtime::bytes_text(peak) + ")";
  };
  std::string fits;
  for (const Change& change : changes_of(o))
    if (const auto peak = largest_peak(change.options); peak && *peak <= memory)
      fits += (fits.empty() ? "" : ", or ") + with(change, *peak);
  if (!fits.empty()) return "it fits with " + fits;
  // Combines the first change that saves memory with the first that saves more in addition. A later value of an option replaces
  // an earlier one.
  std::vector<Change> taken;
  constexpr int most = 12;
  for (int i = 0; i < most && needed > memory; ++i) {
    bool found = false;
    for (const Change& change : changes_of(o)) {
      const auto peak = largest_peak(change.options);
      if (!peak || *peak > 0.98 * needed) continue;
      std::erase_if(taken, [&](const Change& earlier) { return earlier.option == change.option; });
      taken.push_back(change);
      o = change.options, needed = *peak, found = true;
      break;
    }
    if (!found) break;
  }
  std::string together;
  for (const Change& change : taken) together += (together.empty() ? "" : " ") + change.text();
  if (needed <= memory) return "it fits with all of " + together + " (" + weft::runtime::bytes_text(needed) + ")";
  if (together.empty()) return "no option of plan makes it smaller: a smaller model, or a larger device";
  return "with all of " + together + " it still needs " + weft::runtime::bytes_text(needed) +
         ": a smaller model, or more ranks along tp and pp";
}

}  // namespace plan
