// SPDX-License-Identifier: Apache-2.0
#pragma once
// Execution of a call of weft as NCCL calls on a stream. NCCL has no collectives with counts: they become broadcasts, reductions
// or messages in one group, which start together and move the same bytes.

#include <cstddef>
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
      case barrier:
      case split:
      case send:
      case recv: break;
    }
    throw_error<Error>({"nccl: ", name_of(call_.operation), " is not a collective of device memory"});
  }

 private:
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

  /// Messages to and from every rank; in a gather only the root receives, in a scatter only the root sends.
  void messages() const {
    const auto element = size_of(call_.type);
    const int me = place_.rank;
    const bool to_root = call_.operation == Operation::gather, from_root = call_.operation == Operation::scatter;
    const bool even = to_root || from_root || call_.operation == Operation::all_to_all;
    if (even && call_.count == 0) return;
    GroupCall group;
    std::size_t sent = 0, received = 0;
    for (int q = 0; q < place_.size; ++q) {
      const bool sending = to_root ? q == call_.root : !from_root || me == call_.root;
      const bool receiving = to_root ? me == call_.root : !from_root || q == call_.root;
      const std::size_t out_count = !sending ? 0 : even ? call_.count : call_.send_counts[std::size_t(q)];
      const std::size_t in_count = !receiving ? 0 : even ? call_.count : call_.receive_counts[std::size_t(q)];
      const std::size_t from = to_root ? 0 : sent, to = from_root ? 0 : received;
      if (q != me) {
        if (out_count != 0) nccl::send(group, input(from), out_count * element, q, place_.comm, place_.stream);
        if (in_count != 0) nccl::receive(group, output(to), in_count * element, q, place_.comm, place_.stream);
      } else if (sending && receiving) {
        copy(output(to), input(from), in_count);
      }
      sent += out_count;
      received += in_count;
    }
    group.end();
  }

  const Call& call_;
  Place place_;
};

}  // namespace weft::comm::nccl
