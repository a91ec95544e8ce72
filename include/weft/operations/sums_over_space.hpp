// SPDX-License-Identifier: Apache-2.0
#pragma once
// Sums over the ranks of the domain axes that cut a tensor: of statistics of images, and of their numbers of elements, since
// pieces may have different extents. Each rank gets the whole sum. Also the largest of the ranks' numbers.
//
//   sum_over_space<X, 2>(context, sums);                                  // sums of a rank's pixels become those of all pixels
//   const double pixels = count_over_space<X, 2>(context, here);

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include <weft/device/parallel_for.hpp>
#include <weft/kernels/along_dim.hpp>
#include <weft/tensor/tensor.hpp>

namespace weft::detail {

/// Whether a domain axis cuts dim `First` or a later one.
template <class P, int First>
inline constexpr bool cuts_space_from = is_domain_axis<typename P::axis>&& shard_dim<P> >= First;
/// Whether axes other than domain axes cut dim `First` or later ones.
template <class X, int First>
inline constexpr bool cut_otherwise_from = false;
template <class T, class E, class... P, int First>
inline constexpr bool cut_otherwise_from<Tensor<T, E, P...>, First> =
    ((!is_domain_axis<typename P::axis> && shard_dim<P> >= First) || ...);
/// Whether domain axes, and no others, cut images [samples, channels, ...].
template <class X>
inline constexpr bool cut_in_space = false;
template <class T, class E, class... P>
inline constexpr bool cut_in_space<Tensor<T, E, P...>> = (cuts_space_from<P, 2> || ...) &&
                                                         !cut_otherwise_from<Tensor<T, E, P...>, 2>;

/// Whether a domain axis, and no other, cuts dim `Dim`.
template <class X, int Dim>
inline constexpr bool cut_in_space_at = false;
template <class T, class E, class... P, int Dim>
inline constexpr bool cut_in_space_at<Tensor<T, E, P...>, Dim> = ((shard_dim<P> == Dim) || ...) &&
                                                                 ((shard_dim<P> != Dim || is_domain_axis<typename P::axis>)&&...);

/// f(communicator) for each domain axis of several ranks that cuts dim `First` of an X, or a later one.
template <class X, int First, class Context, class F>
void for_each_cut_of_space(const Context& context, F&& f) {
  Context::for_each_axis([&]<class A>(A axis) {
    if constexpr (cuts_space_from<placement_t<X, A>, First>)
      if (context.size(axis) > 1) f(context.comm(axis));
  });
}

/// Adds the numbers of all ranks of these axes up, in rank order.
template <class X, int First, class Context, AnyTensor S>
void sum_over_space(const Context& context, const S& numbers) {
  for_each_cut_of_space<X, First>(context, [&](const auto& comm) { comm.all_reduce(raw(numbers)); });
}
/// The sum of a number of elements. Exact up to 2^53.
template <class X, int First, class Context>
double count_over_space(const Context& context, std::size_t here) {
  double all = double(here);
  for_each_cut_of_space<X, First>(context, [&](const auto& comm) { comm.all_reduce(std::span<double>(&all, 1)); });
  return all;
}

/// The extent of the whole along dim `Dim`.
template <class X, int Dim, class Context>
double extent_over_space(const Context& context, std::size_t here) {
  double all = double(here);
  Context::for_each_axis([&]<class A>(A axis) {
    using P = placement_t<X, A>;
    if constexpr (cuts_space_from<P, Dim> && shard_dim<P> == Dim)
      if (context.size(axis) > 1) context.comm(axis).all_reduce(std::span<double>(&all, 1));
  });
  return all;
}

/// Whether one domain axis, and no other axis, cuts dim `Dim`, which is not the first, and that axis.
template <class X, int Dim>
inline constexpr bool cut_once_in_space_at = false;
template <class T, class E, class... P, int Dim>
inline constexpr bool cut_once_in_space_at<Tensor<T, E, P...>, Dim> = Dim > 0 && cut_in_space_at<Tensor<T, E, P...>, Dim> &&
                                                                      (0 + ... + int(shard_dim<P> == Dim)) == 1;
template <class X, int Dim>
struct AxisThatCuts;
template <class T, class E, class P, class... R, int Dim>
struct AxisThatCuts<Tensor<T, E, P, R...>, Dim> {
  using type = typename std::conditional_t<shard_dim<P> == Dim, std::type_identity<typename P::axis>,
                                           AxisThatCuts<Tensor<T, E, R...>, Dim>>::type;
};

/// The largest of the numbers that the ranks have, the first of equal ones, on every rank. The place of a number that another
/// rank has becomes -1.
template <class Comm, AnyTensor Y, AnyTensor N>
Y largest_of_ranks(const Comm& comm, const Y& own, const N& places) {
  using T = typename Y::value_type;
  const std::size_t ranks = std::size_t(comm.size()), count = own.size();
  Y largest(own.device(), own.shape());
  const decltype(raw(own)) all(own.device(), {ranks, count});
  const N found(own.device(), own.shape());
  comm.all_gather(raw(own), all);
  if (count == 0) return largest;
  kernels::max_along<T>(own.device(), {1, ranks, count}, all.data(), largest.data(), found.data());
  const std::int32_t here = std::int32_t(comm.rank());
  const std::int32_t* const rank = found.data();
  std::int32_t* const place = places.data();
  for_each_index(
      own.device(), {"elementwise", 3 * count * sizeof(std::int32_t)}, count, KOKKOS_LAMBDA(const std::size_t i) {
        if (rank[i] != here) place[i] = -1;
      });
  return largest;
}

}  // namespace weft::detail
