// SPDX-License-Identifier: Apache-2.0
#pragma once
// Rows of a tensor by integer ids, in the order of the ids. An axis may cut the ids (each rank gathers its own) or inner dims of
// the tensor. An axis of samples, such as dp, may cut rows and ids: each sample has its own graph, and a rank's ids count its
// own rows. Any axis may do so if the program states that the ids are local.
//
//   auto chosen = index_select(x, ids);              // [ids, ...] of x [rows, ...]
//   auto near = index_select(x, ids, local_ids);     // ids of the rows of this rank

#include <cstdint>
#include <type_traits>

#include <weft/autograd/variable.hpp>
#include <weft/kernels/elementwise.hpp>
#include <weft/kernels/embedding.hpp>
#include <weft/operations/arithmetic.hpp>
#include <weft/operations/rules.hpp>
#include <weft/tensor/tensor.hpp>

namespace weft {

/// The rows that ids count. CommonIds: all rows, and along an axis of samples, such as dp, the rows of this rank's samples.
/// LocalIds: the rows of this rank along every axis that cuts them, such as a part of a graph that has no edges to other parts.
struct CommonIds {
  static constexpr bool local = false;
};
/// The type of local_ids.
struct LocalIds {
  static constexpr bool local = true;
};
/// Last argument of index_select and of operations over segments: ids count the rows of this rank along every axis.
inline constexpr LocalIds local_ids;

namespace detail {

template <class L>
inline constexpr bool is_id_scope = std::is_same_v<L, CommonIds> || std::is_same_v<L, LocalIds>;
template <class L>
concept IdScope = is_id_scope<L>;

/// Whether ids on this axis count the rows of one rank.
template <class PX, class PI, class L>
inline constexpr bool counts_local_rows = (L::local || is_data_axis<typename PX::axis>)&&shard_dim<PX> == 0 && shard_dim<PI> == 0;

template <class PX, class PI, class L>
struct SelectRule {
  static constexpr bool entered = !(kind_of<PX> == Kind::invariant && shard_dim<PI> == 0),
                        fits = counts_local_rows<PX, PI, L> ||
                               (shard_dim<PX> != 0 && kind_of<PI> != Kind::partial &&
                                (is_whole<PI> || (shard_dim<PI> == 0 && kind_of<PX> == Kind::replicated)));
  using type = std::conditional_t<shard_dim<PI> == 0, PI, PX>;
};
template <class X, class I, class L = CommonIds>
struct Selected {
  static constexpr bool axes = false, entered = true, fits = true;
  using type = X;
};
template <class T, class I, class E, class... PX, class... PI, class L>
requires(std::is_same_v<Axes<typename PX::axis...>, Axes<typename PI::axis...>>) struct Selected<Tensor<T, E, PX...>,
                                                                                                 Tensor<I, E, PI...>, L> {
  static constexpr bool axes = true, entered = (SelectRule<PX, PI, L>::entered && ...),
                        fits = !entered || (SelectRule<PX, PI, L>::fits && ...);
  using type = Tensor<T, E, typename SelectRule<PX, PI, L>::type...>;
};

/// The ids of a graph's edges count the rows of Ghosts<A>, so rows added by them are GhostTerms<A> (operations/graph.hpp).
template <class A>
struct GhostIds {
  static constexpr bool local = true;
};
template <class A>
inline constexpr bool is_id_scope<GhostIds<A>> = true;
template <class A, class PI, class L>
struct SelectRule<Ghosts<A>, PI, L> {
  static constexpr bool entered = true, fits = std::is_same_v<PI, Shard<A, 0>>;
  using type = PI;
};
/// The scope of scatter_add in the gradient of index_select(x, ids, L()), which adds to a gradient of X.
template <class X, class L>
struct GradientScope {
  using type = L;
};
template <class T, class E, class P, class... R, class L>
struct GradientScope<Tensor<T, E, P, R...>, L> {
  using type = typename std::conditional_t<kind_of<P> == Kind::ghosts, std::type_identity<GhostIds<typename P::axis>>,
                                           GradientScope<Tensor<T, E, R...>, L>>::type;
};

inline constexpr std::int64_t most_rows = 2147483647;  // that ids can name: std::int32_t
// An id that std::int32_t does not hold becomes -1, which is no row.
template <class N, class Exec>
void copy_ids(Device<Exec>& device, std::size_t n, const N* from, std::int32_t* to) {
  for_each_index(
      device, {"copy", n * (sizeof(N) + sizeof(std::int32_t))}, n, KOKKOS_LAMBDA(const std::size_t i) {
        const std::int64_t id = std::int64_t(from[i]);
        to[i] = id >= 0 && id <= most_rows ? std::int32_t(id) : -1;
      });
}

/// The words of the message for an id that is no row.
struct IdWords {
  const char *operation, *id, *at, *rows, *hint = "";
};
/// The ids as std::int32_t. Throws UsageError unless each is in [0, rows), in the words of whoever asks; on a GPU, whose ids the
/// host does not see, a wrong id gives a row of zeros. Throws ShapeError for more rows than ids can name.
template <class I>
auto ids_of(const I& ids, std::size_t rows, const IdWords& words) {
  using N = typename I::value_type;
  static_assert(std::is_integral_v<N>, "weft: ids and labels are whole numbers, such as std::int32_t");
  if (rows > std::size_t(most_rows))
    throw_error<ShapeError>({words.operation, ": ", rows, words.rows, ", and ids name at most ", most_rows});
  if constexpr (std::is_integral_v<N> && on_host<typename I::execution_space>) {
    const N* data = ids.data();
    const std::size_t known = ids.device().rehearsal() == nullptr ? ids.size() : 0;
    for (std::size_t i = 0; i < known; ++i)
      if (std::cmp_less(data[i], 0) || std::cmp_greater_equal(data[i], rows))
        throw_error<UsageError>({words.operation, ": ", words.id, " ", data[i], words.at, i, " is not one of ", rows, words.rows,
                                 rows == 0 ? std::string() : weft::detail::joined({", 0 to ", rows - 1}), words.hint});
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

/// Those of index_select, whose local ids are often ids of a whole graph.
template <class L>
inline constexpr IdWords select_words = {
    "index_select", "id", " at ", " rows",
    std::is_same_v<L, LocalIds>
        ? ", of this rank, as local_ids counts them: nodes of other ranks come by to<Ghosts<axis>>(x, graph), "
          "and graph.from counts them"
        : ""};

// The elements of a row.
inline std::size_t row_width(const Shape& x) {
  std::size_t width = 1;
  for (std::size_t dim = 1; dim < x.rank(); ++dim) width *= x[dim];
  return width;
}
// Row i of x added to row ids[i] of a Y of this shape, in the order of the ids, in accumulate_t.
template <class Y, class I, class X>
with_scalar_t<Y, accumulate_t<typename X::value_type>> sums_by_id(const Shape& y, const I& ids, const X& x) {
  using T = typename X::value_type;
  with_scalar_t<Y, accumulate_t<T>> sums(x.device(), y);
  fill_zero(x.device(), sums.data(), sums.size());
  kernels::embedding_backward<T>(x.device(), ids.size(), row_width(y), ids.data(), static_cast<const T*>(x.data()), 0, y[0],
                                 sums.data());
  return sums;
}
// Sums in the element type of Y.
template <class Y, class S>
Y rounded_sums(const S& sums) {
  if constexpr (std::is_same_v<Y, S>) {
    return sums;
  } else {
    Y out(sums.device(), sums.shape());
    kernels::cast<typename S::value_type, typename Y::value_type>(sums.device(), sums.size(), sums.data(), out.data());
    return out;
  }
}

// Rows of g added to the rows that the ids name, in a tensor of this shape.
template <class X, class L = CommonIds, class I, class G>
gradient_t<X> select_gradient(const Shape& x, const I& ids, const G& g) {
  require_gradient_of<typename Selected<X, I, L>::type, G>();
  return rounded_sums<gradient_t<X>>(sums_by_id<gradient_t<X>>(x, ids_of(ids, x[0], select_words<L>), g));
}

}  // namespace detail

namespace operations {

/// Row ids[i] of x [rows, ...] as row i of the result [ids, ...]; ids [ids] are whole numbers of any type. On each axis x's rows
/// are whole and so are the ids, or x is Replicated and the ids are cut (then the result is). An axis of samples, such as dp, may
/// cut both: ids then count the rows of this rank's samples, of its micro-batch. Throws UsageError with the first id that is no
/// row of x; on a GPU, whose ids the host does not see, such a row is 0. With local_ids any axis may cut both: the program states
/// that no id counts a row of another rank, which weft sees only if the id is beyond the rows of this rank. The gradient is
/// index_select_gradient(x, ids, g).
template <AnyTensor X, AnyTensor I, detail::IdScope L = CommonIds>
auto index_select(const X& x, const I& ids, L = {}) {
  using S = detail::Selected<X, I, L>;
  static_assert(S::axes, "weft: index_select: the tensor and the ids name different axes, or lie on different devices");
  static_assert(S::entered,
                "weft: index_select: an axis cuts the ids, and the tensor is Invariant on it: enter the parallel region first, "
                "to<Replicated<axis>>(x), on tensors (context, x), or its gradient loses a sum");
  static_assert(
      S::fits,
      "weft: index_select: an axis cuts the tensor's rows, so a rank lacks those that its ids name, or the ids lie in no "
      "way that gathers: gather the rows, to<Replicated<axis>>(x), on tensors (context, x), or use Embedding, which sums over "
      "the ranks; where dp cuts the samples, cut the ids too, to<Shard<dp, 0>>(ids), each rank's ids for its own rows; on other "
      "axes ids that are cut as the rows and count those of this rank are index_select(x, ids, local_ids); edges of a graph "
      "bring "
      "nodes of other ranks first, index_select(to<Ghosts<axis>>(x, graph), graph.from)");
  if constexpr (!S::axes || !S::entered || !S::fits) {
    return x;
  } else {
    if (x.shape().rank() == 0 || ids.shape().rank() != 1)
      throw_error<ShapeError>({detail::call_text("index_select", {x, ids}), ": expected ids of one dim"});
    const std::size_t rows = x.shape()[0], count = ids.size();
    const auto wanted = detail::ids_of(ids, rows, detail::select_words<L>);
    Shape shape = x.shape();
    shape[0] = count;
    shape.set_sharding(0, ids.shape().sharding(0));
    typename S::type out(x.device(), shape);
    using T = typename X::value_type;
    kernels::embedding_forward<T>(x.device(), count, detail::row_width(x.shape()), wanted.data(), x.data(), 0, rows, out.data());
    return out;
  }
}
/// The gradient of x: row i of g [ids, ...] is added to row ids[i], in the order of the ids, in accumulate_t: the same bits in
/// every run and for any number of threads.
template <AnyTensor X, AnyTensor I, AnyTensor G, detail::IdScope L = CommonIds>
gradient_t<X> index_select_gradient(const X& x, const I& ids, const G& g, L = {}) {
  return detail::select_gradient<X, L>(x.shape(), ids, g);
}

/// The same on Variables; the ids are a constant.
template <class C, class X, class I, detail::IdScope L = CommonIds>
auto index_select(const Variable<C, X>& x, const Variable<C, I>& ids, L scope = {}) {
  using S = detail::Selected<X, I, L>;
  auto y = index_select(x.value(), ids.value(), scope);
  if constexpr (!S::axes || !S::entered || !S::fits) return detail::AlreadyRefused();
  else
    return detail::record_by_gradient(x, std::move(y), [shape = x.shape(), ids = ids.value()](const auto& g) {
      return detail::select_gradient<X, L>(shape, ids, g);
    });
}

}  // namespace operations

}  // namespace weft
