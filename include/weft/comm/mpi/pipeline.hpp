// SPDX-License-Identifier: Apache-2.0
#pragma once
// Long reductions over MPI's messages, in chunks: while one chunk is added up in rank order (comm/reduce.hpp), the next ones
// are in flight, and in an all_reduce the results of earlier chunks go back. Each rank adds its own piece of the whole.

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include <weft/comm/mpi/api.hpp>
#include <weft/comm/reduce.hpp>
#include <weft/core/checked.hpp>

namespace weft::comm::mpi {

class Pipeline {
 public:
  /// Chunks of one kind, to or from one rank, that may be in flight at a time.
  static constexpr std::size_t chunk_bytes = 262144, window = 4;
  struct Bytes {
    std::size_t begin, length;
  };

  /// Rank q adds the bytes pieces[q] of all inputs into `own_output`; `whole_output` receives all results, or is null. Uses the
  /// tags `tag` and `tag + 1`.
  Pipeline(MPI_Comm comm, int rank, const Call& call, int tag, std::vector<Bytes> pieces, std::byte* own_output,
           std::byte* whole_output)
      : comm_(comm),
        rank_(std::size_t(rank)),
        tag_(tag),
        type_(call.type),
        reduction_(call.reduction),
        combine_(call.combine),
        pieces_(std::move(pieces)),
        input_(static_cast<const std::byte*>(call.input)),
        own_(own_output),
        whole_(whole_output),
        streams_(kinds * pieces_.size()),
        requests_(streams_.size() * window, MPI_REQUEST_NULL),
        lengths_(requests_.size(), 0),
        indices_(requests_.size()),
        statuses_(requests_.size()) {
    const Bytes& mine = pieces_[rank_];
    row_ = std::min(mine.length, chunk_bytes);
    rows_.reset(new std::byte[weft::detail::checked_multiply(pieces_.size(), window * row_)]);
    for (std::size_t q = 0; q < pieces_.size(); ++q) {
      if (q == rank_) continue;
      stream(send_input, q).total = chunks(pieces_[q]);
      stream(receive_input, q).total = chunks(mine);
      if (whole_ == nullptr) continue;
      stream(send_result, q).total = chunks(mine);
      stream(receive_result, q).total = chunks(pieces_[q]);
    }
    post();
  }
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;
  /// Keeps the memory of requests that an error has left running: MPI cannot cancel them.
  ~Pipeline() {
    const auto done = std::count(requests_.begin(), requests_.end(), MPI_REQUEST_NULL);
    if (std::size_t(done) != requests_.size()) static_cast<void>(rows_.release());
  }

  /// Whether MPI may still read the caller's buffers.
  bool reads() const {
    bool any = false;
    for (std::size_t at = 0; at < requests_.size(); ++at) any = any || (sends(at) && requests_[at] != MPI_REQUEST_NULL);
    return any;
  }
  /// False if MPI may still write to them.
  bool take_back() {
    std::vector<MPI_Request> receives;
    for (std::size_t at = 0; at < requests_.size(); ++at)
      if (!sends(at)) receives.push_back(std::exchange(requests_[at], MPI_REQUEST_NULL));
    if (mpi::take_back(receives)) return true;
    requests_.insert(requests_.end(), receives.begin(), receives.end());  // MPI keeps the rows
    return false;
  }

  /// Advances as far as possible without waiting; true once complete.
  bool advance() {
    while (test()) {
      while (reduce_ready()) post();
      post();
    }
    if (reduced_ < chunks(pieces_[rank_])) return false;
    return std::all_of(streams_.begin(), streams_.end(), [](const Stream& s) { return s.done == s.total; });
  }

 private:
  enum Kind : std::size_t { send_input, receive_input, send_result, receive_result, kinds };
  /// The chunks of one kind to or from one rank, in order.
  struct Stream {
    std::size_t total = 0, posted = 0, done = 0;
  };

  Stream& stream(Kind kind, std::size_t q) { return streams_[q * kinds + kind]; }
  static bool sends(std::size_t at) {
    const auto kind = Kind(at / window % kinds);
    return kind == send_input || kind == send_result;
  }
  std::size_t place(Kind kind, std::size_t q, std::size_t c) const { return (q * kinds + kind) * window + c % window; }
  static std::size_t chunks(const Bytes& piece) { return (piece.length + chunk_bytes - 1) / chunk_bytes; }
  static Bytes chunk(const Bytes& piece, std::size_t c) {
    return {c * chunk_bytes, std::min(chunk_bytes, piece.length - c * chunk_bytes)};
  }
  std::byte* row(std::size_t q, std::size_t c) { return rows_.get() + (q * window + c % window) * row_; }

