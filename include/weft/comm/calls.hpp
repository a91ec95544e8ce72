// SPDX-License-Identifier: Apache-2.0
#pragma once
// The conversion of typed arguments to a comm::Call. Every count and rank is checked here, once for all backends.
//
//   group.execute(calls::all_reduce(group.size(), in, out, Reduction::sum));

#include <cstddef>
#include <iterator>
#include <limits>
#include <numeric>
#include <span>
#include <type_traits>

#include <weft/comm/contiguous.hpp>
#include <weft/comm/operation.hpp>
#include <weft/comm/reduce.hpp>
#include <weft/core/checked.hpp>
#include <weft/core/error.hpp>

namespace weft::calls {

using comm::Call;
using comm::Operation;

namespace detail {

inline void expect(Operation operation, const char* what, std::size_t found, std::size_t expected) {
  if (found != expected)
    throw_error<ShapeError>({name_of(operation), ": ", what, " holds ", found, " elements, expected ", expected});
}

inline void expect_rank(Operation operation, const char* what, int rank, int size) {
  if (rank < 0 || rank >= size)
    throw_error<UsageError>({name_of(operation), ": ", what, " ", rank, " is not one of ", size, " ranks"});
}

template <class X>
void expect_contiguous(Operation operation, const X& x) {
  if constexpr (requires {
                  { x.span_is_contiguous() } -> std::convertible_to<bool>;
                }) {
    if (!x.span_is_contiguous())
      throw_error<ShapeError>({name_of(operation), ": the view has gaps between its elements; copy it first"});
  }
}

std::size_t total(Operation operation, const char* what, std::span<const std::size_t> counts, int size);

void expect_reducible(Operation operation, Reduction reduction, DataType type);
template <class T>
void expect_reducible(Operation operation, Reduction reduction) {
  expect_reducible(operation, reduction, data_type_of<T>);
}

/// Throws UsageError if the operands share memory in another way than the output beginning `apart` elements behind the input.
/// Other ranks would read what this one has overwritten.
void expect_no_overlap(const Call& call, std::size_t in, std::size_t out, std::ptrdiff_t apart);
/// The same for operations that are never in place.
inline constexpr std::ptrdiff_t never_in_place = std::numeric_limits<std::ptrdiff_t>::max();

template <class In, class Out>
Call call(Operation operation, const In& in, Out& out, std::size_t count) {
  require_unplaced<In, Out>();
  static_assert(std::is_same_v<weft::detail::scalar_t<const In>, weft::detail::scalar_t<Out>>,
                "a collective's input and output must have the same element type");
  static_assert(memory_kind_of<const In> == memory_kind_of<Out>,
                "a collective's input and output must lie in the same kind of memory");
  expect_contiguous(operation, in);
  expect_contiguous(operation, out);
  return {.operation = operation,
          .type = data_type_of<weft::detail::scalar_t<Out>>,
          .memory = memory_kind_of<Out>,
          .count = count,
          .input = std::data(in),
          .output = std::data(out)};
}
/// The same, of operands that may share memory only there.
template <class In, class Out>
Call call(Operation operation, const In& in, Out& out, std::size_t count, std::ptrdiff_t apart) {
  const Call made = call(operation, in, out, count);
  expect_no_overlap(made, std::size(in), std::size(out), apart);
  return made;
}
/// Elements before this rank's piece.
inline std::ptrdiff_t before(int rank, std::size_t count) { return std::ptrdiff_t(std::size_t(rank) * count); }
inline std::ptrdiff_t before(int rank, std::span<const std::size_t> counts) {
  return std::ptrdiff_t(std::accumulate(counts.begin(), counts.begin() + rank, std::size_t(0)));
}

}  // namespace detail

template <class In, class Out>
Call all_reduce(int, const In& in, Out& out, Reduction reduction) {
  detail::expect_reducible<weft::detail::scalar_t<Out>>(Operation::all_reduce, reduction);
  detail::expect(Operation::all_reduce, "the output", std::size(out), std::size(in));
  Call call = detail::call(Operation::all_reduce, in, out, std::size(in), 0);
  call.reduction = reduction;
  call.combine = &comm::combine<weft::detail::scalar_t<Out>>;
  return call;
}

Call all_reduce(const comm::Elements& inout, Reduction reduction);

template <class In, class Out>
Call reduce(const auto& communicator, const In& in, Out& out, int root, Reduction reduction) {
  detail::expect_rank(Operation::reduce, "root", root, communicator.size());
  detail::expect_reducible<weft::detail::scalar_t<Out>>(Operation::reduce, reduction);
  if (communicator.rank() == root) detail::expect(Operation::reduce, "the output", std::size(out), std::size(in));
  Call call = detail::call(Operation::reduce, in, out, std::size(in));
  if (communicator.rank() == root) detail::expect_no_overlap(call, std::size(in), std::size(out), 0);
  call.reduction = reduction;
  call.combine = &comm::combine<weft::detail::scalar_t<Out>>;
  call.root = root;
  return call;
}

template <class In, class Out>
Call reduce_scatter(const auto& communicator, const In& in, Out& out, Reduction reduction) {
  detail::expect_reducible<weft::detail::scalar_t<Out>>(Operation::reduce_scatter, reduction);
  detail::expect(Operation::reduce_scatter, "the input", std::size(in),
                 weft::detail::checked_multiply(std::size(out), std::size_t(communicator.size())));
  Call call =
      detail::call(Operation::reduce_scatter, in, out, std::size(out), detail::before(communicator.rank(), std::size(out)));
  call.reduction = reduction;
  call.combine = &comm::combine<weft::detail::scalar_t<Out>>;
  return call;
}

template <class In, class Out>
Call reduce_scatter_v(const auto& communicator, const In& in, Out& out, std::span<const std::size_t> counts,
                      Reduction reduction) {
  detail::expect_reducible<weft::detail::scalar_t<Out>>(Operation::reduce_scatter_v, reduction);
  detail::expect(Operation::reduce_scatter_v, "the input", std::size(in),
                 detail::total(Operation::reduce_scatter_v, "counts", counts, communicator.size()));
  detail::expect(Operation::reduce_scatter_v, "the output", std::size(out), counts[std::size_t(communicator.rank())]);
  Call call = detail::call(Operation::reduce_scatter_v, in, out, 0, detail::before(communicator.rank(), counts));
  call.reduction = reduction;
  call.combine = &comm::combine<weft::detail::scalar_t<Out>>;
  call.receive_counts = counts;
  return call;
}

template <class In, class Out>
Call all_gather(const auto& communicator, const In& in, Out& out) {
  detail::expect(Operation::all_gather, "the output", std::size(out),
                 weft::detail::checked_multiply(std::size(in), std::size_t(communicator.size())));
  return detail::call(Operation::all_gather, in, out, std::size(in), -detail::before(communicator.rank(), std::size(in)));
}

template <class In, class Out>
Call all_gather_v(const auto& communicator, const In& in, Out& out, std::span<const std::size_t> counts) {
  detail::expect(Operation::all_gather_v, "the output", std::size(out),
                 detail::total(Operation::all_gather_v, "counts", counts, communicator.size()));
  detail::expect(Operation::all_gather_v, "the input", std::size(in), counts[std::size_t(communicator.rank())]);
  Call call = detail::call(Operation::all_gather_v, in, out, 0, -detail::before(communicator.rank(), counts));
  call.receive_counts = counts;
  return call;
}

template <class X>
Call broadcast(int size, X& inout, int root) {
  detail::expect_rank(Operation::broadcast, "root", root, size);
  Call call = detail::call(Operation::broadcast, inout, inout, std::size(inout));
  call.root = root;
  return call;
}

template <class In, class Out>
Call gather(const auto& communicator, const In& in, Out& out, int root) {
  detail::expect_rank(Operation::gather, "root", root, communicator.size());
  if (communicator.rank() == root)
    detail::expect(Operation::gather, "the output", std::size(out),
                   weft::detail::checked_multiply(std::size(in), std::size_t(communicator.size())));
  Call call = detail::call(Operation::gather, in, out, std::size(in));
  if (communicator.rank() == root)
    detail::expect_no_overlap(call, std::size(in), std::size(out), -detail::before(root, std::size(in)));
  call.root = root;
  return call;
}

template <class In, class Out>
Call scatter(const auto& communicator, const In& in, Out& out, int root) {
  detail::expect_rank(Operation::scatter, "root", root, communicator.size());
  if (communicator.rank() == root)
    detail::expect(Operation::scatter, "the input", std::size(in),
                   weft::detail::checked_multiply(std::size(out), std::size_t(communicator.size())));
  Call call = detail::call(Operation::scatter, in, out, std::size(out));
  if (communicator.rank() == root)
    detail::expect_no_overlap(call, std::size(in), std::size(out), detail::before(root, std::size(out)));
  call.root = root;
  return call;
}

template <class In, class Out>
Call all_to_all(int size, const In& in, Out& out) {
  detail::expect(Operation::all_to_all, "the output", std::size(out), std::size(in));
  const std::size_t piece = std::size(in) / std::size_t(size);
  detail::expect(Operation::all_to_all, "the input", std::size(in), piece * std::size_t(size));
  return detail::call(Operation::all_to_all, in, out, piece, detail::never_in_place);
}

template <class In, class Out>
Call all_to_all_v(int size, const In& in, std::span<const std::size_t> send_counts, Out& out,
                  std::span<const std::size_t> receive_counts) {
  detail::expect(Operation::all_to_all_v, "the input", std::size(in),
                 detail::total(Operation::all_to_all_v, "send_counts", send_counts, size));
  detail::expect(Operation::all_to_all_v, "the output", std::size(out),
                 detail::total(Operation::all_to_all_v, "receive_counts", receive_counts, size));
  Call call = detail::call(Operation::all_to_all_v, in, out, 0, detail::never_in_place);
  call.send_counts = send_counts;
  call.receive_counts = receive_counts;
  return call;
}

template <class X>
Call send(int size, const X& x, int to, int tag) {
  require_unplaced<X>();
  detail::expect_rank(Operation::send, "receiver", to, size);
  detail::expect_contiguous(Operation::send, x);
  return {.operation = Operation::send,
          .type = data_type_of<weft::detail::scalar_t<const X>>,
          .memory = memory_kind_of<const X>,
          .root = to,
          .tag = tag,
          .count = std::size(x),
          .input = std::data(x)};
}

template <class X>
Call recv(int size, X& x, int from, int tag) {
  require_unplaced<X>();
  detail::expect_rank(Operation::recv, "sender", from, size);
  detail::expect_contiguous(Operation::recv, x);
  return {.operation = Operation::recv,
          .type = data_type_of<weft::detail::scalar_t<X>>,
          .memory = memory_kind_of<X>,
          .root = from,
          .tag = tag,
          .count = std::size(x),
          .output = std::data(x)};
}

}  // namespace weft::calls

#ifndef WEFT_COMPILED
#include <weft/comm/calls_impl.hpp>
#endif
