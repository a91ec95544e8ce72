// SPDX-License-Identifier: Apache-2.0
#pragma once
// One operation in progress over the connections of a mesh: messages to and from the ranks of a group, then for some operations
// arithmetic and more messages. Sums are formed in rank order (comm/reduce.hpp), so they have the bits of every other backend.

#include <cstddef>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <weft/comm/reduce.hpp>
#include <weft/comm/tcp/message.hpp>
#include <weft/comm/tcp/pipeline.hpp>
#include <weft/core/checked.hpp>

namespace weft::comm::tcp {

/// The ranks of an operation: a group is some ranks of the mesh, in its own order.
struct Place {
  Mesh* mesh;
  std::uint64_t group;
  const std::vector<int>* members;
  const shared_memory::PeerHeaps* heaps;
  int rank, size;
};

class Transfer {
 public:
  Transfer(const Place& place, const Call& call, std::uint64_t number, bool check)
      : place_(place), call_(call), number_(number), check_(check) {
    counts_ = keep_counts(call_);
    signature_ = signature(call_);
    if (is_point_to_point(call_.operation)) signature_ = (signature_ & ~std::uint64_t(0xff)) | std::uint64_t(Operation::send);
  }
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  const Call& call() const { return call_; }
  void launch() {
    if (!check_ || is_point_to_point(call_.operation)) return begin();
    for (int k = 1; k < place_.size; ++k) {  // the call of each rank, before any data
      const int q = (place_.rank + k) % place_.size;
      post_receive(q, nullptr, 0);
      post_send(q, nullptr, 0);
    }
    next_ = [this] { begin(); };
  }
  /// True once complete. Throws Error with MismatchError's text if another rank made a different call.
  bool test() {
    for (;;) {
      if (!delivered_) {
        bool all = true;
        for (const auto& incoming : receives_) {
          if (!incoming.arrived()) all = false;
          else if (!incoming.fits()) mismatch_ = &incoming;
        }
        if (mismatch_ != nullptr || !all) return false;
        for (auto& incoming : receives_) incoming.deliver();
        delivered_ = true;
      }
      for (const auto& incoming : receives_)
        if (!incoming.done()) return false;
      for (const auto& outgoing : sends_)
        if (!outgoing.done()) return false;
      for (const Copy& copy : copies_)  // last: by now all receivers have compared the calls
        if (copy.bytes != 0 && copy.to != copy.from) std::memmove(copy.to, copy.from, copy.bytes);
      if (pipeline_ && !receives_.empty()) {
        std::vector<std::uint64_t> numbers(std::size_t(place_.size), 0);
        for (std::size_t k = 0; k < receives_.size(); ++k)
          numbers[(std::size_t(place_.rank) + k + 1) % numbers.size()] = receives_[k].head().payload;
        pipeline_->accept(std::move(numbers));
      }
      if (pipeline_ && !next_) {
        receives_.clear();
        sends_.clear();
        return pipeline_->advance();
      }
      receives_.clear();
      sends_.clear();
      copies_.clear();
      delivered_ = false;
      if (!next_) return true;
      ++step_;
      std::exchange(next_, nullptr)();
    }
  }
  /// The message of a rank that made a different call, or null.
  const Incoming* mismatch() const { return mismatch_; }
  /// Waits until a message has moved, for at most `patience`.
  void wait(std::chrono::microseconds patience) const {
    for (const auto& incoming : receives_)
      if (delivered_ ? !incoming.done() : !incoming.arrived()) return incoming.wait(patience);
    for (const auto& outgoing : sends_)
      if (!outgoing.done()) return outgoing.wait(patience);
    if (pipeline_) pipeline_->wait(patience);
  }
  /// Releases the user's buffers: they are neither read nor written any more.
  void drop() {
    for (auto& incoming : receives_) incoming.drop();
    for (auto& outgoing : sends_) outgoing.drop();
    next_ = nullptr;
    pipeline_.reset();
  }
  /// The ranks (numbers in the world) for which this operation waits.
  std::vector<int> missing() const {
    std::vector<int> ranks;
    for (const auto& incoming : receives_)
      if (delivered_ ? !incoming.done() : !incoming.arrived()) ranks.push_back(incoming.peer());
    if (ranks.empty())
      for (const auto& outgoing : sends_)
        if (!outgoing.done()) ranks.push_back(outgoing.peer());
    return ranks.empty() && pipeline_ ? pipeline_->missing() : ranks;
  }

