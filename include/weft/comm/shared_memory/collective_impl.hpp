// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for comm/shared_memory/collective.hpp, inline when weft is header-only, else compiled once in the library
// weft::compiled.

#include <weft/comm/shared_memory/collective.hpp>
#include <weft/core/inline.hpp>

namespace weft::comm::shared_memory {

WEFT_INLINE void Collective::advance(bool& posted) {
  for (bool moved = true; moved && disagreement_.empty() && gone_ < 0;) {
    moved = false;
    if (written_ < rounds_ && written_ <= read_ + 1 && fill(written_)) {
      ++written_;
      moved = true;
    }
    if (read_ < written_ && fetch(read_)) {
      ++read_;
      slots_.mark_read(first_ + read_ - 1);
      moved = true;
    }
    posted |= moved;
  }
}

WEFT_INLINE int Collective::missing() const {
  for (int q = 0; q < size(); ++q)
    if (q != me() && begun() && read_ < rounds_ && looks_at(q, read_) && !slots_.posted(q, first_ + read_)) return q;
  return -1;
}

WEFT_INLINE bool Collective::fills(std::uint64_t round) const {
  using enum Operation;
  if (round == 0) return true;
  if (call_.operation == broadcast || call_.operation == scatter) return root();
  if (call_.operation == reduce || call_.operation == gather) return !root();
  return true;
}

WEFT_INLINE bool Collective::looks_at(int q, std::uint64_t round) const {
  using enum Operation;
  if (round == 0 || in_heaps_) return true;
  if (call_.operation == broadcast || call_.operation == scatter) return q == call_.root;
  if (call_.operation == reduce || call_.operation == gather) return root();
  return true;
}

WEFT_INLINE bool Collective::all_posted(std::uint64_t round) {
  for (; seen_ < size(); ++seen_)
    if (seen_ != me() && looks_at(seen_, round) && !slots_.posted(seen_, first_ + round)) return false;
  seen_ = 0;
  return true;
}

WEFT_INLINE void Collective::reduce_slots(std::uint64_t round, const std::byte* own, std::size_t skip, std::size_t bytes,
                                          std::span<void* const> outputs) {
  const void* inputs[most_ranks];
  for (int q = 0; q < size(); ++q)
    inputs[q] = q == me() ? own : slots_.data(q, first_ + round) + (ranges_.to_each() ? part_at(q, me()) : skip);
  call_.combine(call_.reduction, {inputs, std::size_t(size())}, outputs, 0, bytes / element());
}

WEFT_INLINE void Collective::begin(std::uint64_t first) {
  using enum Operation;
  first_ = first;
  const auto op = call_.operation;
  std::size_t most = call_.bytes();
  if (op == all_gather_v || op == reduce_scatter_v) {
    most = 0;
    for (const std::size_t count : call_.receive_counts) most = std::max(most, count * element());
    detail_ = digest_of_counts(call_);
  }
  if (op == all_to_all_v) {  // the first round carries only counts; how many follow is known after it
    std::size_t all = 0;
    for (int q = 0; q < size(); ++q) {
      if (q == me()) continue;
      detail_ = std::max(detail_, rounds_of(ranges_.sent(q).length));
      all += ranges_.sent(q).length;
    }
    streams_ = all >= stream_bytes;
    descriptions_ = 1;
    return;
  }
  if (op == barrier || op == split) most = 0;
  rounds_ = std::max<std::uint64_t>(1, rounds_of(most));
  paired_ = op == all_reduce && size() > 2 && most > 4096;
  if (paired_) rounds_ *= 2;
  descriptions_ = buffers_.serve(most * (ranges_.to_each() ? std::size_t(size()) : 1));
  rounds_ += descriptions_;
  streams_ = most * (ranges_.to_each() ? std::size_t(size()) - 1 : 1) >= stream_bytes;
}

WEFT_INLINE bool Collective::fill(std::uint64_t round) {
  using enum Operation;
  const std::uint64_t number = first_ + round, part = round - descriptions_;
  const bool describes = round < descriptions_;
  if (!describes && descriptions_ != 0 && read_ == 0) return false;  // slots or heaps: not known yet
  if (!in_heaps_ && !fills(round)) return true;
  if (!slots_.free(number)) return false;
  std::byte* slot = slots_.data(me(), number);
  const auto op = call_.operation;
  if (in_heaps_) {
    if (read_ < round || (gone_ = buffers_.use(first_)) >= 0) return false;
  } else if (describes && op != all_to_all_v) {  // only the header
  } else if (paired_) {
    const Range range = of_round(call_.bytes(), part / 2);
    const Piece piece = piece_of(range.length / element(), element(), me(), size());
    const std::size_t begin = piece.begin * element(), end = piece.end * element();
    if (part % 2 == 0) {  // all except the piece that this rank reduces
      hand_out(slot, input() + range.begin, begin);
      hand_out(slot + end, input() + range.begin + end, range.length - end);
    } else {
      if (!all_posted(round - 1)) return false;
      if (round == 1 && !agree()) return false;  // without a round of descriptions
      void* outputs[] = {output() + range.begin + begin, slot};
      reduce_slots(round - 1, input() + range.begin + begin, begin, end - begin, std::span(outputs, streams_ ? 1 : 2));
      if (streams_) hand_out(slot, outputs[0], end - begin);
    }
  } else if (describes) {
    std::memcpy(slot, call_.send_counts.data(), call_.send_counts.size_bytes());
    std::memcpy(slot + call_.send_counts.size_bytes(), call_.receive_counts.data(), call_.receive_counts.size_bytes());
  } else if (ranges_.to_each() && (op != scatter || root())) {
    for (int q = 0; q < size(); ++q) {
      if (q == me()) continue;
      const Range whole = ranges_.sent(q), range = of_round(whole.length, part);
      hand_out(slot + part_at(me(), q), input() + whole.begin + range.begin, range.length);
    }
  } else if (op != barrier && op != split && op != scatter && (op != broadcast || root())) {
    const Range range = of_round(ranges_.own_bytes(), part);
    hand_out(slot, input() + range.begin, range.length);
  }
  if (round == 0) {  // last: the others look at this line all the time
    auto& header = slots_.header(me(), number);
    header.signature = signature(call_);
    header.count = call_.count;
    header.detail = detail_;
    if (descriptions_ != 0) buffers_.offer(header);
  }
  slots_.post(number);
  return true;
}

WEFT_INLINE bool Collective::fetch(std::uint64_t round) {
  using enum Operation;
  const auto op = call_.operation;
  const std::uint64_t part = round - descriptions_;
  const bool describes = round < descriptions_;
  if (paired_ && !describes && !in_heaps_ && part % 2 == 0) return written_ > round + 1;  // read when the results were written
  if (!all_posted(round) || (round == 0 && !agree())) return false;
  if (describes) {
    in_heaps_ = buffers_.all_offer(first_);
    if (in_heaps_) rounds_ = 2;
    if (in_heaps_ || op != all_to_all_v) return true;
  }
  if (in_heaps_) return true;  // all have done their share
  const auto slot = [&](int q) { return slots_.data(q, first_ + round); };
  switch (op) {
    case barrier:
    case split:
    case send:
    case recv: break;
    case all_reduce:
      if (paired_) {
        const Range range = of_round(call_.bytes(), part / 2);
        for (int k = 1; k < size(); ++k) {
          const int q = (me() + k) % size();  // not all from the same rank at once
          const Piece piece = piece_of(range.length / element(), element(), q, size());
          copy(output() + range.begin + piece.begin * element(), slot(q), (piece.end - piece.begin) * element());
        }
        break;
      }
      [[fallthrough]];
    case reduce:
      if (op == all_reduce || root()) {
        const Range range = of_round(call_.bytes(), part);
        void* outputs[] = {output() + range.begin};
        reduce_slots(round, input() + range.begin, 0, range.length, outputs);
      }
      break;
    case reduce_scatter:
    case reduce_scatter_v: {
      const Range own = ranges_.sent(me()), range = of_round(own.length, part);
      void* outputs[] = {output() + range.begin};
      reduce_slots(round, input() + own.begin + range.begin, 0, range.length, outputs);
      break;
    }
    case broadcast:
      if (!root()) {
        const Range range = of_round(call_.bytes(), part);
        copy(output() + range.begin, slot(call_.root), range.length);
      }
      break;
    case scatter: {
      const Range range = of_round(call_.bytes(), part);
      if (!root()) copy(output() + range.begin, slot(call_.root) + part_at(call_.root, me()), range.length);
      else if (part == 0) copy(output(), input() + ranges_.sent(me()).begin, call_.bytes());
      break;
    }
    case gather:
      if (!root()) break;
      [[fallthrough]];
    case all_gather:
    case all_gather_v:
    case all_to_all:
    case all_to_all_v: {
      const Range own = ranges_.sent(me());
      if (op != all_to_all_v) {  // round by round: filling the slot has just read it
        const Range range = of_round(own.length, part);
        copy(output() + ranges_.received(me()).begin + range.begin, input() + own.begin + range.begin, range.length);
      } else if (describes) {
        copy(output() + ranges_.received(me()).begin, input() + own.begin, own.length);
        for (int q = 0; q < size(); ++q)
          if (q != me()) rounds_ = std::max(rounds_, 1 + slots_.header(q, first_).detail);
        rounds_ = std::max(rounds_, 1 + detail_);
        break;
      }
      for (int k = 1; k < size(); ++k) {
        const int q = (me() + k) % size();
        const Range whole = ranges_.received(q), range = of_round(whole.length, part);
        copy(output() + whole.begin + range.begin, slot(q) + (ranges_.to_each() ? part_at(q, me()) : 0), range.length);
      }
      break;
    }
  }
  return true;
}

/// True if every slot that this rank reads describes the same call.
WEFT_INLINE bool Collective::agree() {
  for (int q = 0; q < size(); ++q) {
    if (q == me() || !looks_at(q, 0)) continue;
    const auto& other = slots_.header(q, first_);
    if (!same_call(other.signature, signature(call_)) || other.count != call_.count) {
      disagree(q);
    } else if (call_.operation == Operation::all_to_all_v) {
      continue;
    } else if (other.detail != detail_) {
      disagree(q, ": their counts differ");
    }
    if (!disagreement_.empty()) return false;
  }
  if (call_.operation != Operation::all_to_all_v) return true;
  const auto n = std::size_t(size());
  const auto count = [&](int q, std::size_t at) {  // all ranks have all counts, so all of them find the difference
    std::size_t value = 0;
    std::memcpy(&value, slots_.data(q, first_) + at * sizeof value, sizeof value);
    return value;
  };
  for (int from = 0; from < size(); ++from)
    for (int to = 0; to < size(); ++to) {
      const std::size_t sends = count(from, std::size_t(to)), expected = count(to, n + std::size_t(from));
      if (sends == expected) continue;
      const std::string what = describe(signature(call_), call_.count);
      disagreement_ = weft::detail::joined({"ranks disagree: rank ", from, " called ", what, ", rank ", to, " called ", what,
                                            ": the first sends ", sends, " elements to the second, which expects ", expected});
      return false;
    }
  return true;
}

WEFT_COLD WEFT_INLINE void Collective::disagree(int q, const std::string& why) {
  const auto& header = slots_.header(q, first_);
  struct {
    std::string rank;
    std::uint64_t signature, count;
  } first{weft::detail::joined({"rank ", me()}), signature(call_), call_.count},
      second{weft::detail::joined({"rank ", q}), header.signature, header.count};
  if (q < me()) std::swap(first, second);
  disagreement_ = weft::detail::joined({"ranks disagree: ", first.rank, " called ", describe(first.signature, first.count), ", ",
                                        second.rank, " called ", describe(second.signature, second.count),
                                        functions_of(first.rank, first.signature, second.rank, second.signature), why});
}

}  // namespace weft::comm::shared_memory
