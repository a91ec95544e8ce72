// SPDX-License-Identifier: Apache-2.0
#pragma once
// The comparison of a collective that ranks are about to make over MPI. They add hashes of their calls in one all-reduce: they
// disagree if the sum is not this rank's hash times the number of ranks. For all_to_all_v they also add hashes of the counts that
// they send and subtract hashes of the counts that they expect. Only ranks that disagree gather more.
//
//   mpi::Comparison comparison(call, sums, gathers, rank, size);
//   while (!comparison.test()) ...
//   if (const std::string why = comparison.difference(axis); !why.empty()) ...

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <weft/comm/mpi/api.hpp>
#include <weft/comm/operation.hpp>
#include <weft/core/hash.hpp>
#include <weft/core/text.hpp>

namespace weft::comm::mpi {

class Comparison {
 public:
  /// Starts it. `sums` and `gathers`: communicators of these ranks. Both, and the call's counts, must outlive it.
  Comparison(const Call& call, MPI_Comm sums, MPI_Comm gathers, int rank, int size)
      : call_(call),
        gathers_(gathers),
        size_(static_cast<std::size_t>(size)),
        mine_{signature(call), call.count, digest_of_counts(call)} {
    std::uint64_t balance = 0;
    if (call.operation == Operation::all_to_all_v)
      for (int q = 0; q < size; ++q) {
        const std::uint64_t sent[] = {std::uint64_t(rank), std::uint64_t(q), call.send_counts[std::size_t(q)]},
                            expected[] = {std::uint64_t(q), std::uint64_t(rank), call.receive_counts[std::size_t(q)]};
        balance += weft::detail::hash_bytes(sent, sizeof sent) - weft::detail::hash_bytes(expected, sizeof expected);
      }
    sums_ = {hash(), balance};
    mpi::check(MPI_Iallreduce(MPI_IN_PLACE, sums_.data(), 2, MPI_UINT64_T, MPI_SUM, sums, &request_), "MPI_Iallreduce");
  }
  Comparison(const Comparison&) = delete;
  Comparison& operator=(const Comparison&) = delete;

  /// Advances without waiting; true once it is known whether the ranks agree.
  bool test() {
    if (request_ == MPI_REQUEST_NULL) return true;
    int done = 0;
    mpi::check(MPI_Test(&request_, &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (done == 0) return false;
    if (stage_ != Stage::sums) return true;
    if (sums_[0] != size_ * hash()) return gather(Stage::calls, {mine_.begin(), mine_.end()});
    if (sums_[1] == 0) return true;
    std::vector<std::uint64_t> own(call_.send_counts.begin(), call_.send_counts.end());
    own.insert(own.end(), call_.receive_counts.begin(), call_.receive_counts.end());
    return gather(Stage::counts, std::move(own));
  }

  /// After test(): empty if all ranks make the same call, else two ranks with different calls, and these calls.
  std::string difference(std::string_view axis) const {
    if (stage_ == Stage::sums) return {};
    const auto rank = [&](std::size_t r) { return weft::detail::joined({"rank ", long(r), " of ", axis}); };
    const auto one = [&](std::size_t r, const std::string& what) { return rank(r) + " called " + what; };
    if (stage_ == Stage::counts)
      for (std::size_t from = 0; from < size_; ++from)
        for (std::size_t to = 0; to < size_; ++to) {
          const std::uint64_t sends = all_[from * 2 * size_ + to], expects = all_[to * 2 * size_ + size_ + from];
          if (sends == expects) continue;
          return weft::detail::joined({"ranks disagree: ", one(from, describe(call_)), ", ", one(to, describe(call_)),
                                       ": the first sends ", sends, " elements to the second, which expects ", expects});
        }
    std::size_t q = 1;
    const auto like_first = [&](std::size_t r) { return same_call(all_[0], all_[3 * r]) && all_[1] == all_[3 * r + 1]; };
    while (q + 1 < size_ && like_first(q) && all_[2] == all_[3 * q + 2]) ++q;
    return weft::detail::joined(
        {"ranks disagree: ", one(0, describe(all_[0], all_[1])), ", ", one(q, describe(all_[3 * q], all_[3 * q + 1])),
         functions_of(rank(0), all_[0], rank(q), all_[3 * q]), like_first(q) ? ": their counts differ" : ""});
  }

 private:
  enum class Stage { sums, calls, counts };

  std::uint64_t hash() const {
    const std::uint64_t compared[] = {mine_[0] & ~function_bits, mine_[1], mine_[2]};
    return weft::detail::hash_bytes(compared, sizeof compared);
  }
  // Not on the communicator of the sums, where other ranks may have begun those of their next call already.
  bool gather(Stage stage, std::vector<std::uint64_t> own) {
    stage_ = stage;
    own_ = std::move(own);
    all_.resize(own_.size() * size_);
    const int words = int(own_.size());
    mpi::check(MPI_Iallgather(own_.data(), words, MPI_UINT64_T, all_.data(), words, MPI_UINT64_T, gathers_, &request_),
               "MPI_Iallgather");
    return false;
  }

  const Call& call_;
  MPI_Comm gathers_;
  std::size_t size_;
  std::array<std::uint64_t, 3> mine_;
  std::array<std::uint64_t, 2> sums_{};
  std::vector<std::uint64_t> own_, all_;
  Stage stage_ = Stage::sums;
  MPI_Request request_ = MPI_REQUEST_NULL;
};

}  // namespace weft::comm::mpi
