// SPDX-License-Identifier: Apache-2.0
#pragma once
// Rows of a tensor by integer ids, in the order of the ids. An axis may cut the ids (each rank gathers its own) or inner dims of
// the tensor. An axis of samples, such as dp, may cut rows and ids: each sample has its own graph, and a rank's ids count its
// own rows.
//
//   auto chosen = index_select(x, ids);   // [ids, ...] of x [rows, ...]

#include <cstdint>
#include <limits>
#include <type_traits>

#include <weft/autograd/variable.hpp>
#include <weft/kernels/elementwise.hpp>
#include <weft/kernels/embedding.hpp>
#include <weft/operations/arithmetic.hpp>
#include <weft/operations/rules.hpp>
#include <weft/tensor/tensor.hpp>

namespace weft {

namespace detail {

template <class PX, class PI>
struct SelectRule {
  static constexpr bool entered = !(kind_of<PX> == Kind::invariant && shard_dim<PI> == 0),
                        samples = is_data_axis<typename PX::axis> && shard_dim<PX> == 0 && shard_dim<PI> == 0,
                        fits = samples || (shard_dim<PX> != 0 && kind_of<PI> != Kind::partial &&
                                           (is_whole<PI> || (shard_dim<PI> == 0 && kind_of<PX> == Kind::replicated)));
  using type = std::conditional_t<shard_dim<PI> == 0, PI, PX>;
};
template <class X, class I>
struct Selected {
  static constexpr bool axes = false, entered = true, fits = true;
  using type = X;
};
template <class T, class I, class E, class... PX, class... PI>
requires(std::is_same_v<Axes<typename PX::axis...>, Axes<typename PI::axis...>>) struct Selected<Tensor<T, E, PX...>,
                                                                                                 Tensor<I, E, PI...>> {
  static constexpr bool axes = true, entered = (SelectRule<PX, PI>::entered && ...),
                        fits = !entered || (SelectRule<PX, PI>::fits && ...);
  using type = Tensor<T, E, typename SelectRule<PX, PI>::type...>;
};

template <class N, class Exec>
void copy_ids(Device<Exec>& device, std::size_t n, const N* from, std::int32_t* to) {
  for_each_index(
      device, {"copy", n * (sizeof(N) + sizeof(std::int32_t))}, n,
      KOKKOS_LAMBDA(const std::size_t i) { to[i] = std::int32_t(from[i]); });
}

/// The words of the message for an id that is no row.
struct IdWords {
  const char *operation, *id, *at, *rows;
};
/// The ids as std::int32_t. Throws UsageError unless each is in [0, rows), in the words of whoever asks; on a GPU, whose ids the
/// host does not see, a wrong id gives a row of zeros.
template <class I>
auto ids_of(const I& ids, std::size_t rows, const IdWords& words) {
  using N = typename I::value_type;
  static_assert(std::is_integral_v<N>, "weft: ids and labels are whole numbers, such as std::int32_t");
  if constexpr (std::is_integral_v<N> && on_host<typename I::execution_space>) {
    const N* data = ids.data();
    const std::size_t known = ids.device().rehearsal() == nullptr ? ids.size() : 0;
    for (std::size_t i = 0; i < known; ++i)
      if (std::cmp_less(data[i], 0) || std::cmp_greater_equal(data[i], rows))
        throw_error<UsageError>({words.operation, ": ", words.id, " ", data[i], words.at, i, " is not one of ", rows, words.rows,
                                 ", 0 to ", rows - 1});
  }
  if constexpr (std::is_same_v<N, std::int32_t>) {
    return ids;
  } else if constexpr (!std::is_integral_v<N>) {
    return with_scalar_t<I, std::int32_t>();  // one error is enough
  } else {
    with_scalar_t<I, std::int32_t> out(ids.device(), ids.shape());
    copy_ids(ids.device(), ids.size(), static_cast<const N*>(ids.data()), out.data());
    return out;
  }
}

inline constexpr IdWords select_words = {"index_select", "id", " at ", " rows"};

// Rows of g added to the rows that the ids name, in a tensor of this shape.
template <class X, class I, class G>
gradient_t<X> select_gradient(const Shape& x, const I& ids, const G& g) {
  using T = typename X::value_type;
  using A = accumulate_t<T>;
  require_gradient_of<typename Selected<X, I>::type, G>();
  const std::size_t rows = x[0], width = rows == 0 ? 0 : x.size() / rows;
  const auto wanted = ids_of(ids, rows, select_words);
  with_scalar_t<gradient_t<X>, A> sums(g.device(), x);
  fill_zero(g.device(), sums.data(), sums.size());
  kernels::embedding_backward<T>(g.device(), wanted.size(), width, wanted.data(), g.data(), 0, rows, sums.data());
  if constexpr (std::is_same_v<T, A>) {
    return sums;
  } else {
    gradient_t<X> out(g.device(), x);
    kernels::cast<A, T>(g.device(), sums.size(), sums.data(), out.data());
    return out;
  }
}

}  // namespace detail

namespace operations {

/// Row ids[i] of x [rows, ...] as row i of the result [ids, ...]; ids [ids] are whole numbers of any type. On each axis x's rows
/// are whole and so are the ids, or x is Replicated and the ids are cut (then the result is). An axis of samples, such as dp, may
/// cut both: ids then count the rows of this rank's samples, of its micro-batch. Throws UsageError with the first id that is no
/// row of x. The gradient is index_select_gradient(x, ids, g).
template <AnyTensor X, AnyTensor I>
auto index_select(const X& x, const I& ids) {
  using S = detail::Selected<X, I>;
  static_assert(S::axes, "weft: index_select: the tensor and the ids name different axes, or lie on different devices");
  static_assert(S::entered,
                "weft: index_select: an axis cuts the ids, and the tensor is Invariant on it: enter the parallel region first, "
                "to<Replicated<axis>>(x), on tensors (context, x), or its gradient loses a sum");
  static_assert(
      S::fits,
      "weft: index_select: an axis cuts the tensor's rows, so a rank lacks those that its ids name, or the ids lie in no "
      "way that gathers: gather the rows, to<Replicated<axis>>(x), on tensors (context, x), or use Embedding, which sums over "
      "the ranks; where dp cuts the samples, cut the ids too, to<Shard<dp, 0>>(ids), each rank's ids for its own rows");
  if constexpr (!S::axes || !S::entered || !S::fits) {
    return x;
  } else {
    if (x.shape().rank() == 0 || ids.shape().rank() != 1)
      throw_error<ShapeError>({detail::call_text("index_select", {x, ids}), ": expected ids of one dim"});
    const std::size_t rows = x.shape()[0], count = ids.size();
    const auto wanted = detail::ids_of(ids, rows, detail::select_words);
    Shape shape = x.shape();
    shape[0] = count;
    shape.set_sharding(0, ids.shape().sharding(0));
    typename S::type out(x.device(), shape);
    using T = typename X::value_type;
    const std::size_t width = rows == 0 ? 0 : x.size() / rows;
    kernels::embedding_forward<T>(x.device(), count, width, wanted.data(), x.data(), 0, rows, out.data());
    return out;
  }
}
/// The gradient of x: row i of g [ids, ...] is added to row ids[i], in the order of the ids, in accumulate_t: the same bits in
/// every run and for any number of threads.
template <AnyTensor X, AnyTensor I, AnyTensor G>
gradient_t<X> index_select_gradient(const X& x, const I& ids, const G& g) {
  return detail::select_gradient<X>(x.shape(), ids, g);
}

/// The same on Variables; the ids are a constant.
template <class C, class X, class I>
auto index_select(const Variable<C, X>& x, const Variable<C, I>& ids) {
  using S = detail::Selected<X, I>;
  auto y = index_select(x.value(), ids.value());
  if constexpr (!S::axes || !S::entered || !S::fits) return detail::AlreadyRefused();
  else
    return detail::record_by_gradient(x, std::move(y), [shape = x.shape(), ids = ids.value()](const auto& g) {
      return detail::select_gradient<X>(shape, ids, g);
    });
}

}  // namespace operations

}  // namespace weft
