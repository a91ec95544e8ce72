// SPDX-License-Identifier: Apache-2.0
// Datasets of arrays: files, vectors and Views of the program, without a copy, and unsuitable arrays.

#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include <weft/core/scalar.hpp>
#include <weft/data/arrays.hpp>
#include <weft/data/idx.hpp>
#include <weft/data/loader.hpp>
#include <weft/data/npy.hpp>

#include "data/support/formats.hpp"
#include "support/message.hpp"

using namespace weft;
using namespace weft_test;

namespace {

inline constexpr data::Field<"image", float> image;
inline constexpr data::Field<"label", std::int32_t> label;
inline constexpr data::Field<"field", double> field;
inline constexpr data::Field<"half", bfloat16> half;

const auto images =
    data::Idx::from_bytes("images", idx_file<std::uint8_t>(8, {3, 2, 2}, {0, 51, 102, 255, 1, 2, 3, 4, 5, 6, 7, 8}));
const auto labels = data::Idx::from_bytes("labels", idx_file<std::uint8_t>(8, {3}, {7, 0, 9}));

}  // namespace

TEST_CASE("images and labels from files") {
  const data::Arrays dataset(data::array<image, std::uint8_t>(images, {.shape = Shape{1, 2, 2}, .scale = 1 / 255.0}),
                             data::array<label, std::uint8_t>(labels, {.classes = 10}));
  static_assert(data::Dataset<std::remove_const_t<decltype(dataset)>>);
  CHECK(dataset.size() == 3);
  data::Loader loader(data::Share{}, dataset, {.global_batch = 3, .shuffle = false});
  const auto batch = loader.batch(0);
  batch.check();
  CHECK(batch[image].shape() == Shape{1, 2, 2});
  CHECK(batch[image].values()[1] == float(51 * (1 / 255.0)));
  CHECK(batch[image].values()[3] == 1);
  CHECK(batch[label].sample(2)[0] == 9);
}

TEST_CASE("arrays of the field's own type, and of NumPy") {
  const auto npy = data::Npy::from_bytes("a.npy", npy_file<double>(npy_dictionary("<f8", "(2, 3)"), {1, 2, 3, 4, 5, 6}));
  data::Loader loader(data::Share{},
                      data::Arrays(data::array<field>(npy), data::array<half, double>(npy, {.scale = 2, .shift = 1})),
                      {.global_batch = 2, .shuffle = false});
  const auto batch = loader.batch(0);
  CHECK(batch[field].sample(1)[2] == 6);
  CHECK(float(batch[half].sample(1)[0]) == 9);
  CHECK(message<UsageError>([&] { data::array<image>(npy); }) ==
        "weft: data: cannot read 'a.npy': its elements are float64, float32 was asked for");
}

TEST_CASE("memory of the program's own") {
  std::vector<float> mine(12);
  std::iota(mine.begin(), mine.end(), 0.0f);
  Kokkos::View<double**, Kokkos::LayoutRight, Kokkos::HostSpace> view("view", 4, 2);
  const data::Arrays dataset(data::array<image>(mine, {3}), data::array<field>(view),
                             data::array<label>(std::vector<std::int64_t>{4, 5, 6, 7}, {}));
  data::Loader loader(data::Share{}, dataset, {.global_batch = 4, .epochs = 3, .shuffle = false, .ahead = 0});
  for (auto&& batch : loader) {  // values that the program writes between two steps are loaded
    CHECK(batch[image].sample(3)[2] == 11 + float(batch.step));
    CHECK(batch[field].sample(1)[1] == double(batch.step));
    CHECK(batch[label].sample(3)[0] == 7);
    mine[11] += 1;
    view(1, 1) += 1;
  }
  const Kokkos::View<double**, Kokkos::LayoutLeft, Kokkos::HostSpace> columns("columns", 4, 3);
  CHECK(message<ShapeError>([&] {
          data::array<field>(columns);
        }).find("field field: the View is not contiguous in row-major order") != std::string::npos);
  data::Loader kept(data::Share{}, data::Arrays(data::array<field>(Kokkos::View<double*, Kokkos::HostSpace>("gone", 4))),
                    {.global_batch = 4});
  CHECK(kept.batch(0)[field].sample(3)[0] == 0);  // a View lives as long as the dataset
}

TEST_CASE("arrays that do not fit") {
  CHECK(message<ShapeError>([] {
          data::Arrays(data::array<image, std::uint8_t>(images), data::array<label>(std::vector<std::int32_t>(2), {}));
        }) == "weft: data: field label has 2 samples, field image has 3");
  CHECK(message<ShapeError>([] {
          data::array<image, std::uint8_t>(images, {.shape = Shape{2, 3}});
        }) == "weft: data: field image: the array's samples are [2, 2], which are not as many elements as [2, 3]");
  CHECK(message<UsageError>([] { data::array<label, std::uint8_t>(labels, {.classes = 9}); }) ==
        "weft: batch: field label: label(9) of sample 2 is not in classes(9), 0 to 8");
  CHECK(message<UsageError>([] {
          data::array<field>(std::vector<double>{1, 2}, {}, {.classes = 9});
        }) == "weft: data: field field: classes are of whole numbers, the array's elements are none");
  CHECK(message<ShapeError>([] {
          data::array<image>(std::vector<float>(5), {2});
        }).find("5 values, which are not whole samples of [2]") != std::string::npos);
  const auto eight = data::Idx::from_bytes("eight", idx_file<std::uint8_t>(8, {1, 1, 1, 1, 1, 1, 1, 1}, {1}));
  CHECK(message<ShapeError>([&] { data::array<image, std::uint8_t>(eight); }) ==
        "weft: data: field image: 'eight' has 8 dims; samples, and up to 6 of a sample, are 1 to 7");
}

TEST_CASE("the identity of a dataset is of its elements, shapes and scales") {
  const std::vector<float> mine{1, 2, 3, 4, 5, 6};
  const auto of = [&](const data::ArrayOptions& options, float first = 1) {
    std::vector<float> values = mine;
    values[0] = first;
    return data::Arrays(data::array<image>(std::move(values), {2}, options), data::array<label, std::uint8_t>(labels)).identity();
  };
  const DataIdentity one = of({}), same = of({}), other = of({}, 2), scaled = of({.scale = 0.5});
  CHECK(one.text().starts_with("field image and 1 more file (27 bytes, digest "));
  CHECK((same.digest == one.digest && same.settings == one.settings));
  CHECK(other.digest != one.digest);
  CHECK((scaled.digest == one.digest && scaled.settings != one.settings));
  CHECK(one.settings[0] == std::pair<std::string, std::string>("image.shape", "[2]"));
  data::Loader loader(data::Share{}, data::Arrays(data::array<label, std::uint8_t>(labels)), {.global_batch = 3});
  CHECK(loader.identity().name == "labels");
}
