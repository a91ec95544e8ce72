// SPDX-License-Identifier: Apache-2.0
#pragma once
// The communicator: ranks and the collectives between them. A small value (copies share one group), typed and checked on top,
// type-erased below. It is never implied: a program has no default communicator.
//
//   communicator.all_reduce(gradients);                                  // in place, sum
//   Request request = communicator.all_gather_async(shard, whole);       // [n] -> [size * n], in rank order
//   ...
//   request.wait();

#include <Kokkos_Core.hpp>

#include <concepts>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <weft/comm/calls.hpp>
#include <weft/comm/group.hpp>
#include <weft/comm/self.hpp>

namespace weft {

namespace detail {
template <class E>
concept ExecutionSpace = Kokkos::is_execution_space<E>::value;
}  // namespace detail

/// Ranks that exchange messages: those along one axis of a mesh, or all ranks of a world.
///
/// Every operation has a form that returns when its output is complete and its input may be changed, and a form `..._async` that
/// returns a Request. Both also take an execution-space instance as an optional first argument: the one on which the buffers were
/// written and will be read. All ranks of the communicator must call the same operations in the same order, each from its own
/// thread. Pieces of different ranks lie in rank order without gaps. Reductions are in rank order and give the same bits on every
/// rank. Throws ShapeError (counts that do not fit), UsageError (a rank that does not exist, an operation that the backend does
/// not support) and the CommunicationErrors. A Tensor with placements is refused at compile time: see to<Placement> and raw.
class Communicator {
 public:
  /// The group of one rank.
  Communicator();
  explicit Communicator(std::shared_ptr<comm::Group> group) : group_(std::move(group)) {}
  /// Every operation is ordered after the work that `order` names; its instance must outlive this communicator and all splits of
  /// it.
  Communicator(std::shared_ptr<comm::Group> group, const comm::StreamOrder& order) : group_(std::move(group)), order_(order) {}
  // Copies and destruction are out of line: every context has some communicators.
  Communicator(const Communicator& other);
  Communicator(Communicator&& other) noexcept = default;
  Communicator& operator=(Communicator other) noexcept;
  ~Communicator();

  int rank() const { return group_->rank(); }
  int size() const { return group_->size(); }
  std::string_view axis() const { return group_->axis(); }
  std::string_view backend() const { return group_->backend(); }
  /// True in a rehearsal: the other ranks do not exist and appear to have this rank's values (comm/rehearsal.hpp).
  bool rehearsed() const { return group_->rehearsed(); }
  /// The backend's table of traits, so that a program can ask before a run and not fail in its middle.
  bool supports(comm::Operation operation, DataType type, comm::MemoryKind memory = comm::MemoryKind::host) const {
    return group_->supports(operation, type, memory);
  }
  const std::shared_ptr<comm::Group>& group() const { return group_; }
  const comm::StreamOrder& order() const { return order_; }

  /// The communicator of all ranks that give the same color (>= 0), ordered by key, then by rank. Collective.
  Communicator split(int color, int key, std::string axis) const {
    if (color < 0) throw_error<UsageError>({"split: color ", color, " is negative"});
    return Communicator(group_->split(color, key, std::move(axis)), order_);
  }
  /// The same if every rank has computed its place in the new communicator beforehand, which a rehearsal needs.
  Communicator split(int color, int key, std::string axis, const comm::SplitPlace& place) const;

  /// Throws if this rank's communication has failed; does not communicate. Results that a device computed from aborted messages
  /// must not be used.
  void check() const { group_->check(); }
  /// Call this after each launch of a CUDA graph on `exec` in which operations of this communicator were recorded. Ranks that do
  /// not launch it are then found at the deadline, like ranks that do not call an operation.
  template <detail::ExecutionSpace E>
  void watch(const E& exec) const {
    group_->watch(on(exec).order());
  }
  /// Returns when every rank has called it.
  void barrier() const { execute({.operation = comm::Operation::barrier}); }
  Request barrier_async() const { return start({.operation = comm::Operation::barrier}); }

  /// inout[i] = reduction over the ranks of their inout[i].
  template <MutableContiguous X>
  void all_reduce(X&& inout, Reduction reduction = Reduction::sum) const {
    execute(calls::all_reduce(size(), inout, inout, reduction));
  }
  template <MutableContiguous X>
  Request all_reduce_async(X&& inout, Reduction reduction = Reduction::sum) const {
    return start(calls::all_reduce(size(), inout, inout, reduction));
  }

  void all_reduce(const comm::Elements& inout, Reduction reduction = Reduction::sum) const {
    execute(calls::all_reduce(inout, reduction));
  }
  Request all_reduce_async(const comm::Elements& inout, Reduction reduction = Reduction::sum) const {
    return start(calls::all_reduce(inout, reduction));
  }

