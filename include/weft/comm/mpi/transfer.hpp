// SPDX-License-Identifier: Apache-2.0
#pragma once
// One operation in progress over MPI: some requests, then for some operations weft's arithmetic and more requests. Sums of
// floating-point numbers are formed here, in rank order, so that they have the same bits on every rank and on every backend;
// MPI adds only if the order cannot matter.

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <weft/comm/mpi/api.hpp>
#include <weft/comm/mpi/message.hpp>
#include <weft/comm/mpi/pipeline.hpp>
#include <weft/comm/reduce.hpp>

namespace weft::comm::mpi {

/// The communicators of an operation. `steps` carries operations in chunks, distinguished by tag (two tags each), `payloads` the
/// long data of messages.
struct Place {
  MPI_Comm main, steps, payloads;
  const shared_memory::PeerHeaps* heaps;
  int rank, size;
};

class Transfer {
 public:
  /// `payload`: the number of a message. `met`: all ranks have come to this call before it is launched.
  Transfer(const Place& place, const Call& call, int step_tag, std::uint64_t payload, bool met)
      : place_(place), call_(call), step_tag_(step_tag), payload_(payload), met_(met) {
    counts_ = keep_counts(call_);
  }
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  const Call& call() const { return call_; }
  bool launched() const { return launched_; }
  /// A send or recv; else null.
  const Message* message() const { return message_.get(); }

  /// Whether MPI may still read the caller's buffers, and does not write to them.
  bool reads() const { return message_ ? message_->reads() : pipeline_ && pipeline_->reads(); }
  /// From now on no other rank reads them where they lie.
  void give_up() {
    if (message_) message_->give_up();
  }
  /// False if MPI may still write to them. MPI's own collectives are never taken back: all ranks may have come to them.
  bool take_back() {
    if (message_) return message_->take_back();
    if (pipeline_) return pipeline_->take_back();
    next_ = nullptr;
    return requests_.empty() || call_.operation == Operation::barrier || soon([this] {
             int done = 0;
             return MPI_Testall(int(requests_.size()), requests_.data(), &done, MPI_STATUSES_IGNORE) == MPI_SUCCESS && done != 0;
           });
  }

  void launch();
  /// Adopts a send or recv that has begun.
  void adopt(std::unique_ptr<Message> message) {
    launched_ = true;
    message_ = std::move(message);
  }
  /// True once complete.
  bool test() {
    if (!launched_) return false;
    if (pipeline_) return pipeline_->advance();
    if (message_) return message_->test();
    for (;;) {
      if (requests_.size() == 1) {
        MPI_Status status;
        int done = 0;
        check(MPI_Test(&requests_[0], &done, &status), "MPI_Test");
        if (done == 0) return false;
        requests_.clear();
      } else if (!requests_.empty()) {
        std::vector<MPI_Status> statuses(requests_.size());
        int done = 0;
        const int code = MPI_Testall(int(requests_.size()), requests_.data(), &done, statuses.data());
        if (code == MPI_ERR_IN_STATUS)
          for (const auto& status : statuses)
            if (status.MPI_ERROR != MPI_ERR_PENDING) check(status.MPI_ERROR, std::string(name_of(call_.operation)).c_str());
        check(code, "MPI_Testall");
        if (done == 0) return false;
        requests_.clear();
      }
      if (!next_) return true;
      std::exchange(next_, nullptr)();
    }
  }

 private:
  /// Reductions go in chunks if a rank's piece has at least this many bytes.
  static constexpr std::size_t long_piece = 1024;

