// SPDX-License-Identifier: Apache-2.0
// covers: weft/operations/products.hpp weft/operations/rows.hpp
// covers: weft/autograd/layer.hpp weft/autograd/result.hpp weft/nn/gathered_product.hpp
// Products of placed tensors against plain loops, their types by placement, rows gathered while they are multiplied; a layer's
// backward in one piece and in two.
#include <weft/operations/products.hpp>
#include <weft/operations/rows.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <weft/autograd/layer.hpp>
#include <weft/autograd/result.hpp>
#include <weft/context/context.hpp>
#include <weft/nn/gathered_product.hpp>
#include <weft/runtime/run.hpp>
#include <weft/tensor/to.hpp>
#include <weft/tensor/transfer.hpp>

using namespace weft;

namespace {

using Exec = DefaultDevice::execution_space;
using Root = Context<Compute<Exec, double>>;
using Numbers = std::vector<double>;
template <class... P>
using D = Tensor<double, Exec, P...>;

// Whole numbers: sums in any order are exact.
Numbers numbers(std::size_t n, int seed) {
  Numbers out(n);
  for (std::size_t i = 0; i < n; ++i) out[i] = double(int(i * 7 + std::size_t(seed) * 13) % 11 - 5);
  return out;
}
template <class X = D<>>
X tensor(DefaultDevice& device, const Shape& shape, const Numbers& values) {
  X x(device, shape);
  copy_from_host(x, std::span<const double>(values));
  return x;
}
// a [m, k] times b [k, n]; each may be stored transposed.
Numbers product(std::size_t m, std::size_t n, std::size_t k, const Numbers& a, bool a_transposed, const Numbers& b,
                bool b_transposed) {
  Numbers out(m * n, 0);
  for (std::size_t i = 0; i < m; ++i)
    for (std::size_t j = 0; j < n; ++j)
      for (std::size_t l = 0; l < k; ++l)
        out[i * n + j] += (a_transposed ? a[l * m + i] : a[i * k + l]) * (b_transposed ? b[j * k + l] : b[l * n + j]);
  return out;
}

template <class X, class W>
using matmul_t = decltype(matmul(std::declval<X>(), std::declval<W>()));
// y = x wᵀ: the table of placements that a product accepts, rule by rule.
static_assert(std::is_same_v<matmul_t<D<Invariant<tp>>, D<Invariant<tp>>>, D<Invariant<tp>>>);
static_assert(std::is_same_v<matmul_t<D<Replicated<tp>>, D<Shard<tp, 0>>>, D<Shard<tp, 1>>>);
static_assert(std::is_same_v<matmul_t<D<Shard<tp, 1>>, D<Shard<tp, 1>>>, D<Partial<tp>>>);
static_assert(std::is_same_v<matmul_t<D<Shard<tp, 0>>, D<Replicated<tp>>>, D<Shard<tp, 0>>>);
static_assert(std::is_same_v<matmul_t<D<Partial<tp>>, D<Replicated<tp>>>, D<Partial<tp>>>);

// A layer with one backward, and one with two halves.
struct One {
  auto forward(const auto&, const auto& x) const { return Result{x, 3}; }
  auto backward(const auto&, int saved, const auto& g) { return calls += saved, g; }
  int calls = 0;
};
struct Two {
  auto forward(const auto&, const auto& x) const { return Result{x, 3}; }
  auto backward_input(const auto&, int saved, const auto& g) { return InputGradient{g, saved + 1}; }
  void backward_weight(const auto&, int deferred) { calls += deferred; }
  int calls = 0;
};

}  // namespace