  /// out[i] = reduction over the ranks of their in[i]. `out` may be `in`. Operands of collectives that overlap in another way
  /// throw UsageError.
  template <Contiguous In, MutableContiguous Out>
  void all_reduce(const In& in, Out&& out, Reduction reduction = Reduction::sum) const {
    execute(calls::all_reduce(size(), in, out, reduction));
  }
  template <Contiguous In, MutableContiguous Out>
  Request all_reduce_async(const In& in, Out&& out, Reduction reduction = Reduction::sum) const {
    return start(calls::all_reduce(size(), in, out, reduction));
  }

  /// On the root, out[i] = reduction over the ranks of their in[i]; elsewhere `out` is not used and may be empty.
  template <Contiguous In, MutableContiguous Out>
  void reduce(const In& in, Out&& out, int root, Reduction reduction = Reduction::sum) const {
    execute(calls::reduce(*this, in, out, root, reduction));
  }
  template <Contiguous In, MutableContiguous Out>
  Request reduce_async(const In& in, Out&& out, int root, Reduction reduction = Reduction::sum) const {
    return start(calls::reduce(*this, in, out, root, reduction));
  }

  /// out[i] = reduction over the ranks of their in[rank * n + i]: [size * n] -> [n]. `out` may be this rank's piece of `in`.
  template <Contiguous In, MutableContiguous Out>
  void reduce_scatter(const In& in, Out&& out, Reduction reduction = Reduction::sum) const {
    execute(calls::reduce_scatter(*this, in, out, reduction));
  }
  template <Contiguous In, MutableContiguous Out>
  Request reduce_scatter_async(const In& in, Out&& out, Reduction reduction = Reduction::sum) const {
    return start(calls::reduce_scatter(*this, in, out, reduction));
  }

  /// A reduce_scatter with pieces of counts[r] elements for rank r: [sum of counts] -> [counts[rank]].
  template <Contiguous In, MutableContiguous Out>
  void reduce_scatter_v(const In& in, Out&& out, std::span<const std::size_t> counts,
                        Reduction reduction = Reduction::sum) const {
    execute(calls::reduce_scatter_v(*this, in, out, counts, reduction));
  }
  template <Contiguous In, MutableContiguous Out>
  Request reduce_scatter_v_async(const In& in, Out&& out, std::span<const std::size_t> counts,
                                 Reduction reduction = Reduction::sum) const {
    return start(calls::reduce_scatter_v(*this, in, out, counts, reduction));
  }

  /// out = the ranks' inputs, one after the other: [n] -> [size * n]. `in` may be this rank's piece of `out`.
  template <Contiguous In, MutableContiguous Out>
  void all_gather(const In& in, Out&& out) const {
    execute(calls::all_gather(*this, in, out));
  }
  template <Contiguous In, MutableContiguous Out>
  Request all_gather_async(const In& in, Out&& out) const {
    return start(calls::all_gather(*this, in, out));
  }

  /// An all_gather with pieces of counts[r] elements from rank r: [counts[rank]] -> [sum of counts].
  template <Contiguous In, MutableContiguous Out>
  void all_gather_v(const In& in, Out&& out, std::span<const std::size_t> counts) const {
    execute(calls::all_gather_v(*this, in, out, counts));
  }
  template <Contiguous In, MutableContiguous Out>
  Request all_gather_v_async(const In& in, Out&& out, std::span<const std::size_t> counts) const {
    return start(calls::all_gather_v(*this, in, out, counts));
  }

  /// Copies the root's inout to every rank's inout.
  template <MutableContiguous X>
  void broadcast(X&& inout, int root) const {
    execute(calls::broadcast(size(), inout, root));
  }
  template <MutableContiguous X>
  Request broadcast_async(X&& inout, int root) const {
    return start(calls::broadcast(size(), inout, root));
  }

  /// On the root, out = the ranks' inputs, one after the other: [n] -> [size * n]; elsewhere `out` may be empty.
  template <Contiguous In, MutableContiguous Out>
  void gather(const In& in, Out&& out, int root) const {
    execute(calls::gather(*this, in, out, root));
  }
  template <Contiguous In, MutableContiguous Out>
  Request gather_async(const In& in, Out&& out, int root) const {
    return start(calls::gather(*this, in, out, root));
  }

  /// out = this rank's piece of the root's input: [size * n] -> [n]; elsewhere `in` may be empty.
  template <Contiguous In, MutableContiguous Out>
  void scatter(const In& in, Out&& out, int root) const {
    execute(calls::scatter(*this, in, out, root));
  }
  template <Contiguous In, MutableContiguous Out>
  Request scatter_async(const In& in, Out&& out, int root) const {
    return start(calls::scatter(*this, in, out, root));
  }