  bool integral() const {
    using enum DataType;
    return call_.type != float16 && call_.type != bfloat16 && call_.type != float32 && call_.type != float64;
  }
  bool by_mpi() const {
    if (call_.type == DataType::bfloat16 || call_.type == DataType::float16) return false;
    if (integral()) return true;
    return place_.size <= 2 &&
           call_.reduction == Reduction::sum;  // a + b = b + a; and a NaN is passed on only by our max and min
  }
  MPI_Request* request() { return &requests_.emplace_back(MPI_REQUEST_NULL); }
  std::byte* scratch(std::size_t elements) {
    scratch_.resize(elements * size_of(call_.type));
    return scratch_.data();
  }
  /// Reduces the rows of scratch, `row` elements from each rank, into `out`.
  void combine_rows(void* out, std::size_t row) {
    std::vector<const void*> inputs;
    for (int q = 0; q < place_.size; ++q) inputs.push_back(scratch_.data() + std::size_t(q) * row * size_of(call_.type));
    void* outputs[] = {out};
    call_.combine(call_.reduction, inputs, {outputs, 1}, 0, row);
  }
  void launch_all_reduce();
  void launch_reduce_scatter(std::span<const std::size_t> counts);
  /// Starts a reduction in chunks, in which rank q adds counts[q] elements of all inputs.
  void launch_pipeline(std::span<const std::size_t> counts, bool all) {
    std::vector<Pipeline::Bytes> pieces;
    std::size_t begin = 0;
    for (const std::size_t count : counts) {
      const std::size_t bytes = count * size_of(call_.type);
      pieces.push_back({begin, bytes});
      begin += bytes;
    }
    auto* out = static_cast<std::byte*>(call_.output);
    std::byte* own = all ? out + pieces[std::size_t(place_.rank)].begin : out;
    pipeline_ =
        std::make_unique<Pipeline>(place_.steps, place_.rank, call_, step_tag_, std::move(pieces), own, all ? out : nullptr);
  }

