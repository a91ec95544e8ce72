// SPDX-License-Identifier: Apache-2.0
#pragma once
// The recording of events. Definitions for device/rehearsal_trace.hpp.

#include <utility>

#include <weft/core/inline.hpp>
#include <weft/device/rehearsal_trace.hpp>

namespace weft {

WEFT_COLD WEFT_INLINE void RehearsedTrace::add(const Event& event) {
  if (!open_ || muted_ > 0) return;
  const auto found = numbers_.try_emplace(event, std::uint32_t(events_.size()));
  if (found.second) events_.push_back(event);
  order_.push_back(found.first->second);
}

WEFT_COLD WEFT_INLINE std::int32_t RehearsedTrace::group_of(const Group& group) {
  for (std::size_t i = 0; i < groups.size(); ++i)
    if (groups[i].identity == group.identity) return std::int32_t(i);
  groups.push_back(group);
  return std::int32_t(groups.size() - 1);
}

WEFT_COLD WEFT_INLINE std::int64_t RehearsedTrace::kind_of(std::string_view kind) {
  for (std::size_t i = 0; i < kinds.size(); ++i)
    if (kinds[i] == kind) return std::int64_t(i);
  kinds.push_back(kind);
  return std::int64_t(kinds.size() - 1);
}

WEFT_COLD WEFT_INLINE void RehearsedTrace::keep_part() {
  std::vector<std::uint32_t> part;
  std::int64_t starts = 0;
  for (std::size_t i = whole_; i < order_.size(); ++i) {
    const Event& event = events_[order_[i]];
    starts += event.kind == Kind::start;
    if (event.kind != Kind::wait || event.a <= starts) part.push_back(order_[i]);
  }
  order_ = std::move(part);
  starts_.erase(starts_.begin(), starts_.begin() + std::ptrdiff_t(part_starts_));
  rows = part_rows_;
}

}  // namespace weft
