// SPDX-License-Identifier: Apache-2.0
#pragma once
// A ring exchange: pieces of all ranks go round a ring, and every rank works on each of them. At each step a rank works on one
// piece and at the same time sends it to the next rank and receives the following one from the previous rank.
//
//   comm::ring_exchange(comm, piece, spare, [&](int step, std::span<T> piece, auto&& progress) { ... });
//
// At step s a rank works on the piece of rank (rank - s) mod size.

#include <span>
#include <utility>

#include <weft/comm/communicator.hpp>

namespace weft::comm {

namespace detail {

struct Neighbours {
  int next, previous;
  explicit Neighbours(const Communicator& comm)
      : next((comm.rank() + 1) % comm.size()), previous((comm.rank() + comm.size() - 1) % comm.size()) {}
};

inline constexpr int piece_tag = 0, sum_tag = 1;

// One hop of a piece, in progress while the rank works on it.
template <class T>
struct Hop {
  Request receiving, sending;
  Hop(const Communicator& comm, std::span<T> piece, std::span<T> spare, bool last) {
    if (last) return;
    const Neighbours to(comm);
    receiving = comm.recv_async(spare, to.previous, piece_tag);
    sending = comm.send_async(std::span<const T>(piece), to.next, piece_tag);
  }
  void progress() {
    receiving.test();
    sending.test();
  }
  void wait() {
    receiving.wait();
    sending.wait();
  }
};

}  // namespace detail

/// Calls work(step, piece, progress) for the piece of each rank, this rank's own first. The next piece arrives meanwhile;
/// `progress()`, called now and then, advances the messages. `piece` and `spare` have the same size on all ranks and are used in
/// turn. size - 1 messages each way. Collective.
template <class T, class Work>
void ring_exchange(const Communicator& comm, std::span<T> piece, std::span<T> spare, Work&& work) {
  for (int step = 0; step < comm.size(); ++step) {
    detail::Hop<T> hop(comm, piece, spare, step + 1 == comm.size());
    work(step, piece, [&] { hop.progress(); });
    hop.wait();
    std::swap(piece, spare);
  }
}

/// A ring exchange with a sum that travels with each piece. After work(step, piece, progress), add(step, sum) adds this rank's
/// part to the piece's `sum`; at step 0 it overwrites the old content. In the end each rank has the sum of its own piece, added
/// in rank order starting with itself; it is in the returned span, `sum` or `arriving`. size messages of sums each way.
/// Collective.
template <class T, class S, class Work, class Add>
std::span<S> ring_exchange(const Communicator& comm, std::span<T> piece, std::span<T> spare, std::span<S> sum,
                           std::span<S> arriving, Work&& work, Add&& add) {
  const detail::Neighbours to(comm);
  Request sending;
  const auto receive = [&] { return comm.recv_async(arriving, to.previous, detail::sum_tag); };
  const auto arrive = [&](Request& receiving) {
    receiving.wait();
    sending.wait();  // of the buffer that the next sum will arrive in
    std::swap(sum, arriving);
  };
  for (int step = 0; step < comm.size(); ++step) {
    detail::Hop<T> hop(comm, piece, spare, step + 1 == comm.size());
    Request receiving;
    if (step > 0) receiving = receive();
    work(step, piece, [&] {
      hop.progress();
      receiving.test();
      sending.test();
    });
    if (step > 0) arrive(receiving);
    add(step, sum);
    if (comm.size() > 1) sending = comm.send_async(std::span<const S>(sum), to.next, detail::sum_tag);
    hop.wait();
    std::swap(piece, spare);
  }
  if (comm.size() > 1) {
    Request home = receive();
    arrive(home);
  }
  return sum;
}

}  // namespace weft::comm
