// SPDX-License-Identifier: Apache-2.0
#pragma once
// Long reductions over the connections of a mesh, in chunks: while one chunk is added up, the next ones are in flight, and in
// an all_reduce the results of earlier chunks go back. Each rank adds its own piece, in rank order (comm/reduce.hpp). The
// receives of the results are posted at the beginning, so that no chunk waits for its receiver.

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <weft/comm/reduce.hpp>
#include <weft/comm/tcp/message.hpp>
#include <weft/core/checked.hpp>

namespace weft::comm::tcp {

class Pipeline {
 public:
  /// Chunks that may have arrived before they are added.
  static constexpr std::size_t chunk_bytes = 1048576, window = 4;
  struct Bytes {
    std::size_t begin, length;
  };

  /// Rank q of `members` adds the bytes pieces[q] of all inputs into `own_output`; `whole_output` receives all results, or is
  /// null.
  Pipeline(Mesh& mesh, std::span<const int> members, int rank, const Call& call, std::vector<Bytes> pieces, std::byte* own_output,
           std::byte* whole_output)
      : mesh_(mesh),
        members_(members),
        rank_(std::size_t(rank)),
        type_(call.type),
        reduction_(call.reduction),
        combine_(call.combine),
        pieces_(std::move(pieces)),
        input_(static_cast<const std::byte*>(call.input)),
        own_(own_output),
        whole_(whole_output),
        sent_(members.size()),
        inputs_(members.size()),
        results_(members.size()) {
    for (const Bytes& piece : pieces_) most_ = std::max(most_, chunks(piece));
    numbers_ = mesh_.reserve_payloads(2 * most_);
    for (std::size_t q = 0; q < members_.size(); ++q) {
      if (q == rank_) continue;
      sent_[q] = mesh_.buffer(const_cast<std::byte*>(input_) + pieces_[q].begin, pieces_[q].length);
      for (std::size_t c = 0; c < chunks(pieces_[q]); ++c) {
        const Bytes at = chunk(pieces_[q], c);
        sent_[q]->send(members_[q], payload_slot(numbers_ + c), at.begin, at.length);
        ++sends_;
      }
    }
  }
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  /// The first number of this rank's chunks, sent to the others in the envelopes.
  std::uint64_t numbers() const { return numbers_; }

  /// Starts the receives once the others are known to have made the same call; `theirs` are the first numbers of their chunks.
  void accept(std::vector<std::uint64_t> theirs) {
    theirs_ = std::move(theirs);
    rows_.reset(new std::byte[weft::detail::checked_multiply(members_.size(), window * chunk_bytes)]);
    for (std::size_t q = 0; q < members_.size(); ++q) {
      if (q == rank_) continue;
      inputs_[q] = mesh_.buffer(rows_.get() + q * window * chunk_bytes, window * chunk_bytes);
      for (std::size_t c = 0; c < window; ++c) receive(q, c);
      if (whole_ == nullptr) continue;
      results_[q] = mesh_.buffer(whole_ + pieces_[q].begin, pieces_[q].length);
      for (std::size_t c = 0; c < chunks(pieces_[q]); ++c) {
        const Bytes at = chunk(pieces_[q], c);
        results_[q]->recv(members_[q], payload_slot(theirs_[q] + most_ + c), at.begin, at.length);
      }
    }
    if (whole_ != nullptr) result_ = mesh_.buffer(own_, pieces_[rank_].length);
  }