  Place place_;
  Call call_;
  int step_tag_;
  std::uint64_t payload_;
  bool met_;
  bool launched_ = false;
  std::unique_ptr<std::size_t[]> counts_;
  std::vector<MPI_Request> requests_;
  std::function<void()> next_;
  std::vector<std::byte> scratch_;
  Pieces sends_, receives_;
  std::unique_ptr<Pipeline> pipeline_;
  std::unique_ptr<Message> message_;
};

inline void Transfer::launch() {
  using enum Operation;
  launched_ = true;
  const MPI_Comm comm = place_.main;
  const MPI_Datatype type = type_of(call_.type);
  const bool root = call_.root == place_.rank;
  const void* in = call_.input;
  void* out = call_.output;
  const auto n = std::size_t(place_.size);
  const auto count = [&] { return to_count(call_.count); };
  switch (call_.operation) {
    case barrier: return met_ ? void() : check(MPI_Ibarrier(comm, request()), "MPI_Ibarrier");
    case split: return;
    case send:
    case recv: message_ = std::make_unique<Message>(comm, place_.payloads, *place_.heaps, call_, payload_); return;
    case broadcast: return check(WEFT_MPI(Ibcast)(out, count(), type, call_.root, comm, request()), "MPI_Ibcast");
    case all_gather: {
      const bool in_place = in == static_cast<std::byte*>(out) + std::size_t(place_.rank) * call_.bytes();
      return check(WEFT_MPI(Iallgather)(in_place ? MPI_IN_PLACE : in, count(), type, out, count(), type, comm, request()),
                   "MPI_Iallgather");
    }
    case all_gather_v: {
      receives_.assign(call_.receive_counts);
      const auto me = std::size_t(place_.rank);
      const bool in_place = in == static_cast<std::byte*>(out) + std::size_t(receives_.offsets[me]) * size_of(call_.type);
      return check(WEFT_MPI(Iallgatherv)(in_place ? MPI_IN_PLACE : in, receives_.counts[me], type, out, receives_.counts.data(),
                                         receives_.offsets.data(), type, comm, request()),
                   "MPI_Iallgatherv");
    }
    case gather: {
      const bool in_place = root && in == static_cast<std::byte*>(out) + std::size_t(place_.rank) * call_.bytes();
      return check(
          WEFT_MPI(Igather)(in_place ? MPI_IN_PLACE : in, count(), type, out, count(), type, call_.root, comm, request()),
          "MPI_Igather");
    }
    case scatter: {
      const bool in_place = root && out == static_cast<const std::byte*>(in) + std::size_t(place_.rank) * call_.bytes();
      return check(
          WEFT_MPI(Iscatter)(in, count(), type, in_place ? MPI_IN_PLACE : out, count(), type, call_.root, comm, request()),
          "MPI_Iscatter");
    }
    case all_to_all: return check(WEFT_MPI(Ialltoall)(in, count(), type, out, count(), type, comm, request()), "MPI_Ialltoall");
    case all_to_all_v:
      sends_.assign(call_.send_counts);
      receives_.assign(call_.receive_counts);
      return check(WEFT_MPI(Ialltoallv)(in, sends_.counts.data(), sends_.offsets.data(), type, out, receives_.counts.data(),
                                        receives_.offsets.data(), type, comm, request()),
                   "MPI_Ialltoallv");
    case reduce:
      if (by_mpi()) {
        const void* from = root && in == out ? MPI_IN_PLACE : in;
        return check(WEFT_MPI(Ireduce)(from, out, count(), type, operation_of(call_.reduction), call_.root, comm, request()),
                     "MPI_Ireduce");
      }
      check(WEFT_MPI(Igather)(in, count(), type, root ? scratch(n * call_.count) : nullptr, count(), type, call_.root, comm,
                              request()),
            "MPI_Igather");
      if (root) next_ = [this] { combine_rows(call_.output, call_.count); };
      return;
    case all_reduce: return launch_all_reduce();
    case reduce_scatter: return launch_reduce_scatter(std::vector<std::size_t>(n, call_.count));
    case reduce_scatter_v: return launch_reduce_scatter(call_.receive_counts);
  }
}

inline void Transfer::launch_all_reduce() {
  const MPI_Datatype type = type_of(call_.type);
  const auto n = std::size_t(place_.size), element = size_of(call_.type);
  constexpr std::size_t short_bytes = 4096;
  if (!integral() && (call_.bytes() > short_bytes || call_.bytes() / n >= long_piece)) {
    std::vector<std::size_t> pieces(n);
    for (std::size_t q = 0; q < n; ++q) {
      const Piece piece = piece_of(call_.count, element, int(q), place_.size);
      pieces[q] = piece.end - piece.begin;
    }
    return launch_pipeline(pieces, true);
  }
  if (by_mpi()) {
    const void* from = call_.input == call_.output ? MPI_IN_PLACE : call_.input;
    return check(WEFT_MPI(Iallreduce)(from, call_.output, to_count(call_.count), type, operation_of(call_.reduction), place_.main,
                                      request()),
                 "MPI_Iallreduce");
  }
  // One step: everybody gets everything.
  check(WEFT_MPI(Iallgather)(call_.input, to_count(call_.count), type, scratch(n * call_.count), to_count(call_.count), type,
                             place_.main, request()),
        "MPI_Iallgather");
  next_ = [this] { combine_rows(call_.output, call_.count); };
}

inline void Transfer::launch_reduce_scatter(std::span<const std::size_t> counts) {
  const MPI_Datatype type = type_of(call_.type);
  const auto n = std::size_t(place_.size);
  const std::size_t mine = counts[std::size_t(place_.rank)];
  std::size_t all = 0;
  for (const std::size_t count : counts) all += count;
  if (all * size_of(call_.type) / n >= long_piece) return launch_pipeline(counts, false);
  sends_.assign(counts);
  receives_.assign(std::vector<std::size_t>(n, mine));
  check(WEFT_MPI(Ialltoallv)(call_.input, sends_.counts.data(), sends_.offsets.data(), type, scratch(n * mine),
                             receives_.counts.data(), receives_.offsets.data(), type, place_.main, request()),
        "MPI_Ialltoallv");
  next_ = [this, mine] { combine_rows(call_.output, mine); };
}

}  // namespace weft::comm::mpi