 private:
  struct Copy {
    void* to;
    const void* from;
    std::size_t bytes;
  };
  std::uint64_t where() const {
    return is_point_to_point(call_.operation) ? slot(Kind::message, place_.group, std::uint64_t(call_.tag))
                                              : slot(Kind::collective, place_.group, number_, step_);
  }
  bool by_counts() const {
    return call_.operation == Operation::all_gather_v || call_.operation == Operation::reduce_scatter_v ||
           call_.operation == Operation::all_to_all_v;
  }
  /// Messages between two ranks may stay in the sender's heap; collectives that come here have ranks on several machines.
  const shared_memory::PeerHeaps* heaps() const { return is_point_to_point(call_.operation) ? place_.heaps : nullptr; }
  Head head(std::size_t elements) const {
    return {signature_, by_counts() ? digest_of_counts(call_) : call_.count, elements * size_of(call_.type), 0, {}};
  }
  void post_send(int q, const void* data, std::size_t elements) {
    sends_.emplace_back(*place_.mesh, (*place_.members)[std::size_t(q)], where(), head(elements), data, heaps());
  }
  void post_receive(int q, void* data, std::size_t elements) {
    receives_.emplace_back(*place_.mesh, (*place_.members)[std::size_t(q)], where(), head(elements), data, heaps(), q);
  }
  /// Starts a reduction in chunks, in which every rank adds its own piece; only the envelopes precede it.
  void begin_pipeline(std::vector<Pipeline::Bytes> pieces, std::byte* own, std::byte* whole) {
    pipeline_ = std::make_unique<Pipeline>(*place_.mesh, *place_.members, place_.rank, call_, std::move(pieces), own, whole);
    others([&](int q) { post_receive(q, nullptr, 0); });
    Head first = head(0);
    first.payload = pipeline_->numbers();
    others([&](int q) { sends_.emplace_back(*place_.mesh, (*place_.members)[std::size_t(q)], where(), first, nullptr); });
  }
  void copy(void* to, const void* from, std::size_t elements) { copies_.push_back({to, from, elements * size_of(call_.type)}); }
  const std::byte* input(std::size_t elements) const {
    return static_cast<const std::byte*>(call_.input) + elements * size_of(call_.type);
  }
  std::byte* output(std::size_t elements) const { return static_cast<std::byte*>(call_.output) + elements * size_of(call_.type); }
  std::byte* row(int q, std::size_t elements) { return scratch_.get() + std::size_t(q) * elements * size_of(call_.type); }

  void begin();
  void combine(const void* own, void* out, std::size_t elements);
  void begin_all_reduce();
  void begin_reduce_scatter(std::span<const std::size_t> counts);
  void others(const std::function<void(int)>& f) {
    for (int k = 1; k < place_.size; ++k) f((place_.rank + k) % place_.size);
  }

