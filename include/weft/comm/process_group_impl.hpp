// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for comm/process_group.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <algorithm>

#include <weft/comm/errors.hpp>
#include <weft/comm/process_group.hpp>
#include <weft/comm/stop.hpp>
#include <weft/core/hash.hpp>
#include <weft/core/inline.hpp>
#include <weft/core/text.hpp>

namespace weft::comm {

WEFT_INLINE ProcessGroup::ProcessGroup(std::shared_ptr<Process> process, std::uint64_t channel, std::vector<int> members,
                                       std::string axis, std::string_view backend)
    : process_(std::move(process)),
      members_(std::move(members)),
      ledger_(process_->watch->open(channel, axis)),
      axis_(std::move(axis)),
      backend_(backend),
      rank_(int(std::find(members_.begin(), members_.end(), process_->rank) - members_.begin())),
      flight_(process_->recorder.open(axis_, members_, channel)) {
  process_->groups.push_back(this);
}

WEFT_INLINE ProcessGroup::~ProcessGroup() { std::erase(process_->groups, this); }

WEFT_INLINE void ProcessGroup::end() {
  Group::end();
  if (const std::string why = process_->watch->unreceived(*this); !why.empty())
    throw MismatchError(process_->rank, axis_, "the end of the program", sequence_, why);
}

WEFT_INLINE void ProcessGroup::begin(Running& running) {
  const Call& call = *running.call;
  call.order.fence();
  running.sequence = ++sequence_;
  expect_usable(running);
  detail::expect_no_stop(process_->rank, axis_, call, sequence_);
  process_->watch->tidy();
  running.number = process_->recorder.begin(*flight_, sequence_, call);
  running.step = is_point_to_point(call.operation)
                     ? ledger_->message(call.operation == Operation::send, members_[std::size_t(call.root)], call)
                     : ledger_->collective(call);
}

WEFT_INLINE void ProcessGroup::check_wait(Running& running, WaitTimes& times) {
  const auto now = Clock::now();
  // Messages that a lost rank sent before its end still count.
  if (const int lost = process_->lost(); lost < 0) times.noticed = now;
  else if (now - times.noticed > std::chrono::milliseconds(20)) throw_aborted(running, process_->fate(lost));
  if (detail::wait_must_end(times.start))
    detail::throw_interrupted(process_->rank, axis_, *running.call, running.sequence, missing(running));
  if (now - times.start > process_->deadline) {
    const std::string ranks = missing(running);
    throw TimeoutError(
        process_->rank, axis_, describe(*running.call), running.sequence,
        weft::detail::joined({"waited longer than the deadline of ", std::to_string(process_->deadline.count()), " s",
                              ranks.empty() ? "" : " for ", ranks, "; last operations: ", process_->recorder.text()}));
  }
  if (now - times.start <= Watch::patience) return;
  if (!running.long_wait) {
    std::vector<int> ranks = awaited(running);
    if (ranks.empty()) return;
    running.long_wait = std::make_unique<Watch::Wait>(*ledger_, *running.call, running.step, process_->recorder.text(2));
    running.long_wait->on = std::move(ranks);
  }
  if (const std::string why = process_->watch->look(*running.long_wait); !why.empty()) throw_mismatch(running, why);
}

WEFT_COLD WEFT_INLINE std::string ProcessGroup::rank_name(long rank) const {
  return weft::detail::joined({"rank ", rank, " of ", axis_});
}
WEFT_COLD WEFT_INLINE void ProcessGroup::throw_mismatch(const Running& running, const std::string& why) const {
  throw MismatchError(process_->rank, axis_, describe(*running.call), running.sequence, why);
}
WEFT_COLD WEFT_INLINE void ProcessGroup::throw_disagreement(const Running& running, const std::string& why) const {
  process_->watch->accuse(ledger_->channel(), weft::detail::joined({"rank ", process_->rank, ", ", describe(*running.call),
                                                                    " on ", axis_, ": ", why}));
  throw_mismatch(running, why);
}
WEFT_COLD WEFT_INLINE void ProcessGroup::throw_aborted(const Running& running, const std::string& why) const {
  throw AbortedError(process_->rank, axis_, describe(*running.call), running.sequence, why);
}

WEFT_INLINE std::vector<std::int64_t> ProcessGroup::gather_for_split(std::span<const std::int64_t> mine, std::string_view axis) {
  const std::size_t count = mine.size() + 1;
  std::vector<std::int64_t> own(mine.begin(), mine.end()), all(members_.size() * count), kept;
  own.push_back(std::int64_t(weft::detail::hash_bytes(axis.data(), axis.size())));
  execute({.operation = Operation::all_gather,
           .type = DataType::int64,
           .purpose = Purpose::split,
           .function = process_->recorder.function(),
           .count = count,
           .input = own.data(),
           .output = all.data()});
  for (std::size_t q = 0; q < members_.size(); ++q) {
    if (all[(q + 1) * count - 1] != own.back())
      throw MismatchError(
          process_->rank, axis_, "split()", sequence_,
          weft::detail::joined({"ranks disagree: rank ", rank_, " splits for axis ", axis, ", rank ", long(q), " for another"}));
    kept.insert(kept.end(), all.begin() + std::ptrdiff_t(q * count), all.begin() + std::ptrdiff_t((q + 1) * count - 1));
  }
  return kept;
}

}  // namespace weft::comm
