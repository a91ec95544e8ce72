// SPDX-License-Identifier: Apache-2.0
// Datasets of arrays: files, vectors and Views of the program, without a copy, and unsuitable arrays.

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <mutex>
#include <numeric>
#include <string>
#include <vector>

#include <weft/core/scalar.hpp>
#include <weft/data/arrays.hpp>
#include <weft/data/idx.hpp>
#include <weft/data/loader.hpp>
#include <weft/data/npy.hpp>
#include <weft/mesh/mesh.hpp>
#include <weft/runtime/run.hpp>

#include "data/support/formats.hpp"
#include "support/message.hpp"

using namespace weft;
using namespace weft_test;

namespace {

inline constexpr data::Field<"image", float> image;
inline constexpr data::Field<"label", std::int32_t> label;
inline constexpr data::Field<"field", double> field;
inline constexpr data::Field<"half", bfloat16> half;
inline constexpr data::Field<"state", float, data::Cut<dx, 2>, data::Cut<dy, 3>> state;

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

TEST_CASE("ranks read the pieces of a file, and files of pieces are checked against the whole") {
  constexpr std::size_t samples = 3, channels = 2, rows = 7, columns = 5;
  std::vector<double> all(samples * channels * rows * columns);
  std::iota(all.begin(), all.end(), 0.0);
  const auto whole = data::Npy::from_bytes("u.npy", npy_file(npy_dictionary("<f8", "(3, 2, 7, 5)"), all));
  std::mutex mutex;
  std::vector<int> seen(all.size());
  std::string identity, of_pieces;
  CHECK(run(RunOptions{.ranks = 4}, [&](World& world) {
          const Mesh mesh(world, axes<dx, dy>, {.dx = 2, .dy = 2});
          const data::Arrays dataset(data::array<state, double>(mesh, whole, {.scale = 2}));
          data::Loader loader(data::Share{}, dataset, {.global_batch = samples, .shuffle = false});
          const auto batch = loader.batch(0);
          const std::size_t x = std::size_t(mesh.rank(dx{})), y = std::size_t(mesh.rank(dy{})), height = 4 - x, width = 3 - y;
          const std::string ranks = " and rank " + std::to_string(x) + " of dx(2), rank " + std::to_string(y) + " of dy(2) has ",
                            piece = Shape{channels, height, width}.text();
          // The rank's own file.
          const std::string shape = "(3, 2, " + std::to_string(height) + ", " + std::to_string(width) + ")";
          const std::vector<float> values(batch[state].values().begin(), batch[state].values().end());
          const auto mine = data::Npy::from_bytes("mine.npy", npy_file(npy_dictionary("<f4", shape), values));
          const auto read = data::array<state>(mesh, mine, data::PieceOf{{channels, rows, columns}});
          const std::scoped_lock lock(mutex);
          REQUIRE(batch[state].shape() == Shape{channels, height, width});
          std::size_t at = 0;
          for (std::size_t n = 0; n < samples; ++n)
            for (std::size_t c = 0; c < channels; ++c)
              for (std::size_t i = 0; i < height; ++i)
                for (std::size_t j = 0; j < width; ++j) {
                  const std::size_t place = ((n * channels + c) * rows + x * 4 + i) * columns + y * 3 + j;
                  CHECK(batch[state].values()[at++] == 2 * float(place));
                  ++seen[place];
                }
          if (identity.empty()) identity = dataset.identity().text();
          CHECK(dataset.identity().text() == identity);
          if (of_pieces.empty()) of_pieces = read.identity().text();
          CHECK(read.identity().text() == of_pieces);  // on all ranks, so that any of them may resume
          CHECK(read.identity().bytes == all.size() * sizeof(float));
          std::vector<float> sample(read.shape.size());
          read.load(2, sample);
          CHECK(sample.back() == values.back());
          CHECK(message<ShapeError>([&] {
                  data::array<state>(mesh, mine, data::PieceOf{{channels, rows + 2, columns}});
                }) == "weft: data: field state: 'mine.npy' has samples of " + piece + "," + ranks +
                          Shape{channels, height + 1, width}.text() +
                          " of [2, 9, 5]: pieces are as even as possible, longer ones first");
          CHECK(message<ShapeError>([&] {
                  data::array<state, double>(mesh, whole, data::PieceOf{{channels, rows, columns}});
                }) == "weft: data: field state: 'u.npy' has samples of [2, 7, 5]," + ranks + piece +
                          " of [2, 7, 5]: pieces are as even as possible, longer ones first");
        }) == 0);
  CHECK(std::ranges::all_of(seen, [](int count) { return count == 1; }));
  CHECK(message<UsageError>([&] { data::array<state, double>(whole); }) ==
        "weft: data: field state: domain axes cut it, and 'u.npy' [3, 2, 7, 5] may be the whole or a piece: give the mesh, "
        "data::array<field>(mesh, file), and for a piece the shape of a whole sample, data::array<field>(mesh, file, "
        "data::PieceOf{{...}})");
  CHECK(run(RunOptions{.ranks = 6}, [&](World& world) {
          const Mesh mesh(world, axes<dy>, {.dy = 6});
          const std::string text = message<ShapeError>([&] { data::array<state, double>(mesh, whole); });
          const std::scoped_lock lock(mutex);
          CHECK(text ==
                "weft: data: field state: 'u.npy' has samples of [2, 7, 5], of which dy(6) cannot cut dim 3: each rank "
                "needs one place at least");
        }) == 0);
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
