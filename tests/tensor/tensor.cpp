// SPDX-License-Identifier: Apache-2.0
// covers: weft/device/host_copies.hpp weft/tensor/add.hpp
// covers: weft/tensor/placement.hpp weft/tensor/shape.hpp weft/tensor/transfer.hpp
// Shapes, handles of tensors, copies between host and tensors, placements and their duals, and sums in place.
#include <weft/tensor/tensor.hpp>

#include <span>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include <weft/device/host_copies.hpp>
#include <weft/tensor/add.hpp>
#include <weft/tensor/placement.hpp>
#include <weft/tensor/shape.hpp>
#include <weft/tensor/transfer.hpp>

using namespace weft;

namespace {

using Exec = DefaultDevice::execution_space;
using X = Tensor<float, Exec, Replicated<tp>>;

X tensor(DefaultDevice& device, const std::vector<float>& values) {
  const X x(device, {values.size()});
  copy_from_host(x, std::span<const float>(values));
  return x;
}

// The table of placement.hpp.
static_assert(std::is_same_v<dual_t<Invariant<tp>>, Invariant<tp>> && std::is_same_v<dual_t<Replicated<tp>>, Partial<tp>> &&
              std::is_same_v<dual_t<Partial<tp>>, Replicated<tp>> && std::is_same_v<dual_t<Shard<tp, 1>>, Shard<tp, 1>>);
static_assert(is_whole<Invariant<tp>> && is_whole<Replicated<tp>> && !is_whole<Partial<tp>> && !is_whole<Shard<tp, 0>>);
static_assert(shard_dim<Shard<tp, 2>> == 2 && shard_dim<Partial<tp>> == -1);

}  // namespace

TEST_CASE("a shape's extents, text and divisions") {
  Shape shape{4, 3, 2};
  CHECK(shape.size() == 24);
  CHECK(shape.rows() * shape.columns() == shape.size());
  CHECK(shape.text() == "[4, 3, 2]");
  shape.set_sharding(1, DimSharding::padded);
  CHECK((shape.sharding(0) == DimSharding::even && shape.sharding(1) == DimSharding::padded));
  CHECK(Shape{4, 3, 2}.with_cuts_of(shape).cuts() == shape.cuts());
  CHECK(Shape{4, 3, 2}.cuts() != shape.cuts());
  Shape six{2, 3, 1, 2, 5, 4};
  for (std::size_t dim = 0; dim < 6; ++dim) six.set_sharding(dim, static_cast<DimSharding>(dim % 4));
  for (std::size_t dim = 0; dim < 6; ++dim) CHECK(six.sharding(dim) == static_cast<DimSharding>(dim % 4));
  CHECK((six.rows() == 60 && six.columns() == 4));
  const std::vector<int> extents{2, 3, 1, 2, 5, 4};
  CHECK((Shape::of(std::span(extents)) == six && Shape::of(std::span(extents).first(0)) == Shape{}));
  CHECK_THROWS_WITH_AS(Shape::of_rank(7), "weft: a Shape has at most 6 dims, not 7", ShapeError);
}

TEST_CASE("copies of a tensor share its elements, which come back from it") {
  DefaultDevice device;
  const X x = tensor(device, {1, 2, 3});
  CHECK(x.unique());
  const X y = x;
  CHECK_FALSE(x.unique());
  CHECK(y.data() == x.data());
  copy_from_host(y, std::vector<float>{4, 5, 6});
  CHECK(copy_to_host(x) == std::vector<float>{4, 5, 6});
  CHECK_FALSE(bool(X()));
}

TEST_CASE("bytes come to the device and back") {
  DefaultDevice device;
  const X x = tensor(device, {1, 2, 3});
  const float sent[] = {7, 8};
  float back[3] = {};
  detail::send_to_device(device, x.data() + 1, sent, sizeof sent);
  detail::copy_from_device(device, back, x.data(), sizeof back);
  device.exec().fence("test");
  CHECK((back[0] == 1 && back[1] == 7 && back[2] == 8));
}

TEST_CASE("a sum takes the memory of a term that nothing else holds") {
  DefaultDevice device;
  const X x = tensor(device, {1, 2, 3}), kept = tensor(device, {10, 20, 30});
  const X apart = detail::sum_of(x, kept);
  CHECK(apart.data() != kept.data());
  CHECK(copy_to_host(kept) == std::vector<float>{10, 20, 30});
  CHECK(copy_to_host(apart) == std::vector<float>{11, 22, 33});
  X given = tensor(device, {5, 5, 5});
  const float* const memory = given.data();
  const X in_place = detail::sum_of(x, std::move(given));
  CHECK(in_place.data() == memory);
  CHECK(copy_to_host(in_place) == std::vector<float>{6, 7, 8});
}
