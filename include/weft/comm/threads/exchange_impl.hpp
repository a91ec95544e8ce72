// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for comm/threads/exchange.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <weft/comm/threads/exchange.hpp>
#include <weft/core/inline.hpp>

namespace weft::comm::threads {

WEFT_INLINE void Collective::post(std::uint64_t open) {
  auto& mine = exchange_.entry(sequence_, rank_);
  mine.signature = signature(call_);
  mine.count = call_.count;
  mine.open = open;
  mine.input = call_.input;
  mine.output = call_.output;
  mine.counts = call_.receive_counts.data();
  mine.send_counts = call_.send_counts.data();
  if (inline_)
    if (const std::size_t bytes = input_bytes(call_, size(), rank_))
      std::memcpy(exchange_.payload(sequence_, rank_), call_.input, bytes);
  mine.posted.exchange(sequence_, std::memory_order_seq_cst);
  self_.advances.fetch_add(1, std::memory_order_relaxed);
  if (all_posted()) wake_others();
}

WEFT_INLINE bool Collective::advance() {
  if (complete_) return false;
  if (!shared_) {
    if (!all_posted()) return false;
    std::string difference;
    if (call_.receive_counts.empty()) {
      difference = disagreement();
    } else {  // it reads the others' counts: one that has found a difference before may have left
      const World::Touch touch(world_, self_);
      if (!touch.allowed()) return false;
      difference = disagreement();
    }
    if (!difference.empty()) {
      world_.fail(members_[std::size_t(rank_)], difference, true);
      complete_ = true;
      return step();
    }
    if (inline_) {
      share();
    } else {
      const World::Touch touch(world_, self_);
      if (!touch.allowed()) return false;
      share();
    }
    shared_ = true;
    oldest_open_ = read_oldest_open();  // now: once this rank is done, others may use their slots again
    exchange_.entry(sequence_, rank_).done.exchange(sequence_, std::memory_order_seq_cst);
    if (inline_) complete_ = true;
    else if (all_done()) wake_others();
    if (!complete_) complete_ = all_done();
    return step();
  }
  if (!all_done()) return false;
  complete_ = true;
  return step();
}

WEFT_INLINE int Collective::waits_for() const {
  for (int q = 0; q < size(); ++q) {
    const auto& entry = exchange_.entry(sequence_, q);
    if ((shared_ ? entry.done : entry.posted).load(std::memory_order_seq_cst) < sequence_) return members_[std::size_t(q)];
  }
  return -1;
}

WEFT_INLINE std::uint64_t Collective::read_oldest_open() {
  std::uint64_t oldest = sequence_;
  for (int q = 0; q < size(); ++q) oldest = std::min(oldest, exchange_.entry(sequence_, q).open);
  return oldest;
}

WEFT_INLINE bool Collective::fits_inline(const Call& call, int size) {
  using enum Operation;
  switch (call.operation) {
    case barrier:
    case split: return true;
    case all_gather_v:
    case reduce_scatter_v:
    case all_to_all_v: return false;
    case reduce_scatter:
    case scatter:
    case all_to_all: return call.bytes() <= Exchange::inline_bytes / std::size_t(size);
    default: return call.bytes() <= Exchange::inline_bytes;
  }
}

WEFT_INLINE std::size_t Collective::input_bytes(const Call& call, int size, int rank) {
  using enum Operation;
  switch (call.operation) {
    case barrier:
    case split: return 0;
    case broadcast: return rank == call.root ? call.bytes() : 0;
    case scatter: return rank == call.root ? call.bytes() * std::size_t(size) : 0;
    case reduce_scatter:
    case all_to_all: return call.bytes() * std::size_t(size);
    default: return call.bytes();
  }
}

WEFT_INLINE std::string Collective::disagreement() {
  const auto& first = exchange_.entry(sequence_, 0);
  for (int q = 1; q < size(); ++q) {  // first of all ranks: only those of the same operation have counts to compare
    const auto& other = exchange_.entry(sequence_, q);
    if (!same_call(other.signature, first.signature) || other.count != first.count) return both(0, q, "");
  }
  if (call_.operation == Operation::all_gather_v || call_.operation == Operation::reduce_scatter_v)
    for (int q = 1; q < size(); ++q)
      for (int k = 0; k < size(); ++k) {
        const std::size_t *counts = first.counts, *others = exchange_.entry(sequence_, q).counts;
        if (counts[k] != others[k])
          return both(0, q, weft::detail::joined({": counts[", k, "] is ", counts[k], " and ", others[k]}));
      }
  if (call_.operation == Operation::all_to_all_v) {
    for (int from = 0; from < size(); ++from)
      for (int to = 0; to < size(); ++to) {
        const std::size_t sent = exchange_.entry(sequence_, from).send_counts[to],
                          received = exchange_.entry(sequence_, to).counts[from];
        if (sent != received)
          return both(from, to,
                      weft::detail::joined({": the first sends ", sent, " elements to the second, which expects ", received}));
      }
  }
  return "";
}

WEFT_COLD WEFT_INLINE std::string Collective::both(int a, int b, const std::string& why) {
  const auto &one = exchange_.entry(sequence_, a), &other = exchange_.entry(sequence_, b);
  const std::string first = weft::detail::joined({"rank ", members_[std::size_t(a)]}),
                    second = weft::detail::joined({"rank ", members_[std::size_t(b)]});
  return weft::detail::joined({"ranks disagree: ", first, " called ", describe(one.signature, one.count), ", ", second,
                               " called ", describe(other.signature, other.count),
                               functions_of(first, one.signature, second, other.signature), why});
}

WEFT_INLINE void Collective::reduce_into(std::span<void* const> outputs, std::size_t begin, std::size_t end, std::size_t skip) {
  constexpr std::size_t most = 64;
  const void* few[most];
  std::unique_ptr<const void*[]> many;
  const auto n = std::size_t(size());
  if (n > most) many.reset(new const void*[n]);
  const void** inputs = n > most ? many.get() : few;
  for (std::size_t q = 0; q < n; ++q) inputs[q] = input(int(q)) + skip;
  call_.combine(call_.reduction, {inputs, n}, outputs, begin, end);
}

// Each part is done by a rank that can do it without waiting: with inline bytes each rank fills its own output; otherwise the
// ranks divide the work, including the writes to the root's output.
WEFT_INLINE void Collective::share() {
  using enum Operation;
  const std::size_t bytes = call_.bytes();
  const auto n = std::size_t(size()), me = std::size_t(rank_);
  auto* out = static_cast<std::byte*>(call_.output);
  const bool root = rank_ == call_.root;
  switch (call_.operation) {
    case barrier:
    case split:
    case send:
    case recv: return;
    case all_reduce: {
      if (inline_) {
        void* mine[] = {out};
        return reduce_into(mine, 0, call_.count);
      }
      const std::unique_ptr<void*[]> outputs(new void*[n]);
      for (std::size_t q = 0; q < n; ++q) outputs[q] = output(int(q));
      const Piece piece = piece_of(call_.count, size_of(call_.type), rank_, size());
      return reduce_into({outputs.get(), n}, piece.begin, piece.end);
    }
    case reduce: {
      if (inline_ && !root) return;
      void* target[] = {inline_ ? out : output(call_.root)};
      const Piece piece = inline_ ? Piece{0, call_.count} : piece_of(call_.count, size_of(call_.type), rank_, size());
      return reduce_into(target, piece.begin, piece.end);
    }
    case reduce_scatter: {
      void* mine[] = {out};
      return reduce_into(mine, 0, call_.count, me * bytes);
    }
    case reduce_scatter_v: {
      std::size_t before = 0;
      for (std::size_t q = 0; q < me; ++q) before += call_.receive_counts[q];
      void* mine[] = {out};
      return reduce_into(mine, 0, call_.receive_counts[me], before * size_of(call_.type));
    }
    case all_gather:
      for (std::size_t k = 0; k < n; ++k) {
        const std::size_t q = (me + k) % n;  // not all from the same rank at once
        copy(out + q * bytes, input(int(q)), bytes);
      }
      return;
    case all_gather_v: {
      std::size_t offset = 0;
      for (std::size_t q = 0; q < n; ++q) {
        const std::size_t piece = call_.receive_counts[q] * size_of(call_.type);
        copy(out + offset, input(int(q)), piece);
        offset += piece;
      }
      return;
    }
    case broadcast:
      if (!root) copy(out, input(call_.root), bytes);
      return;
    case gather:
      if (inline_) {
        for (std::size_t q = 0; root && q < n; ++q) copy(out + q * bytes, input(int(q)), bytes);
      } else {
        copy(output(call_.root) + me * bytes, call_.input, bytes);
      }
      return;
    case scatter: return copy(out, input(call_.root) + me * bytes, bytes);
    case all_to_all:
      for (std::size_t k = 0; k < n; ++k) {
        const std::size_t q = (me + k) % n;
        copy(out + q * bytes, input(int(q)) + me * bytes, bytes);
      }
      return;
    case all_to_all_v: {
      std::size_t offset = 0;
      for (std::size_t q = 0; q < n; ++q) {
        const std::size_t* theirs = exchange_.entry(sequence_, int(q)).send_counts;
        std::size_t before = 0;
        for (std::size_t k = 0; k < me; ++k) before += theirs[k];
        const std::size_t piece = call_.receive_counts[q] * size_of(call_.type);
        copy(out + offset, input(int(q)) + before * size_of(call_.type), piece);
        offset += piece;
      }
      return;
    }
  }
}

}  // namespace weft::comm::threads