TEST_CASE("matmul and the products of its backward are plain loops") {
  DefaultDevice device;
  const std::size_t tokens = 5, in = 3, out = 4;
  const Numbers xs = numbers(tokens * in, 1), ws = numbers(out * in, 2), gs = numbers(tokens * out, 3);
  const auto x = tensor(device, {tokens, in}, xs), w = tensor(device, {out, in}, ws), g = tensor(device, {tokens, out}, gs);
  CHECK(copy_to_host(matmul(x, w)) == product(tokens, out, in, xs, false, ws, true));
  CHECK(copy_to_host(matmul_input_gradient(g, w)) == product(tokens, in, out, gs, false, ws, false));
  CHECK(copy_to_host(matmul_weight_gradient(g, x)) == product(out, in, tokens, gs, true, xs, false));
  CHECK_THROWS_AS(matmul(x, g), ShapeError);
}

TEST_CASE("a bias, a gain and sums of rows") {
  DefaultDevice device;
  const Numbers xs = numbers(6, 1), vs = numbers(3, 2), ws = numbers(6, 3), bs = numbers(2, 4);
  const auto x = tensor(device, {2, 3}, xs), v = tensor(device, {3}, vs), w = tensor(device, {2, 3}, ws),
             b = tensor(device, {2}, bs);
  Numbers scaled = xs, added = xs, sums(3, 0), both = product(2, 2, 3, xs, false, ws, true);
  for (std::size_t i = 0; i < 6; ++i) scaled[i] *= vs[i % 3], added[i] += vs[i % 3], sums[i % 3] += xs[i];
  for (std::size_t i = 0; i < 4; ++i) both[i] += bs[i % 2];
  CHECK(copy_to_host(times_row(x, v)) == scaled);
  CHECK(copy_to_host(add_row(x, v)) == added);
  CHECK(copy_to_host(sum_rows(x)) == sums);
  CHECK(copy_to_host(linear<0>(x, w, b)) == both);
  CHECK(copy_to_host(add(x, w)) == [&] {
    Numbers all = xs;
    for (std::size_t i = 0; i < 6; ++i) all[i] += ws[i];
    return all;
  }());
  CHECK_THROWS_AS(times_row(x, b), ShapeError);
  CHECK_THROWS_AS(add(x, b), ShapeError);
}

TEST_CASE("rows that come round from other ranks give the product of all rows") {
  const std::size_t ranks = 4, rows = 3, in = 5, out = 2;
  const Numbers xs = numbers(ranks * rows * in, 1), ws = numbers(out * in, 2), bs = numbers(out, 3),
                gs = numbers(ranks * rows * out, 4);
  Numbers expected = product(ranks * rows, out, in, xs, false, ws, true);
  for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += bs[i % out];
  const Numbers gradient = product(out, in, ranks * rows, gs, true, xs, false);
  std::mutex mutex;
  CHECK(run(RunOptions{.ranks = int(ranks)}, [&](World& world) {
          auto& device = world.device();
          const auto from = xs.begin() + std::ptrdiff_t(std::size_t(world.rank()) * rows * in);
          const auto x = tensor<D<Shard<tp, 0>>>(device, {rows, in}, Numbers(from, from + std::ptrdiff_t(rows * in)));
          const auto w = tensor<D<Replicated<tp>>>(device, {out, in}, ws),
                     g = tensor<D<Replicated<tp>>>(device, {ranks * rows, out}, gs);
          const auto bias = tensor(device, {out}, bs);
          D<Replicated<tp>> y(device, {ranks * rows, out}), dw(device, {out, in});
          detail::gathered_product<0>(world.communicator(), x, w, y, bias.data());
          detail::accumulate_gathered_product<false>(world.communicator(), x, g, dw.data(), true);
          const Numbers values = copy_to_host(y), once = copy_to_host(dw);
          detail::accumulate_gathered_product<false>(world.communicator(), x, g, dw.data(), false);
          const Numbers twice = copy_to_host(dw);
          std::lock_guard lock(mutex);
          CHECK(values == expected);
          CHECK(once == gradient);
          for (std::size_t i = 0; i < twice.size(); ++i) CHECK(twice[i] == 2 * gradient[i]);
        }) == 0);
}