  /// Piece r of `in` goes to rank r, piece r of `out` comes from it: [size * n] -> [size * n]. Not in place.
  template <Contiguous In, MutableContiguous Out>
  void all_to_all(const In& in, Out&& out) const {
    execute(calls::all_to_all(size(), in, out));
  }
  template <Contiguous In, MutableContiguous Out>
  Request all_to_all_async(const In& in, Out&& out) const {
    return start(calls::all_to_all(size(), in, out));
  }

  /// An all_to_all with send_counts[r] elements for rank r and receive_counts[r] elements from it. Not in place.
  template <Contiguous In, MutableContiguous Out>
  void all_to_all_v(const In& in, std::span<const std::size_t> send_counts, Out&& out,
                    std::span<const std::size_t> receive_counts) const {
    execute(calls::all_to_all_v(size(), in, send_counts, out, receive_counts));
  }
  template <Contiguous In, MutableContiguous Out>
  Request all_to_all_v_async(const In& in, std::span<const std::size_t> send_counts, Out&& out,
                             std::span<const std::size_t> receive_counts) const {
    return start(calls::all_to_all_v(size(), in, send_counts, out, receive_counts));
  }

  /// Sends a message to rank `to`. Messages of one tag between two ranks arrive in the order sent. May wait for the receiver.
  template <Contiguous X>
  void send(const X& x, int to, int tag = 0) const {
    execute(calls::send(size(), x, to, tag));
  }
  template <Contiguous X>
  Request send_async(const X& x, int to, int tag = 0) const {
    return start(calls::send(size(), x, to, tag));
  }

  /// Receives the message of rank `from`, which must have the type and count of `x`.
  template <MutableContiguous X>
  void recv(X&& x, int from, int tag = 0) const {
    execute(calls::recv(size(), x, from, tag));
  }
  template <MutableContiguous X>
  Request recv_async(X&& x, int from, int tag = 0) const {
    return start(calls::recv(size(), x, from, tag));
  }

  /// Sends `in` to rank `to` and receives `out` from rank `from` at the same time, so that a ring of such calls cannot deadlock.
  template <Contiguous In, MutableContiguous Out>
  void send_recv(const In& in, int to, Out&& out, int from, int tag = 0) const {
    Request receive = recv_async(out, from, tag);
    Request sending = send_async(in, to, tag);
    receive.wait();
    sending.wait();
  }

