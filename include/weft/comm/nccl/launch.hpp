// SPDX-License-Identifier: Apache-2.0
#pragma once
// Execution of a call of weft as NCCL calls on a stream. NCCL has no collectives with counts: they become broadcasts, reductions
// or messages in one group, which start together and move the same bytes.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

#include <weft/comm/nccl/api.hpp>

namespace weft::comm::nccl {

/// The communicator and stream of a call.
struct Place {
  ncclComm_t comm;
  int rank, size;
  cudaStream_t stream;
};

class Launch {
 public:
  Launch(const Call& call, const Place& place) : call_(call), place_(place) {}

  /// Gives the whole call to NCCL; does nothing if there is nothing to move.
  void run() const {
    using enum Operation;
    const auto [comm, rank, size, stream] = place_;
    (void)rank;
    const void* in = call_.input;
    void* out = call_.output;
    if (size == 1) return alone();
    switch (call_.operation) {
      case all_reduce:
        if (call_.count == 0) return;
        return check(ncclAllReduce(in, out, call_.count, type_of(call_.type), operation_of(call_.reduction), comm, stream),
                     "ncclAllReduce", comm);
      case reduce:
        if (call_.count == 0) return;
        return check(
            ncclReduce(in, out, call_.count, type_of(call_.type), operation_of(call_.reduction), call_.root, comm, stream),
            "ncclReduce", comm);
      case reduce_scatter:
        if (call_.count == 0) return;
        return check(ncclReduceScatter(in, out, call_.count, type_of(call_.type), operation_of(call_.reduction), comm, stream),
                     "ncclReduceScatter", comm);
      case broadcast:
        if (call_.count == 0) return;
        return check(ncclBroadcast(in, out, call_.bytes(), ncclInt8, call_.root, comm, stream), "ncclBroadcast", comm);
      case all_gather:
        if (call_.count == 0) return;
        return check(ncclAllGather(in, out, call_.bytes(), ncclInt8, comm, stream), "ncclAllGather", comm);
      case all_gather_v: return gather_by_counts();
      case reduce_scatter_v: return scatter_by_counts();
      case gather:
      case scatter:
      case all_to_all:
      case all_to_all_v: return messages();
      case send:
      case recv: return message();
      case barrier:
      case split: break;
    }
    throw_error<Error>({"nccl: ", name_of(call_.operation), " is not an operation on device memory"});
  }

  /// Calls f(number) for each set of connections that the call may be the first to need, the same numbers whenever it needs the
  /// same. NCCL connects ranks when they first use an algorithm, which it chooses by the operation, its type and its size, and
  /// for messages when a rank first sends to another.
  template <class F>
  void for_each_connection(F&& f) const {
    using enum Operation;
    constexpr std::uint64_t of_messages = std::uint64_t(1) << 63;
    const auto to = [&](int rank) { f(of_messages | std::uint64_t(rank) << 1); };
    const auto from = [&](int rank) { f(of_messages | std::uint64_t(rank) << 1 | 1); };
    switch (call_.operation) {
      case send:
        if (call_.count != 0) to(1 - place_.rank);
        return;
      case recv:
        if (call_.count != 0) from(1 - place_.rank);
        return;
      case gather:
      case scatter:
      case all_to_all:
      case all_to_all_v:
        return for_each_partner([&](int rank, const Piece& out, const Piece& in) {
          if (rank == place_.rank) return;
          if (out.count != 0) to(rank);
          if (in.count != 0) from(rank);
        });
      default: {
        std::uint64_t number = (signature(call_) & ~function_bits) ^ digest_of_counts(call_);
        number = (number ^ number >> 31) * 0x9e3779b97f4a7c15 + call_.count;
        number = (number ^ number >> 30) * 0xbf58476d1ce4e5b9;
        f((number ^ number >> 27) & ~of_messages);
      }
    }
  }

 private:
  struct Piece {
    std::size_t begin, count;  // elements
  };