  /// True if any message has arrived or left.
  bool test() {
    int count = 0;
    const int code = MPI_Testsome(int(requests_.size()), requests_.data(), &count, indices_.data(), statuses_.data());
    if (count == MPI_UNDEFINED) return false;
    for (int k = 0; k < count; ++k) {
      const auto& status = statuses_[std::size_t(k)];
      const auto at = std::size_t(indices_[std::size_t(k)]);
      if (code == MPI_ERR_IN_STATUS) check(status.MPI_ERROR, "MPI_Testsome");
      if (sends(at)) continue;
      int bytes = 0;
      check(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count");
      if (bytes != lengths_[at])
        throw_error<Error>(
            {"ranks disagree: rank ", status.MPI_SOURCE, " sent a chunk of ", bytes, " bytes, ", lengths_[at], " were expected"});
    }
    check(code, "MPI_Testsome");
    for (std::size_t k = 0; count > 0 && k < streams_.size(); ++k) {
      Stream& s = streams_[k];
      while (s.done < s.posted && requests_[k * window + s.done % window] == MPI_REQUEST_NULL) ++s.done;
    }
    return count > 0;
  }
  bool reduce_ready() {
    const Bytes& mine = pieces_[rank_];
    const std::size_t before = reduced_;
    for (; reduced_ < chunks(mine); ++reduced_) {
      inputs_.clear();
      const Bytes at = chunk(mine, reduced_);
      for (std::size_t q = 0; q < pieces_.size(); ++q) {
        if (q != rank_ && stream(receive_input, q).done <= reduced_) return reduced_ != before;
        inputs_.push_back(q == rank_ ? input_ + mine.begin + at.begin : row(q, reduced_));
      }
      void* outputs[] = {own_ + at.begin};
      combine_(reduction_, inputs_, {outputs, 1}, 0, at.length / size_of(type_));
    }
    return reduced_ != before;
  }
  /// Starts every message that may be in flight.
  void post() {
    for (std::size_t k = 1; k < pieces_.size(); ++k) {
      const std::size_t q = (rank_ + k) % pieces_.size();
      const Bytes &mine = pieces_[rank_], &other = pieces_[q];
      const auto receive_row = [&](std::size_t c, Bytes at) { return receive(row(q, c), at.length, q, tag_); };
      const auto receive_other = [&](std::size_t, Bytes at) {
        return receive(whole_ + other.begin + at.begin, at.length, q, tag_ + 1);
      };
      const auto send_other = [&](std::size_t, Bytes at) { return send(input_ + other.begin + at.begin, at.length, q, tag_); };
      const auto send_own = [&](std::size_t, Bytes at) { return send(own_ + at.begin, at.length, q, tag_ + 1); };
      // A row is free once its chunk is added; in place, results may only come where this rank's input has left.
      post(receive_input, q, mine, reduced_ + window, receive_row);
      post(receive_result, q, other, stream(send_input, q).done, receive_other);
      post(send_input, q, other, stream(send_input, q).total, send_other);
      post(send_result, q, mine, reduced_, send_own);
    }
  }
  /// Starts the chunks of `piece` before `end` that the window allows.
  template <class F>
  void post(Kind kind, std::size_t q, const Bytes& piece, std::size_t end, F&& start) {
    Stream& s = stream(kind, q);
    for (; s.posted < std::min(s.total, end) && s.posted < s.done + window; ++s.posted) {
      const Bytes at = chunk(piece, s.posted);
      const std::size_t where = place(kind, q, s.posted);
      lengths_[where] = int(at.length);
      requests_[where] = start(s.posted, at);
    }
  }
  MPI_Request send(const std::byte* from, std::size_t bytes, std::size_t q, int tag) {
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Isend(from, int(bytes), MPI_BYTE, int(q), tag, comm_, &request), "MPI_Isend");
    return request;
  }
  MPI_Request receive(std::byte* to, std::size_t bytes, std::size_t q, int tag) {
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Irecv(to, int(bytes), MPI_BYTE, int(q), tag, comm_, &request), "MPI_Irecv");
    return request;
  }

  MPI_Comm comm_;
  std::size_t rank_;
  int tag_;
  DataType type_;
  Reduction reduction_;
  Combine combine_;
  std::vector<Bytes> pieces_;
  const std::byte* input_;
  std::byte *own_, *whole_;
  std::size_t reduced_ = 0, row_ = 0;
  std::unique_ptr<std::byte[]> rows_;  // [rank][window][chunk]
  std::vector<Stream> streams_;        // [rank][kind]
  std::vector<MPI_Request> requests_;  // [rank][kind][window]
  std::vector<int> lengths_, indices_;
  std::vector<MPI_Status> statuses_;
  std::vector<const void*> inputs_;
};

}  // namespace weft::comm::mpi
