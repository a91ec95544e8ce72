// SPDX-License-Identifier: Apache-2.0
#pragma once
// Rows of a DTensor by number, and the loss of rows of logits.
//
//   auto y = embedding(table, ids);             // table [vocabulary, width], ids [tokens]: [tokens, width]
//   auto loss = cross_entropy(logits, labels);  // logits [tokens, vocabulary], labels [tokens]: a number
//
//   operation                   takes on an axis                      result
//   index_select, embedding     table cut along dim 0, ids whole      partial: other ranks' rows are 0
//                               table cut along others, ids whole     cut alike
//                               table whole, ids cut                  cut as ids
//                               table partial, ids whole              partial
//   cross_entropy               both cut along the rows               partial
//                               logits cut along the classes          whole; it all-reduces three numbers a row

#include <cstddef>
#include <cstdint>
#include <string_view>

#include <weft/dtensor/elementwise.hpp>
#include <weft/dtensor/expand.hpp>
#include <weft/dtensor/views.hpp>
#include <weft/kernels/cross_entropy.hpp>
#include <weft/kernels/embedding.hpp>
#include <weft/tensor/transfer.hpp>

namespace weft::dtensor {

namespace detail {

template <class D>
using integers_t = DTensor<std::int32_t, typename D::execution_space>;

// Throws UsageError if one of this rank's numbers is `end` or more, or negative unless that is allowed. Only where a host can
// read them.
template <class I>
void require_numbers(std::string_view name, std::string_view what, const I& numbers, std::size_t end, bool negative) {
  const auto& local = numbers.to_local();
  if constexpr (weft::detail::on_host<typename I::execution_space>) {
    if (local.device().rehearsal() != nullptr) return;
    const auto values = copy_to_host(local);
    for (std::size_t i = 0; i < values.size(); ++i)
      if (std::int64_t(values[i]) >= std::int64_t(end) || (values[i] < 0 && !negative))
        throw_error<UsageError>({"dtensor: ", name, ": ", what, " ", values[i], " is not below ", end,
                                 negative ? "" : " or negative", ", element ", i, " of this rank's part of ",
                                 numbers.shape().text(), " ", text(numbers.placements())});
  }
}

// The gradient of a table's rows. An axis that cuts the table's rows cuts those of the gradient.
template <class D>
D scattered_rows(const integers_t<D>& ids, const D& g, const Shape& table, const Placements& wanted) {
  using T = typename D::value_type;
  using A = accumulate_t<T>;
  const int numbers = int(ids.shape().rank()), all = int(g.shape().rank());
  OperationRule rule{.operands = {alphabet(numbers), alphabet(all)}, .count = 2, .linear = {0b10}};
  rule.result.append('r');
  for (int dim = numbers; dim < all; ++dim) rule.result.append(alphabet(all)[dim]);
  const std::array<OperandInfo, 2> operands{info_of(ids), info_of(g)};
  Choice choice = choose(rule, operands, table, g.mesh().places());
  for (std::size_t axis = 0; axis < wanted.size(); ++axis)
    if (choice.result[axis].is_replicate() && wanted[axis] == shard(0)) choice.result[axis] = shard(0);
  note_operation(g.mesh(), "backward of index_select", operands, choice, table);
  const auto own_ids = ids.moved(choice.operands[0]);
  const D own = g.moved(choice.operands[1]), y = unset_result<T>(g, table, choice.result);
  const auto& out = y.to_local();
  const std::size_t rows = out.shape()[0], width = rows == 0 ? 0 : out.size() / rows;
  const Tensor<A, typename D::execution_space> sums(out.device(), out.shape());
  weft::detail::fill_zero(out.device(), sums.data(), sums.size());
  if (width != 0)
    kernels::embedding_backward<T>(out.device(), own_ids.to_local().size(), width, own_ids.to_local().data(),
                                   own.to_local().data(), std::int64_t(y.part().first[0]), rows, sums.data());
  kernels::cast<A, T>(out.device(), sums.size(), sums.data(), out.data());
  return y;
}

}  // namespace detail

/// table[ids, ...]: the rows with these numbers, [ids' dims..., table's other dims...]. Throws ShapeError for more than 6 dims,
/// and on hosts UsageError for a number that is no row.
template <RealTensor D>
D index_select(const D& table, const detail::integers_t<D>& ids) {
  using T = typename D::value_type;
  detail::require_one_mesh("index_select", table, ids);
  const int dims = int(table.shape().rank()), numbers = int(ids.shape().rank());
  if (dims == 0 || dims - 1 + numbers > int(Shape::max_rank))
    detail::refuse_shapes("index_select", "the table needs a dim, and the result at most 6", table, ids);
  detail::require_numbers("index_select", "row", ids, table.shape()[0], false);
  Shape shape = Shape::of_rank(std::size_t(dims - 1 + numbers));
  detail::OperationRule rule{.count = 2, .result = detail::alphabet(dims - 1 + numbers), .linear = {0b01}};
  rule.operands[0].append('r');
  rule.operands[1] = detail::alphabet(numbers);
  for (int dim = 0; dim < numbers; ++dim) shape[std::size_t(dim)] = ids.shape()[std::size_t(dim)];
  for (int dim = 1; dim < dims; ++dim) {
    shape[std::size_t(numbers + dim - 1)] = table.shape()[std::size_t(dim)];
    rule.operands[0].append(rule.result[numbers + dim - 1]);
  }
  const auto local = [](const D& y, const D& rows, const detail::integers_t<D>& own) {
    const std::size_t count = own.to_local().size(), width = count == 0 ? 0 : y.to_local().size() / count;
    if (width != 0)
      kernels::embedding_forward<T>(y.to_local().device(), count, width, own.to_local().data(), rows.to_local().data(),
                                    std::int64_t(rows.part().first[0]), rows.to_local().shape()[0], y.to_local().data());
  };
  const D y = detail::apply<T>("index_select", rule, shape, local, table, ids);
  return detail::recorded(y, detail::on(table, [ids, of = table.shape(), wanted = table.placements()](const D& g) {
                            return detail::scattered_rows(ids, g, of, wanted);
                          }));
}
/// The rows of a table by token id: index_select.
template <RealTensor D>
D embedding(const D& table, const detail::integers_t<D>& ids) {
  return index_select(table, ids);
}

/// The mean over the rows of -log softmax(logits)[row, label], as torch's: rows with a negative label do not count, and the mean
/// of none is NaN. Throws ShapeError unless logits are [rows, classes] and labels [rows], and on hosts UsageError for a label
/// that is no class. Numerics: the sum over rows is in double on a rank.
template <RealTensor D>
D cross_entropy(const D& logits, const detail::integers_t<D>& labels) {
  using T = typename D::value_type;
  using A = accumulate_t<T>;
  using Exec = typename D::execution_space;
  using I = detail::integers_t<D>;
  using S = DTensor<A, Exec>;
  detail::require_one_mesh("cross_entropy", logits, labels);
  if (logits.shape().rank() != 2 || labels.shape().rank() != 1 || logits.shape()[0] != labels.shape()[0] ||
      logits.shape()[1] == 0)
    detail::refuse_shapes("cross_entropy", "expected logits [rows, classes] and labels [rows]", logits, labels);
  detail::require_numbers("cross_entropy", "label", labels, logits.shape()[1], true);
  const std::size_t rows = logits.shape()[0];

  // The largest logit, the sum of powers and the label's logit of each row.
  const auto statistics = [](const S& y, const D& z, const I& of) {
    const auto& own = z.to_local();
    const std::size_t here = own.shape()[0], columns = own.shape()[1];
    A *const top = y.to_local().data(), *const sums = top + here, *const target = sums + here;
    const auto over_classes = [&](Reduction reduction, std::size_t first, std::size_t count) {
      const Tensor<A, Exec> numbers(own.device(), {count * here}, y.to_local().buffer(), first * here);
      detail::reduce_inside("cross_entropy", z, 1, numbers, count, reduction);
    };
    kernels::row_max<T>(own.device(), here, columns, columns, own.data(), top);
    over_classes(Reduction::max, 0, 1);
    kernels::softmax_sums<T>(own.device(), here, columns, columns, own.data(), top, of.to_local().data(),
                             std::int64_t(z.part().first[1]), sums, target);
    over_classes(Reduction::sum, 1, 2);
  };
  detail::OperationRule rule{.operands = {"rv", "r"}, .count = 2, .result = ".r"};
  rule.inside.append('v');
  rule.inside_bytes = sizeof(A);
  const S of_rows = detail::apply<A>("statistics of cross_entropy", rule, {3, rows}, statistics, logits.detach(), labels);

  const auto finish = [](const D& y, const S& own, const I& of) {
    const std::size_t here = of.to_local().size();
    A* const top = own.to_local().data();
    auto& device = y.to_local().device();
    const Tensor<double, Exec> total(device, {1});
    kernels::cross_entropy_finish<T>(device, here, 0, 0, static_cast<const T*>(nullptr), top, top + here, top + 2 * here,
                                     of.to_local().data(), 0, total.data(), static_cast<T*>(nullptr));
    kernels::cast<double, T>(device, 1, total.data(), y.to_local().data());
  };
  const D total = detail::apply<T>("cross_entropy", {.operands = {".r", "r"}, .count = 2}, Shape(), finish, of_rows, labels);

  const auto backward = [=, z = logits.detach()](const D& g) {
    const auto local = [](const D& dz, const D& own, const I& of, const S& numbers, const D& factor) {
      const std::size_t here = own.to_local().shape()[0], columns = own.to_local().shape()[1];
      if (here * columns == 0) return;
      A* const top = numbers.to_local().data();
      const Tensor<double, Exec> by(own.to_local().device(), {1});
      kernels::cast<T, double>(by.device(), 1, factor.to_local().data(), by.data());
      kernels::cross_entropy_gradient<T>(by.device(), here, columns, columns, own.to_local().data(), top, top + here,
                                         of.to_local().data(), std::int64_t(own.part().first[1]), by.data(),
                                         dz.to_local().data());
    };
    detail::OperationRule of{.operands = {"rv", "r", ".r", ""}, .count = 4, .result = "rv", .linear = {0b1000}};
    return detail::apply<T>("backward of cross_entropy", of, z.shape(), local, z, labels, of_rows, g);
  };
  const auto kernel = [](auto& device, std::size_t n, const std::int32_t* numbers, T* y) {
    kernels::has_target<T>(device, n, numbers, y);
  };
  const D counted = sum(detail::zip<T>("labels", labels.shape(), 0, 0, kernel, labels));
  return detail::recorded(total, detail::on(logits, backward)) / counted;
}

}  // namespace weft::dtensor