  Place place_;
  Call call_;
  std::uint64_t number_, signature_, step_ = 0;
  bool check_, delivered_ = false;
  const Incoming* mismatch_ = nullptr;
  std::unique_ptr<std::size_t[]> counts_;
  std::deque<Outgoing> sends_;
  std::deque<Incoming> receives_;
  std::vector<Copy> copies_;
  std::function<void()> next_;
  std::unique_ptr<std::byte[]> scratch_;
  std::unique_ptr<Pipeline> pipeline_;
};

inline void Transfer::begin() {
  using enum Operation;
  const auto n = std::size_t(place_.size), me = std::size_t(place_.rank), count = call_.count;
  const bool root = call_.root == place_.rank;
  const auto all_to_all_pieces = [&](auto&& sent, auto&& got) {  // begin and length of each rank's piece
    others([&](int q) {
      const auto [to, length] = got(std::size_t(q));
      post_receive(q, output(to), length);
    });
    others([&](int q) {
      const auto [from, length] = sent(std::size_t(q));
      post_send(q, input(from), length);
    });
    copy(output(got(me).first), input(sent(me).first), got(me).second);
  };
  const auto whole = [&](std::size_t) { return std::pair(std::size_t(0), count); };
  const auto even = [&](std::size_t q) { return std::pair(q * count, count); };
  const auto by = [](std::span<const std::size_t> counts) {
    return [counts](std::size_t q) {
      std::size_t begin = 0;
      for (std::size_t r = 0; r < q; ++r) begin += counts[r];
      return std::pair(begin, counts[q]);
    };
  };
  switch (call_.operation) {
    case barrier:  // a message from everyone means that everyone is here
      others([&](int q) { post_receive(q, nullptr, 0); });
      others([&](int q) { post_send(q, nullptr, 0); });
      return;
    case split: return;
    case send: return post_send(call_.root, call_.input, count);
    case recv: return post_receive(call_.root, call_.output, count);
    case broadcast:
      if (root) others([&](int q) { post_send(q, call_.input, count); });
      else post_receive(call_.root, call_.output, count);
      return;
    case all_gather: return all_to_all_pieces(whole, even);
    case all_gather_v: {
      const auto pieces = by(call_.receive_counts);
      return all_to_all_pieces([&](std::size_t) { return std::pair(std::size_t(0), call_.receive_counts[me]); }, pieces);
    }
    case gather:
      if (!root) return post_send(call_.root, call_.input, count);
      others([&](int q) { post_receive(q, output(std::size_t(q) * count), count); });
      return copy(output(me * count), call_.input, count);
    case scatter:
      if (!root) return post_receive(call_.root, call_.output, count);
      others([&](int q) { post_send(q, input(std::size_t(q) * count), count); });
      return copy(call_.output, input(me * count), count);
    case all_to_all: return all_to_all_pieces(even, even);
    case all_to_all_v: return all_to_all_pieces(by(call_.send_counts), by(call_.receive_counts));
    case reduce:
      if (!root) return post_send(call_.root, call_.input, count);
      scratch_.reset(new std::byte[weft::detail::checked_multiply(n, call_.bytes())]);
      others([&](int q) { post_receive(q, row(q, count), count); });
      next_ = [this] { combine(call_.input, call_.output, call_.count); };
      return;
    case all_reduce: return begin_all_reduce();
    case reduce_scatter:
      if (call_.bytes() > eager) {
        std::vector<Pipeline::Bytes> pieces;
        for (std::size_t q = 0; q < n; ++q) pieces.push_back({q * call_.bytes(), call_.bytes()});
        return begin_pipeline(std::move(pieces), output(0), nullptr);
      }
      return begin_reduce_scatter(std::vector<std::size_t>(n, count));
    case reduce_scatter_v: return begin_reduce_scatter(call_.receive_counts);
  }
}

/// Reduces the rows of scratch and this rank's own data, in rank order, into `out`.
inline void Transfer::combine(const void* own, void* out, std::size_t elements) {
  std::vector<const void*> inputs;
  for (int q = 0; q < place_.size; ++q) inputs.push_back(q == place_.rank ? own : row(q, elements));
  void* outputs[] = {out};
  call_.combine(call_.reduction, inputs, {outputs, 1}, 0, elements);
}

inline void Transfer::begin_all_reduce() {
  const auto n = std::size_t(place_.size);
  constexpr std::size_t short_bytes = 4096;
  if (call_.bytes() <= short_bytes) {  // one step: everybody gets everything
    scratch_.reset(new std::byte[n * call_.bytes()]);
    others([&](int q) { post_receive(q, row(q, call_.count), call_.count); });
    others([&](int q) { post_send(q, call_.input, call_.count); });
    next_ = [this] { combine(call_.input, call_.output, call_.count); };
    return;
  }
  // Two steps: each rank gets one piece from all, combines it and sends the result to all.
  const auto piece = [this](int q) { return piece_of(call_.count, size_of(call_.type), q, place_.size); };
  const Piece mine = piece(place_.rank);
  const std::size_t length = mine.end - mine.begin;
  if (call_.bytes() / n > eager) {
    std::vector<Pipeline::Bytes> pieces;
    for (int q = 0; q < place_.size; ++q)
      pieces.push_back({piece(q).begin * size_of(call_.type), (piece(q).end - piece(q).begin) * size_of(call_.type)});
    return begin_pipeline(std::move(pieces), output(mine.begin), output(0));
  }
  scratch_.reset(new std::byte[weft::detail::checked_multiply(n, length * size_of(call_.type))]);
  others([&](int q) { post_receive(q, row(q, length), length); });
  others([&](int q) { post_send(q, input(piece(q).begin), piece(q).end - piece(q).begin); });
  next_ = [this, piece, mine, length] {
    combine(input(mine.begin), output(mine.begin), length);
    others([&](int q) { post_receive(q, output(piece(q).begin), piece(q).end - piece(q).begin); });
    others([&](int q) { post_send(q, output(mine.begin), length); });
  };
}

inline void Transfer::begin_reduce_scatter(std::span<const std::size_t> counts) {
  const std::size_t mine = counts[std::size_t(place_.rank)];
  std::vector<std::size_t> begins;
  std::size_t sum = 0;
  for (const std::size_t count : counts) {
    begins.push_back(sum);
    sum += count;
  }
  scratch_.reset(new std::byte[weft::detail::checked_multiply(std::size_t(place_.size), mine * size_of(call_.type))]);
  others([&](int q) { post_receive(q, row(q, mine), mine); });
  others([&](int q) { post_send(q, input(begins[std::size_t(q)]), counts[std::size_t(q)]); });
  next_ = [this, mine, at = begins[std::size_t(place_.rank)]] { combine(input(at), call_.output, mine); };
}

}  // namespace weft::comm::tcp
