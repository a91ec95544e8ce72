// SPDX-License-Identifier: Apache-2.0
#pragma once
// The exchange of rows with the ranks that hold their experts (GShard, arXiv:2006.16668): all-to-all over ep and all-gather over
// etp, and the reverse on the way back. Each is the backward of the other. A forward and its backward share the tables.
//
//   Exchange<Exec> exchange(context, device, counts, grain);
//   const auto here = exchange.to_experts(context, packed);

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <type_traits>
#include <vector>

#include <weft/context/context.hpp>
#include <weft/context/expert_mesh.hpp>
#include <weft/kernels/routing.hpp>
#include <weft/nn/router.hpp>

namespace weft::detail {

// The number of rows that each rank sends, and the order by expert of those that arrive.
struct ExchangeTables {
  std::vector<std::size_t> send, receive;  // [ep] rows
  std::vector<std::size_t> gathered;       // [etp] rows of each rank of etp
  std::vector<std::uint64_t> counts;       // [experts here, terms] rows, padding included
  std::vector<std::int32_t> sorted;        // [rows of experts here]: index among the received rows; -1: zeros
  std::vector<std::int32_t> back;          // [received rows]: index among the sorted ones
};

// `counts` [experts]: rows that this rank sends. Rows are received as [etp][ep][expert here], and sorted by expert, then term,
// then source. ranks_of_a_term neighbouring ranks of ep x etp form a term.
ExchangeTables exchange_tables(const Communicator& ep_ranks, const Communicator& etp_ranks,
                               const std::vector<std::uint64_t>& counts, std::size_t grain, std::size_t ranks_of_a_term);

inline std::vector<std::size_t> times_width(std::vector<std::size_t> rows, std::size_t width) {
  for (std::size_t& count : rows) count *= width;
  return rows;
}

/// The exchange, on the expert mesh, of rows sorted by expert between the ranks of the tokens and those of the experts.
template <class Exec>
class Exchange {
  using Indices = Tensor<std::int32_t, Exec>;

 public:
  /// `counts` [experts]: the number of this rank's rows for each expert, where they are padded with zeros to a multiple of
  /// `grain`. Collective over ep and etp. If terms are separate (Environment::separates_terms), the rows of each data-parallel
  /// rank are stored and padded separately, as on a single rank.
  template <class Context>
  Exchange(const Context& context, Device<Exec>& device, const std::vector<std::uint64_t>& counts, std::size_t grain)
      : tables_(exchange_tables(context.comm(ep{}), context.comm(etp{}), counts, grain, ranks_of_a_term(context))),
        sorted_(to_device<std::int32_t>(device, {tables_.sorted.size()}, tables_.sorted)),
        back_(to_device<std::int32_t>(device, {tables_.back.size()}, tables_.back)) {}

  /// The number of rows of each expert here; for separate terms, of each term in order.
  const std::vector<std::uint64_t>& counts() const { return tables_.counts; }

  template <class T>
  using Sent = Tensor<T, Exec, Shard<edp, 0>, Shard<ep, 0>, Shard<etp, 0>>;
  template <class T>
  using Here = Tensor<T, Exec, Shard<edp, 0>, Replicated<etp>>;
  template <class T>
  using Terms = Tensor<T, Exec, Shard<edp, 0>, Partial<etp>>;

  /// [rows sent, width] -> [rows of the experts here, width], the same on every rank of etp.
  template <class Context, class T>
  Here<T> to_experts(const Context& context, const Sent<T>& x) const {
    auto& device = x.device();
    const std::size_t width = x.columns(), received = sum(tables_.receive);
    Sent<T> mine = x;
    if (context.size(ep{}) > 1) {
      mine = Sent<T>(device, {received, width});
      context.comm(ep{}).all_to_all_v(elements(x), times_width(tables_.send, width), elements(mine),
                                      times_width(tables_.receive, width));
    }
    if (context.size(etp{}) > 1) {
      Sent<T> all(device, {tables_.back.size(), width});
      context.comm(etp{}).all_gather_v(elements(mine), elements(all), times_width(tables_.gathered, width));
      mine = all;
    }
    return reorder<Here<T>>(mine, sorted_);
  }

  /// [rows of the experts here, width], terms of a sum over etp, -> [rows sent, width].
  template <class Context, class T>
  Sent<T> from_experts(const Context& context, const Terms<T>& y) const {
    auto& device = y.device();
    const std::size_t width = y.columns(), received = sum(tables_.receive);
    Sent<T> mine = reorder<Sent<T>>(y, back_);
    if (context.size(etp{}) > 1) {
      Sent<T> summed(device, {received, width});
      context.comm(etp{}).reduce_scatter_v(elements(mine), elements(summed), times_width(tables_.gathered, width));
      mine = summed;
    }
    if (context.size(ep{}) > 1) {
      Sent<T> back(device, {sum(tables_.send), width});
      context.comm(ep{}).all_to_all_v(elements(mine), times_width(tables_.receive, width), elements(back),
                                      times_width(tables_.send, width));
      mine = back;
    }
    return mine;
  }

 private:
  // The number of ranks of ep x etp with rows of one micro-batch. Dense ranks have the same order, dp outermost.
  template <class Context>
  static std::size_t ranks_of_a_term(const Context& context) {
    const std::size_t all = context.size(ep{}) * context.size(etp{}), one = context.size(cp{}) * context.size(tp{});
    return context.env.separates_terms && all % one == 0 ? one : all;
  }
  static std::size_t sum(const std::vector<std::size_t>& rows) {
    return std::accumulate(rows.begin(), rows.end(), std::size_t(0));
  }
  template <class X>
  static auto elements(const X& x) {
    return std::span<typename X::value_type>(x.data(), x.size());
  }
  template <class Y, class X>
  static Y reorder(const X& x, const Indices& order) {
    Y y(x.device(), {order.size(), x.columns()});
    kernels::gather_rows<typename X::value_type>(x.device(), y.rows(), x.columns(), order.data(), 1, x.data(), nullptr, y.data());
    return y;
  }

  ExchangeTables tables_;
  Indices sorted_, back_;
};

}  // namespace weft::detail

#ifndef WEFT_COMPILED
#include <weft/nn/expert_exchange_impl.hpp>
#endif