  const std::byte* input(std::size_t elements) const {
    return static_cast<const std::byte*>(call_.input) + elements * size_of(call_.type);
  }
  std::byte* output(std::size_t elements) const { return static_cast<std::byte*>(call_.output) + elements * size_of(call_.type); }
  void copy(void* to, const void* from, std::size_t elements) const {
    if (elements == 0 || to == from) return;
    cuda_check(cudaMemcpyAsync(to, from, elements * size_of(call_.type), cudaMemcpyDeviceToDevice, place_.stream),
               "cudaMemcpyAsync");
  }
  /// A group of one rank: the output is the input.
  void alone() const {
    const bool by_counts = call_.operation == Operation::all_gather_v || call_.operation == Operation::reduce_scatter_v ||
                           call_.operation == Operation::all_to_all_v;
    copy(call_.output, call_.input, by_counts ? call_.receive_counts[0] : call_.count);
  }
  void gather_by_counts() const {
    for_each_count([&](GroupCall& group, int root, std::size_t begin, std::size_t count) {
      const void* from = root == place_.rank ? call_.input : output(begin);
      nccl::broadcast(group, from, output(begin), count * size_of(call_.type), root, place_.comm, place_.stream);
    });
  }
  void scatter_by_counts() const {
    for_each_count([&](GroupCall& group, int root, std::size_t begin, std::size_t count) {
      nccl::reduce(group, input(begin), call_.output, count, call_.type, call_.reduction, root, place_.comm, place_.stream);
    });
  }
  /// One group of NCCL calls: f(group, rank, begin, count) for each rank that has a piece; no group if all pieces are empty.
  template <class F>
  void for_each_count(F&& f) const {
    std::optional<GroupCall> group;
    std::size_t begin = 0;
    for (int root = 0; root < place_.size; ++root) {
      const std::size_t count = call_.receive_counts[std::size_t(root)];
      if (count != 0) {
        if (!group) group.emplace();
        f(*group, root, begin, count);
      }
      begin += count;
    }
    if (group) group->end();
  }

  /// A message to or from the other rank of two.
  void message() const {
    if (call_.count == 0) return;
    const int other = 1 - place_.rank;
    GroupCall group;
    if (call_.operation == Operation::send) nccl::send(group, call_.input, call_.bytes(), other, place_.comm, place_.stream);
    else nccl::receive(group, call_.output, call_.bytes(), other, place_.comm, place_.stream);
    group.end();
  }

  /// Messages to and from every rank.
  void messages() const {
    if (call_.operation != Operation::all_to_all_v && call_.count == 0) return;
    const auto element = size_of(call_.type);
    GroupCall group;
    for_each_partner([&](int rank, const Piece& out, const Piece& in) {
      if (rank == place_.rank) return copy(output(in.begin), input(out.begin), std::min(out.count, in.count));
      if (out.count != 0) nccl::send(group, input(out.begin), out.count * element, rank, place_.comm, place_.stream);
      if (in.count != 0) nccl::receive(group, output(in.begin), in.count * element, rank, place_.comm, place_.stream);
    });
    group.end();
  }
  /// f(rank, piece for it, piece from it) for every rank; in a gather only the root receives, in a scatter only the root sends.
  template <class F>
  void for_each_partner(F&& f) const {
    const int me = place_.rank;
    const bool to_root = call_.operation == Operation::gather, from_root = call_.operation == Operation::scatter,
               by_counts = call_.operation == Operation::all_to_all_v;
    std::size_t sent = 0, received = 0;
    for (int q = 0; q < place_.size; ++q) {
      const bool sending = to_root ? q == call_.root : !from_root || me == call_.root;
      const bool receiving = to_root ? me == call_.root : !from_root || q == call_.root;
      const Piece out{to_root ? 0 : sent, !sending ? 0 : by_counts ? call_.send_counts[std::size_t(q)] : call_.count};
      const Piece in{from_root ? 0 : received, !receiving ? 0 : by_counts ? call_.receive_counts[std::size_t(q)] : call_.count};
      f(q, out, in);
      sent += out.count;
      received += in.count;
    }
  }

  const Call& call_;
  Place place_;
};

}  // namespace weft::comm::nccl