namespace {

// Bits of products of random numbers: of rows that come round, of each rank's rows alone, and of all rows at once.
template <class T>
void compare_gathered_bits(std::size_t rows, std::size_t in, std::size_t out, double tolerance) {
  using X = Tensor<T, DefaultDevice::execution_space, Shard<tp, 0>>;
  using Y = Tensor<T, DefaultDevice::execution_space, Replicated<tp>>;
  const std::size_t ranks = 4;
  const auto random = [](std::size_t size, std::uint64_t seed) {
    std::vector<T> values;
    for (std::size_t i = 0; i < size; ++i) values.push_back(T(float(double(key_of(seed, i) % 20011) / 10000 - 1)));
    return values;
  };
  const std::vector<T> xs = random(ranks * rows * in, 1), ws = random(out * in, 2);
  INFO(rows, " rows of a rank, ", in, " to ", out);
  CHECK(run(RunOptions{.ranks = int(ranks), .threads_per_rank = 1}, [&](World& world) {
          auto& device = world.device();
          X x(device, {rows, in});
          Y w(device, {out, in}), y(device, {ranks * rows, out}), alone(device, y.shape()), whole(device, y.shape());
          std::copy_n(xs.data() + std::size_t(world.rank()) * rows * in, rows * in, x.data());
          std::copy(ws.begin(), ws.end(), w.data());
          detail::gathered_product<0>(world.communicator(), x, w, y, nullptr);
          const auto multiply = [&](std::size_t first, std::size_t count, T* to) {
            kernels::matmul<T, T>(device, kernels::Transpose::no, kernels::Transpose::yes, count, out, in, xs.data() + first * in,
                                  in, w.data(), in, to + first * out, out);
          };
          for (std::size_t rank = 0; rank < ranks; ++rank) multiply(rank * rows, rows, alone.data());
          multiply(0, ranks * rows, whole.data());
          device.exec().fence();
          if (std::memcmp(y.data(), alone.data(), y.size() * sizeof(T)) != 0) throw Error("not the product of its rows alone");
          for (std::size_t i = 0; i < y.size(); ++i)
            if (!(std::abs(double(y.data()[i]) - double(whole.data()[i])) <= tolerance * double(in)))
              throw Error("not the product of all rows: " + std::to_string(double(y.data()[i])));
        }) == 0);
}

}  // namespace

TEST_CASE("rows that come round have the bits of a product of one rank's rows") {
  for (const std::size_t rows : {3, 4, 5, 16, 33})
    for (const auto& [in, out] : {std::pair<std::size_t, std::size_t>(7, 5), {64, 48}, {96, 100}}) {
      compare_gathered_bits<float>(rows, in, out, 1e-7);
      compare_gathered_bits<bfloat16>(rows, in, out, 4e-3);
      compare_gathered_bits<double>(rows, in, out, rows > 4 ? 0 : 2e-16);  // of more than 4 rows the bits are those of all rows
    }
}

TEST_CASE("a layer's backward in one piece or two is called as the layer wrote it") {
  DefaultDevice device;
  const Root root(device, {});
  const auto x = tensor(device, {2, 3}, numbers(6, 1));
  One one;
  Two two;
  static_assert(detail::Layer<One, Root, D<>> && detail::Layer<Two, Root, D<>> && !detail::Layer<int, Root, D<>>);
  auto split = backward_input(one, root, one.forward(root, x).saved, x);
  static_assert(std::is_same_v<decltype(split.deferred), Nothing>);
  CHECK(one.calls == 3);
  backward_weight(one, root, std::move(split.deferred));
  CHECK(one.calls == 3);
  auto halves = backward_input(two, root, two.forward(root, x).saved, x);
  CHECK(two.calls == 0);
  backward_weight(two, root, std::move(halves.deferred));
  CHECK(two.calls == 4);
  CHECK(copy_to_host(backward(two, root, two.forward(root, x).saved, x)) == copy_to_host(x));
  CHECK(two.calls == 8);
}
