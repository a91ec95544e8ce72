// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for comm/rehearsal.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <weft/comm/rehearsal.hpp>
#include <weft/comm/request.hpp>
#include <weft/core/error.hpp>
#include <weft/core/inline.hpp>

namespace weft::comm {

WEFT_COLD WEFT_INLINE std::size_t exchange_peers(const Call& call, int rank) {
  std::size_t peers = 0;
  for (std::size_t r = 0; r < call.send_counts.size(); ++r)
    peers += r != std::size_t(rank) && (call.send_counts[r] != 0 || call.receive_counts[r] != 0);
  return peers;
}

WEFT_COLD WEFT_INLINE StreamOrder rehearsed_order() {
  static constexpr DeviceMemory memory{[](const void* address) { return weft::detail::RehearsedMemory::holds(address); },
                                       [](void*, void*, const void*, std::size_t) {}};
  return {.instance = nullptr, .wait = nullptr, .stream = [](const void*) -> void* { return nullptr; }, .device = &memory};
}

namespace detail {
/// An operation that is complete when it is waited for, or when the rank does nothing but ask for it: a program that goes round
/// until a test succeeds would else never end.
struct LateAnswer : Pending {
  explicit LateAnswer(const Rehearsal& of) : notes(of) {}
  bool test() override {
    constexpr int most = 1000;  // tests in a row, far more than a poll of operations in progress makes
    if (const std::uint64_t now = notes.launches + notes.copies; std::exchange(seen, now) != now) tests = 0;
    if (++tests < most) return false;
    wait();
    return true;
  }
  void wait() override {}
  void abandon() noexcept override {}
  const Rehearsal& notes;
  std::uint64_t seen = 0;
  int tests = 0;
};
/// One whose wait is traced: of the collective of that number, or of a message that another rank has sent.
struct TracedAnswer final : LateAnswer {
  TracedAnswer(const Rehearsal& of, std::uint64_t number) : LateAnswer(of), trace(of.trace), started(number) {}
  TracedAnswer(const Rehearsal& of, const RehearsedTrace::Event& event) : LateAnswer(of), trace(of.trace), message(event) {}
  void wait() override {
    if (message) trace->add(*message);
    else trace->wait(started);
  }
  std::shared_ptr<RehearsedTrace> trace;
  std::uint64_t started = 0;
  std::optional<RehearsedTrace::Event> message;
};
}  // namespace detail

WEFT_COLD WEFT_INLINE RehearsedTrace::Event RehearsedGroup::traced(const Call& call, RehearsedTrace::Kind kind) const {
  const bool peer = is_point_to_point(call.operation);
  return {.kind = kind,
          .type = call.type,
          .group = notes_->trace->group_of({axis_, identity_, rank_, size_}),
          .a = peer ? call.root : std::int64_t(call.operation),
          .b = peer                                        ? call.tag
               : call.operation == Operation::all_to_all_v ? std::int64_t(exchange_peers(call, rank_))
                                                           : 0,
          .amount = message_bytes(call, size_)};
}

WEFT_COLD WEFT_INLINE void RehearsedGroup::note(const Call& call) const {
  notes_->sent(axis_, name_of(call.operation), message_bytes(call, size_));
  if (call.memory == MemoryKind::host && !is_point_to_point(call.operation)) answer(call);
}

WEFT_INLINE void RehearsedGroup::execute(const Call& call) {
  note(call);
  using Kind = RehearsedTrace::Kind;
  if (notes_->trace)
    notes_->trace->add(traced(call, call.operation == Operation::send   ? Kind::send
                                    : call.operation == Operation::recv ? Kind::receive
                                                                        : Kind::call));
}

WEFT_INLINE std::unique_ptr<Pending> RehearsedGroup::start(const Call& call) {
  note(call);
  if (const auto& trace = notes_->trace; trace) {
    using Kind = RehearsedTrace::Kind;
    if (call.operation == Operation::recv) return std::make_unique<detail::TracedAnswer>(*notes_, traced(call, Kind::receive));
    if (call.operation != Operation::send)
      return std::make_unique<detail::TracedAnswer>(*notes_, trace->start(traced(call, Kind::start)));
    trace->add(traced(call, Kind::send));
    return nullptr;
  }
  const bool at_once = call.operation == Operation::send || notes_->early != (call.operation == Operation::recv);
  if (at_once) return nullptr;
  return std::make_unique<detail::LateAnswer>(*notes_);
}

WEFT_INLINE std::shared_ptr<Group> RehearsedGroup::split(int color, int, std::string axis) {
  throw_error<UsageError>({"a rehearsal cannot know which ranks of '", axis_, "' give color ", color, " to split(", color,
                           ", key, \"", axis, "\"): take an axis of a Mesh, or say this rank's place in it: split(color, key, \"",
                           axis, "\", {rank, size})"});
}

WEFT_INLINE std::shared_ptr<Group> RehearsedGroup::split_placed(int color, int, std::string axis, const SplitPlace& place) {
  std::uint64_t identity = identity_;  // equal on all ranks of the new group
  for (const std::uint64_t part :
       {std::uint64_t(color) + 1, std::uint64_t(std::hash<std::string>()(axis)), std::uint64_t(place.size)})
    identity = (identity ^ part) * 0x9e3779b97f4a7c15 + 0x632be59bd9b4e019;
  return std::make_shared<RehearsedGroup>(place.rank, place.size, std::move(axis), *notes_, identity);
}

// Every rank's input is this rank's. Pieces of counts that differ are zero beyond this rank's count.
WEFT_COLD WEFT_INLINE void RehearsedGroup::answer(const Call& call) const {
  if (call.output == nullptr || call.input == nullptr) return;
  const std::size_t element = size_of(call.type), bytes = call.count * element, ranks = std::size_t(size_),
                    me = std::size_t(rank_);
  const auto* const in = static_cast<const char*>(call.input);
  auto* const out = static_cast<char*>(call.output);
  const auto reduce = [&](const char* mine, std::size_t count) {
    if (call.reduction == Reduction::max || call.reduction == Reduction::min)  // of one value from all
      return void(std::memmove(out, mine, count * element));
    const std::vector<char> kept(mine, mine + count * element);  // the output may be the input
    const std::vector<const void*> inputs(ranks, kept.data());
    void* const outputs[] = {out};
    call.combine(call.reduction, inputs, std::span<void* const>(outputs, 1), 0, count);
  };
  const auto repeat = [&](const char* mine) {
    const std::vector<char> kept(mine, mine + bytes);
    for (std::size_t r = 0; r < ranks; ++r) std::memcpy(out + r * bytes, kept.data(), bytes);
  };
  const auto gather = [&](const char* mine, std::size_t count) {
    const std::vector<char> kept(mine, mine + count * element);
    char* to = out;
    for (std::size_t r = 0; r < ranks; ++r) {
      const std::size_t wanted = call.receive_counts[r] * element;
      std::memset(to, 0, wanted);
      std::memcpy(to, kept.data(), std::min(wanted, kept.size()));
      to += wanted;
    }
  };
  const auto before = [&](std::span<const std::size_t> counts) {
    return std::accumulate(counts.begin(), counts.begin() + std::ptrdiff_t(me), std::size_t(0)) * element;
  };
  switch (call.operation) {
    case Operation::all_reduce: return reduce(in, call.count);
    case Operation::reduce: return rank_ == call.root ? reduce(in, call.count) : void();
    case Operation::reduce_scatter: return reduce(in + me * bytes, call.count);
    case Operation::reduce_scatter_v: return reduce(in + before(call.receive_counts), call.receive_counts[me]);
    case Operation::all_gather: return repeat(in);
    case Operation::gather: return rank_ == call.root ? repeat(in) : void();
    case Operation::all_gather_v: return gather(in, call.receive_counts[me]);
    case Operation::all_to_all: return repeat(in + me * bytes);
    case Operation::all_to_all_v: return gather(in + before(call.send_counts), call.send_counts[me]);
    case Operation::scatter:
      if (rank_ == call.root) std::memmove(out, in + me * bytes, bytes);
      return;
    default: return;  // broadcast: the root's elements are this rank's
  }
}

}  // namespace weft::comm