  // The same operations on an execution-space instance.
  template <detail::ExecutionSpace E, class... A>
  void all_reduce(const E& exec, A&&... arguments) const {
    on(exec).all_reduce(std::forward<A>(arguments)...);
  }
  template <detail::ExecutionSpace E, class... A>
  Request all_reduce_async(const E& exec, A&&... arguments) const {
    return on(exec).all_reduce_async(std::forward<A>(arguments)...);
  }
  template <detail::ExecutionSpace E, class... A>
  void reduce(const E& exec, A&&... arguments) const {
    on(exec).reduce(std::forward<A>(arguments)...);
  }
  template <detail::ExecutionSpace E, class... A>
  Request reduce_async(const E& exec, A&&... arguments) const {
    return on(exec).reduce_async(std::forward<A>(arguments)...);
  }
  template <detail::ExecutionSpace E, class... A>
  void reduce_scatter(const E& exec, A&&... arguments) const {
    on(exec).reduce_scatter(std::forward<A>(arguments)...);
  }
  template <detail::ExecutionSpace E, class... A>
  Request reduce_scatter_async(const E& exec, A&&... arguments) const {
    return on(exec).reduce_scatter_async(std::forward<A>(arguments)...);
  }
  template <detail::ExecutionSpace E, class... A>
  void reduce_scatter_v(const E& exec, A&&... arguments) const {
    on(exec).reduce_scatter_v(std::forward<A>(arguments)...);
  }
  template <detail::ExecutionSpace E, class... A>
  Request reduce_scatter_v_async(const E& exec, A&&... arguments) const {
    return on(exec).reduce_scatter_v_async(std::forward<A>(arguments)...);
  }
  template <detail::ExecutionSpace E, class... A>
  void all_gather(const E& exec, A&&... arguments) const {
    on(exec).all_gather(std::forward<A>(arguments)...);
  }
  template <detail::ExecutionSpace E, class... A>
  Request all_gather_async(const E& exec, A&&... arguments) const {
    return on(exec).all_gather_async(std::forward<A>(arguments)...);
  }
  template <detail::ExecutionSpace E, class... A>
  void all_gather_v(const E& exec, A&&... arguments) const {
    on(exec).all_gather_v(std::forward<A>(arguments)...);
  }
  template <detail::ExecutionSpace E, class... A>
  Request all_gather_v_async(const E& exec, A&&... arguments) const {
    return on(exec).all_gather_v_async(std::forward<A>(arguments)...);
  }
  template <detail::ExecutionSpace E, class... A>
  void broadcast(const E& exec, A&&... arguments) const {
    on(exec).broadcast(std::forward<A>(arguments)...);
  }
  template <detail::ExecutionSpace E, class... A>
  Request broadcast_async(const E& exec, A&&... arguments) const {
    return on(exec).broadcast_async(std::forward<A>(arguments)...);
  }
  template <detail::ExecutionSpace E, class... A>
  void gather(const E& exec, A&&... arguments) const {
    on(exec).gather(std::forward<A>(arguments)...);
  }
  template <detail::ExecutionSpace E, class... A>
  Request gather_async(const E& exec, A&&... arguments) const {
    return on(exec).gather_async(std::forward<A>(arguments)...);
  }
  template <detail::ExecutionSpace E, class... A>
  void scatter(const E& exec, A&&... arguments) const {
    on(exec).scatter(std::forward<A>(arguments)...);
  }
  template <detail::ExecutionSpace E, class... A>
  Request scatter_async(const E& exec, A&&... arguments) const {
    return on(exec).scatter_async(std::forward<A>(arguments)...);
  }
  template <detail::ExecutionSpace E, class... A>
  void all_to_all(const E& exec, A&&... arguments) const {
    on(exec).all_to_all(std::forward<A>(arguments)...);
  }
  template <detail::ExecutionSpace E, class... A>
  Request all_to_all_async(const E& exec, A&&... arguments) const {
    return on(exec).all_to_all_async(std::forward<A>(arguments)...);
  }
  template <detail::ExecutionSpace E, class... A>
  void all_to_all_v(const E& exec, A&&... arguments) const {
    on(exec).all_to_all_v(std::forward<A>(arguments)...);
  }
  template <detail::ExecutionSpace E, class... A>
  Request all_to_all_v_async(const E& exec, A&&... arguments) const {
    return on(exec).all_to_all_v_async(std::forward<A>(arguments)...);
  }
  template <detail::ExecutionSpace E, class... A>
  void send(const E& exec, A&&... arguments) const {
    on(exec).send(std::forward<A>(arguments)...);
  }
  template <detail::ExecutionSpace E, class... A>
  Request send_async(const E& exec, A&&... arguments) const {
    return on(exec).send_async(std::forward<A>(arguments)...);
  }
  template <detail::ExecutionSpace E, class... A>
  void recv(const E& exec, A&&... arguments) const {
    on(exec).recv(std::forward<A>(arguments)...);
  }
  template <detail::ExecutionSpace E, class... A>
  Request recv_async(const E& exec, A&&... arguments) const {
    return on(exec).recv_async(std::forward<A>(arguments)...);
  }

 private:
  // The result must not outlive the call for which it is made.
  template <class E>
  Communicator on(const E& exec) const {
    comm::StreamOrder order{&exec,
                            [](const void* instance) { static_cast<const E*>(instance)->fence("weft: before a collective"); }};
    if constexpr (requires { exec.cuda_stream(); })
      order.stream = [](const void* instance) -> void* { return static_cast<const E*>(instance)->cuda_stream(); };
    order.device = order_.device;
    return {group_, order};
  }
  comm::Call checked(comm::Call call, const comm::Flight& flight) const;
  void execute(const comm::Call& call) const;
  Request start(const comm::Call& call) const;

  std::shared_ptr<comm::Group> group_;
  comm::StreamOrder order_ = {};
};

/// The operations that code generic over communicators may use.
template <class C>
concept CommunicatorLike = std::copyable<C> && requires(const C& c, std::span<float> x, std::span<const float> in) {
  { c.rank() } -> std::same_as<int>;
  { c.size() } -> std::same_as<int>;
  { c.axis() } -> std::convertible_to<std::string_view>;
  { c.all_reduce(x, Reduction::sum) } -> std::same_as<void>;
  { c.all_reduce_async(x, Reduction::sum) } -> std::same_as<Request>;
  { c.all_gather(in, x) } -> std::same_as<void>;
  { c.reduce_scatter(in, x) } -> std::same_as<void>;
  { c.broadcast(x, 0) } -> std::same_as<void>;
  { c.send(in, 0) } -> std::same_as<void>;
  { c.recv(x, 0) } -> std::same_as<void>;
  { c.barrier() } -> std::same_as<void>;
  { c.split(0, 0, std::string()) } -> std::same_as<C>;
};
static_assert(CommunicatorLike<Communicator>);

}  // namespace weft

#ifndef WEFT_COMPILED
#include <weft/comm/communicator_impl.hpp>
#endif
