// SPDX-License-Identifier: Apache-2.0
// Fields and their batches: owned and viewed values, values that do not fit, and the reuse of memory.
// covers: weft/data/field_options.hpp weft/data/fields.hpp

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include <weft/core/scalar.hpp>
#include <weft/data/field_options.hpp>
#include <weft/data/fields.hpp>
#include <weft/tensor/strided_copy.hpp>

using namespace weft;

namespace {

inline constexpr data::Field<"image", float> image;
inline constexpr data::Field<"label", std::int32_t> label;
inline constexpr data::Field<"weight", double> weight;
inline constexpr data::Field<"byte", std::uint8_t> byte;
inline constexpr data::Field<"half", bfloat16> half;
using Images = FieldBatch<image, label>;

static_assert(std::is_same_v<std::remove_const_t<decltype(image)>::scalar, float> && image.name == "image");
static_assert(!std::is_same_v<FieldBatch<image, label>, FieldBatch<label, image>>);
static_assert(std::is_same_v<FieldBatch<data::Field<"image", float>{}, label>, Images>);  // a field is its name and its type

template <class E, class F>
std::string message(F&& f) {
  try {
    f();
  } catch (const E& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a batch owns [samples, shape...] of each field") {
  Images batch{.samples = 4, .micro_batches = 2, .first_sample = 8, .step = 3};
  std::ranges::fill(batch[image].resize(4, {1, 2, 3}), 0.5f);
  batch[label].assign({3, 1, 4, 1}, {});
  batch.check();
  CHECK(batch[image].shape() == Shape{1, 2, 3});
  CHECK(batch[image].values().size() == 24);
  CHECK(batch[label].shape() == Shape{});
  CHECK(batch[label].sample(2).size() == 1);
  CHECK(batch[label].sample(2)[0] == 4);
  CHECK(batch.samples_of_micro_batch() == 2);
  CHECK(batch[image].part(2, 2).data() == batch[image].values().data() + 12);
  batch.sample(1)[image][5] = 7;
  batch.sample(1)[label][0] = 9;
  CHECK(batch[image].values()[11] == 7);
  CHECK(batch[label].values()[1] == 9);
  const Images copy = batch;  // a copy owns its values
  batch.sample(1)[image][5] = 8;
  CHECK(copy[image].sample(1)[5] == 7);
  CHECK(copy.step == 3);
}

TEST_CASE("a batch looks at memory of the program's own without a copy") {
  std::vector<double> mine(12);
  Kokkos::View<float* [2][3], Kokkos::LayoutRight, Kokkos::HostSpace> view("view", 4);
  FieldBatch<weight, image> batch{.samples = 4};
  batch[weight].view(mine, {3});
  batch[image].view(view);
  batch.check();
  CHECK(batch[weight].values().data() == mine.data());
  CHECK(batch[image].values().data() == view.data());
  CHECK(batch[image].shape() == Shape{2, 3});
  mine[4] = 5;
  view(3, 1, 2) = 6;
  CHECK(batch[weight].sample(1)[1] == 5);
  CHECK(batch[image].sample(3)[5] == 6);
  const auto copy = batch;
  CHECK(copy[image].values().data() == view.data());
  CHECK(message<UsageError>([&] { batch[image].writable(); }) ==
        "weft: batch: field image is a view of the program's own memory, which weft does not write: resize() gives memory of the "
        "batch");
  batch[image].resize(4, {2, 3});
  CHECK(batch[image].owned());
  CHECK(view(3, 1, 2) == 6);

  const Kokkos::View<const float*, Kokkos::LayoutRight, Kokkos::HostSpace> scalars(view.data(), 4);
  batch[image].view(scalars);
  CHECK(batch[image].shape() == Shape{});
  CHECK(batch[image].samples() == 4);
}

TEST_CASE("a batch looks at Views of every layout") {
  const auto check = [](const auto& view) {
    FieldBatch<image> batch{.samples = 4};
    batch[image].view(view);
    batch.check();
    CHECK(batch[image].shape() == Shape{2, 3});
    CHECK_FALSE(batch[image].owned());
    for (const float shift : {0.f, 100.f}) {  // the values are those of the time of the call
      std::vector<float> expected;
      for (int sample = 0; sample < 4; ++sample)
        for (int i = 0; i < 2; ++i)
          for (int j = 0; j < 3; ++j) {
            view(sample, i, j) = shift + float(6 * sample + 3 * i + j);
            expected.push_back(view(sample, i, j));
          }
      const auto part = batch[image].part(1, 2), last = batch[image].sample(3);
      CHECK(std::ranges::equal(part, std::span(expected).subspan(6, 12)));
      CHECK(std::ranges::equal(last, std::span(expected).subspan(18)));
      const auto values = batch[image].values();
      CHECK(std::ranges::equal(values, expected));
    }
    const auto copy = batch;
    view(0, 0, 0) = 7;
    CHECK(copy[image].values()[0] == 7);
    CHECK_THROWS_AS(batch[image].part(3, 2), ShapeError);
    CHECK_THROWS_AS(batch[image].writable(), UsageError);
    batch[image].resize(4, {2, 3});
    batch[image].writable()[0] = 8;
    CHECK(batch[image].values()[0] == 8);
    CHECK(view(0, 0, 0) == 7);
  };
  Kokkos::View<float***, Kokkos::LayoutLeft, Kokkos::HostSpace> left("left", 4, 2, 3);
  check(left);
  Kokkos::View<float***, Kokkos::LayoutRight, Kokkos::HostSpace> large("large", 9, 5, 7);
  check(Kokkos::subview(large, std::pair(2, 6), std::pair(1, 3), std::pair(4, 7)));
  Kokkos::View<float****, Kokkos::LayoutLeft, Kokkos::HostSpace> many("many", 2, 6, 2, 3);
  check(Kokkos::subview(many, 1, std::pair(0, 4), Kokkos::ALL, Kokkos::ALL));
}

TEST_CASE("a View that is given with a host's device has its values, of every layout") {
  DefaultDevice device;
  Kokkos::View<float***, Kokkos::LayoutLeft, Kokkos::HostSpace> left("left", 4, 2, 3);
  Kokkos::View<float***, Kokkos::LayoutRight, Kokkos::HostSpace> right("right", 4, 2, 3);
  std::vector<float> expected;
  for (int i = 0; i < 24; ++i) {
    left(i / 6, i / 3 % 2, i % 3) = right(i / 6, i / 3 % 2, i % 3) = float(i);
    expected.push_back(float(i));
  }
  FieldBatch<image> batch{.samples = 4};
  const auto check = [&](const auto& view) {
    batch[image].view(device, view);
    CHECK(batch[image].device() == &device);
    CHECK(batch[image].strided_part(1, 2).data == &view(1, 0, 0));
    CHECK(std::ranges::equal(batch[image].values(), expected));
    CHECK(std::ranges::equal(batch[image].part(1, 2), std::span(expected).subspan(6, 12)));
    CHECK(batch[image].read([](auto values) { return values[23]; }) == 23);
  };
  check(left);
  check(right);
  batch[image].view(right);
  CHECK(batch[image].device() == nullptr);
  CHECK(batch[image].values().data() == right.data());
}

TEST_CASE("values that do not fit are refused with the field's name and the numbers") {
  Images batch{.samples = 4};
  batch[image].resize(3, {1, 2});
  batch[label].resize(4, {});
  CHECK(message<ShapeError>([&] { batch.check(); }) == "weft: batch: field image has 3 samples of [1, 2], the batch has 4");
  batch[image].resize(4, {1, 2});
  batch.check();
  for (const std::size_t micro_batches : {0, 3}) {
    batch.micro_batches = micro_batches;
    CHECK(message<ShapeError>([&] { batch.check(); }) == "weft: batch: samples(4) % micro-batches(" +
                                                             std::to_string(micro_batches) +
                                                             ") != 0: every micro-batch holds the same number of whole samples");
  }
  CHECK(message<ShapeError>([&] {
          batch[image].assign(std::vector<float>(7), {1, 2});
        }) == "weft: batch: field image has 7 values, which are not whole samples of [1, 2]");
  CHECK(message<ShapeError>([&] { batch[image].assign({}, {0}); }) ==
        "weft: batch: field image has 0 values, which are not whole samples of [0]");
  CHECK(message<ShapeError>([&] {
          batch[image].resize(std::size_t(1) << 40, {1 << 20, 1 << 20});
        }) == "weft: batch: field image: 1099511627776 samples of [1048576, 1048576] are too many values to count");
  CHECK(message<ShapeError>([&] { batch[image].part(3, 2); }) ==
        "weft: batch: field image has 4 samples: there are not 2 from 3 on");
  CHECK(message<ShapeError>([&] { batch[image].part(5, std::size_t(-1)); }) != "");
  CHECK(batch[image].part(4, 0).empty());
  CHECK(batch[image].samples() == 4);  // a refused value changed nothing
  Images unset{.samples = 2};
  CHECK(message<ShapeError>([&] { unset.check(); }) == "weft: batch: field image has 0 samples of [], the batch has 2");
}

TEST_CASE("labels are in their classes; negative ones only where they are masked") {
  FieldBatch<label, byte> batch{.samples = 3};
  batch[label].assign({0, 9, 10}, {});
  CHECK(message<UsageError>([&] { batch[label].check_labels(10); }) ==
        "weft: batch: field label: label(10) of sample 2 is not in classes(10), 0 to 9");
  batch[label].check_labels(11);
  batch[label].assign({0, 1, 2, -1}, {2});
  CHECK(message<UsageError>([&] { batch[label].check_labels(10); }) ==
        "weft: batch: field label: label(-1) of sample 1 is not in classes(10), 0 to 9");
  batch[label].check_labels(10, true);
  batch[byte].assign({200}, {});
  CHECK(message<UsageError>([&] { batch[byte].check_labels(200); }) ==
        "weft: batch: field byte: label(200) of sample 0 is not in classes(200), 0 to 199");
}

TEST_CASE("memory is used again") {
  FieldBatch<image, half> batch;
  const float* first = batch[image].resize(10, {4}).data();
  batch[half].resize(1, {});
  for (const std::size_t samples : {3, 10, 1, 10}) CHECK(batch[image].resize(samples, {4}).data() == first);
  CHECK(batch[image].values().size() == 40);
}