  /// Advances as far as possible without waiting; true once complete.
  bool advance() {
    for (; reduced_ < chunks(pieces_[rank_]); ++reduced_) {
      for (std::size_t q = 0; q < members_.size(); ++q)
        if (q != rank_ && inputs_[q]->receives() <= reduced_) return false;
      reduce(reduced_);
    }
    for (std::size_t q = 0; whole_ != nullptr && q < members_.size(); ++q)
      if (q != rank_ && results_[q]->receives() < chunks(pieces_[q])) return false;
    std::size_t sent = result_ ? result_->sends() : 0;
    for (const auto& buffer : sent_)
      if (buffer) sent += buffer->sends();
    return sent == sends_;
  }
  /// Waits until a message has moved, for at most `patience`.
  void wait(std::chrono::microseconds patience) const {
    if (!accepted()) return;  // the last envelope came just now: there is something to do
    for (std::size_t q = 0; q < members_.size(); ++q) {
      if (q == rank_) continue;
      if (reduced_ < chunks(pieces_[rank_])) {
        if (inputs_[q]->receives() <= reduced_) return inputs_[q]->wait_for_receives(reduced_ + 1, patience);
      } else if (whole_ != nullptr && results_[q]->receives() < chunks(pieces_[q])) {
        return results_[q]->wait_for_receives(chunks(pieces_[q]), patience);
      }
    }
    for (std::size_t q = 0; q < members_.size(); ++q)
      if (sent_[q] && sent_[q]->sends() < chunks(pieces_[q])) return sent_[q]->wait_for_sends(chunks(pieces_[q]), patience);
    if (result_) result_->wait_for_sends(chunks(pieces_[rank_]) * (members_.size() - 1), patience);
  }
  /// The ranks of the world whose chunks are missing.
  std::vector<int> missing() const {
    std::vector<int> ranks;
    for (std::size_t q = 0; accepted() && q < members_.size(); ++q)
      if (q != rank_ && (inputs_[q]->receives() < chunks(pieces_[rank_]) ||
                         (whole_ != nullptr && results_[q]->receives() < chunks(pieces_[q]))))
        ranks.push_back(members_[q]);
    return ranks;
  }

 private:
  bool accepted() const { return !theirs_.empty(); }
  static std::size_t chunks(const Bytes& piece) { return (piece.length + chunk_bytes - 1) / chunk_bytes; }
  static Bytes chunk(const Bytes& piece, std::size_t c) {
    return {c * chunk_bytes, std::min(chunk_bytes, piece.length - c * chunk_bytes)};
  }
  std::byte* row(std::size_t q, std::size_t c) { return rows_.get() + (q * window + c % window) * chunk_bytes; }
  void receive(std::size_t q, std::size_t c) {
    if (c < chunks(pieces_[rank_]))
      inputs_[q]->recv(members_[q], payload_slot(theirs_[q] + c), c % window * chunk_bytes, chunk(pieces_[rank_], c).length);
  }
  void reduce(std::size_t c) {
    const Bytes at = chunk(pieces_[rank_], c);
    std::vector<const void*> inputs;
    for (std::size_t q = 0; q < members_.size(); ++q)
      inputs.push_back(q == rank_ ? input_ + pieces_[rank_].begin + at.begin : row(q, c));
    void* outputs[] = {own_ + at.begin};
    combine_(reduction_, inputs, {outputs, 1}, 0, at.length / size_of(type_));
    for (std::size_t k = 1; k < members_.size(); ++k) {
      const std::size_t q = (rank_ + k) % members_.size();
      receive(q, c + window);
      if (!result_) continue;
      result_->send(members_[q], payload_slot(numbers_ + most_ + c), at.begin, at.length);
      ++sends_;
    }
  }

  Mesh& mesh_;
  std::span<const int> members_;
  std::size_t rank_;
  DataType type_;
  Reduction reduction_;
  Combine combine_;
  std::vector<Bytes> pieces_;
  const std::byte* input_;
  std::byte *own_, *whole_;
  std::size_t most_ = 0, sends_ = 0, reduced_ = 0;
  std::uint64_t numbers_ = 0;
  std::vector<std::uint64_t> theirs_;
  std::unique_ptr<std::byte[]> rows_;  // [member][window][chunk]
  std::vector<std::unique_ptr<Buffer>> sent_, inputs_, results_;
  std::unique_ptr<Buffer> result_;
};

}  // namespace weft::comm::tcp
