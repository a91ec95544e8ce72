// SPDX-License-Identifier: Apache-2.0
// Tensors of other libraries by DLPack, both ways: types and strides, each deleter called once, and the message of each tensor
// that is refused.

#include <doctest/doctest.h>

#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include <weft/core/scalar.hpp>
#include <weft/data/arrays.hpp>
#include <weft/data/dlpack.hpp>
#include <weft/data/fields.hpp>
#include <weft/data/loader.hpp>

#include "support/message.hpp"

using namespace weft;
using namespace weft_test;

namespace {

inline constexpr data::Field<"state", double> state;
inline constexpr data::Field<"half", bfloat16> half;

/// A tensor over its own values, as another library makes it; counts the calls of its deleter.
template <class M, class T>
struct Foreign {
  std::vector<T> values;
  std::vector<std::int64_t> shape, strides;
  M tensor{};
  int deleted = 0;

  Foreign(std::vector<std::int64_t> extents, std::vector<std::int64_t> steps = {}, std::size_t count = 24)
      : values(count), shape(std::move(extents)), strides(std::move(steps)) {
    for (std::size_t i = 0; i < count; ++i) values[i] = T(float(i));
    const data::detail::DlpackType type = data::detail::dlpack_type_of<T>();
    tensor.dl_tensor = {values.data(),
                        {1, 0},
                        std::int32_t(shape.size()),
                        {type.code, type.bits, 1},
                        shape.data(),
                        strides.empty() ? nullptr : strides.data(),
                        0};
    tensor.manager_ctx = this;
    tensor.deleter = [](M* ours) { ++static_cast<Foreign*>(ours->manager_ctx)->deleted; };
    if constexpr (data::detail::VersionedDlpackTensor<M>) tensor.version = {1, 1};
  }
  Foreign(const Foreign&) = delete;
};
using Plain = Foreign<data::dlpack::ManagedTensor, double>;
using Versioned = Foreign<data::dlpack::VersionedTensor, double>;

template <class F>
std::string refusal(F&& f) {
  const std::string text = message<UsageError>(f), begin = "weft: dlpack: ";
  REQUIRE(text.starts_with(begin));
  return text.substr(begin.size());
}

}  // namespace

TEST_CASE_TEMPLATE("a batch looks at a tensor where it lies", F, Plain, Versioned) {
  F foreign({2, 3, 4});
  {
    const data::Dlpack taken = data::Dlpack::take(&foreign.tensor);
    FieldBatch<state> batch{.samples = 2};
    batch[state].view(taken.array<double>());
    batch.check();
    CHECK(batch[state].shape() == Shape{3, 4});
    CHECK(batch[state].values().data() == foreign.values.data());
    CHECK(batch[state].sample(1)[5] == 17);
    const data::Dlpack copy = taken;
    CHECK(foreign.deleted == 0);
  }
  CHECK(foreign.deleted == 1);
}

TEST_CASE("strides and offsets") {
  // The transpose of a row-major [3, 8] as [8, 3], from its second column on: element (i, j) is 8 j + i + 1.
  Plain turned({7, 3}, {1, 8});
  turned.tensor.dl_tensor.byte_offset = sizeof(double);
  // One row for all samples.
  Plain same({5, 4}, {0, 1});
  // The strides of dims of one element do not count.
  Plain one({1, 4}, {-99, 1});
  {
    FieldBatch<state> batch{.samples = 7};
    const auto taken = data::Dlpack::take(&turned.tensor);
    batch[state].view(taken.array<double>());
    for (std::size_t i = 0; i < 7; ++i)
      for (std::size_t j = 0; j < 3; ++j) CHECK(batch[state].sample(i)[j] == double(8 * j + i + 1));
    taken.writable<double>().data[0] = -1;
    CHECK(turned.values[1] == -1);

    const auto repeated = data::Dlpack::take(&same.tensor);
    batch[state].view(repeated.array<double>());
    for (std::size_t i = 0; i < 5; ++i) CHECK(batch[state].sample(i)[3] == 3);
    CHECK(refusal([&] { repeated.writable<double>(); }) ==
          "the tensor has the stride 0 in dim 0 of [5, 4], and its elements share memory: it cannot be written");
    Plain windows({3, 4}, {1, 1});
    CHECK(refusal([&] { data::Dlpack::take(&windows.tensor).writable<double>(); }) ==
          "the tensor has the stride 1 in dim 1 of [3, 4], and its elements share memory: it cannot be written");
    Plain gaps({2, 3}, {1, 5});
    CHECK(data::Dlpack::take(&gaps.tensor).writable<double>().strides[1] == 5);
    CHECK(data::Dlpack::take(&one.tensor).array<double>().row_major());
  }
  CHECK(turned.deleted == 1);
  CHECK(same.deleted == 1);
  CHECK(one.deleted == 1);
}

TEST_CASE("a dataset shares the tensor") {
  Foreign<data::dlpack::ManagedTensor, std::int32_t> whole({6, 4});
  Foreign<data::dlpack::ManagedTensor, bfloat16> rounded({6, 4});
  Plain turned({6, 4}, {1, 6});
  {
    const data::Arrays dataset(data::array<state, std::int32_t>(data::Dlpack::take(&whole.tensor), {.scale = 0.5}),
                               data::array<half>(data::Dlpack::take(&rounded.tensor), {.shape = Shape{2, 2}}));
    data::Loader loader(data::Share{}, dataset, {.global_batch = 3, .shuffle = false});
    const auto batch = loader.batch(1);
    CHECK(batch[state].sample(2)[3] == 11.5);
    CHECK(float(batch[half].sample(0)[1]) == 13);
    CHECK(whole.deleted == 0);
    CHECK(message<ShapeError>([&] { data::array<state>(data::Dlpack::take(&turned.tensor)); }) ==
          "weft: field state: the tensor of [6, 4] is not [samples, ...], contiguous in row-major order: a dataset takes "
          "numpy.ascontiguousarray(x); a batch takes all strides");
    CHECK(turned.deleted == 1);
  }
  CHECK(whole.deleted == 1);
  CHECK(rounded.deleted == 1);
}

TEST_CASE_TEMPLATE("values leave as a tensor and come back", M, data::dlpack::ManagedTensor, data::dlpack::VersionedTensor) {
  std::vector<float> values(12);
  std::iota(values.begin(), values.end(), 0.f);
  const float* const where = values.data();
  M* const made = data::to_dlpack<M>(std::move(values), {3, 4});
  CHECK(made->dl_tensor.data == where);
  CHECK(made->dl_tensor.ndim == 2);
  CHECK(made->dl_tensor.strides[0] == 4);
  CHECK(made->dl_tensor.dtype.code == 2);
  CHECK(made->dl_tensor.dtype.bits == 32);
  {
    const data::Dlpack taken = data::Dlpack::take(made);  // its deleter frees the values: AddressSanitizer
    CHECK(taken.shape() == Shape{3, 4});
    CHECK(taken.array<float>().data[11] == 11);
  }
  CHECK(message<ShapeError>([] {
          data::to_dlpack<M>(std::vector<float>(5), {3, 4});
        }) == "weft: dlpack: 5 values are no tensor of [3, 4]");

  Kokkos::View<double**, Kokkos::LayoutLeft, Kokkos::HostSpace> view("view", 3, 4);
  view(2, 1) = 7;
  {
    const data::Dlpack taken = data::Dlpack::take(data::to_dlpack<M>(view));
    CHECK(view.use_count() == 2);
    CHECK(taken.writable<double>().strides[1] == 3);
    FieldBatch<state> batch{.samples = 3};
    batch[state].view(taken.array<double>());
    CHECK(batch[state].sample(2)[1] == 7);
  }
  CHECK(view.use_count() == 1);
  if constexpr (data::detail::VersionedDlpackTensor<M>) {
    const Kokkos::View<const double**, Kokkos::LayoutLeft, Kokkos::HostSpace> fixed = view;
    const data::Dlpack taken = data::Dlpack::take(data::to_dlpack<M>(fixed));
    CHECK(taken.array<double>().data == view.data());
    CHECK(refusal([&] { taken.writable<double>(); }) == "the tensor is read-only");
  }
}

TEST_CASE("refused tensors are released, too") {
  int refused = 0;
  const auto check = [&](const std::string& expected, auto&& change, auto&& use) {
    Versioned foreign({2, 3, 4});
    change(foreign);
    CHECK(refusal([&] { use(data::Dlpack::take(&foreign.tensor)); }) == expected);
    CHECK(foreign.deleted == 1);
    ++refused;
  };
  const auto at_once = [](const data::Dlpack&) { FAIL("the tensor was taken"); };
  check(
      "the tensor is on a device of type 2 (DLDeviceType), number 1: give weft's device, u.array<T>(device), or copy it to host "
      "memory, x.cpu()",
      [](auto& f) {
        f.tensor.dl_tensor.device = {2, 1};
      },
      [](const data::Dlpack& taken) { taken.array<double>(); });
  check(
      "the tensor is of version 2.0, and weft reads version 1",
      [](auto& f) {
        f.tensor.version = {2, 0};
      },
      at_once);
  check(
      "the tensor's elements are vectors of 4 float64", [](auto& f) { f.tensor.dl_tensor.dtype.lanes = 4; }, at_once);
  check(
      "the tensor has 7 dims: 0 to 6 are possible", [](auto& f) { f.tensor.dl_tensor.ndim = 7; }, at_once);
  check(
      "the tensor has the extent -3 in dim 1", [](auto& f) { f.shape[1] = -3; }, at_once);
  check(
      "the tensor has the stride -4 in dim 1 of [2, 3, 4]: copy it, numpy.ascontiguousarray(x)",
      [](auto& f) {
        f.strides = {12, -4, 1};
        f.tensor.dl_tensor.strides = f.strides.data();
      },
      at_once);
  check(
      "the tensor of [2, 3, 4] has no memory", [](auto& f) { f.tensor.dl_tensor.data = nullptr; }, at_once);
  check(
      "the tensor's elements are float64, float32 was asked for", [](auto&) {},
      [](const data::Dlpack& taken) { taken.array<float>(); });
  check(
      "the tensor's elements are complex128, float64 was asked for",
      [](auto& f) {
        f.tensor.dl_tensor.dtype = {5, 128, 1};
      },
      [](const data::Dlpack& taken) { taken.array<double>(); });
  check(
      "the tensor's elements are type code 8 of 8 bits, float64 was asked for",
      [](auto& f) {
        f.tensor.dl_tensor.dtype = {8, 8, 1};
      },
      [](const data::Dlpack& taken) { taken.array<double>(); });
  check(
      "the tensor's address is no multiple of 8, the bytes of its float64: copy it",
      [](auto& f) { f.tensor.dl_tensor.byte_offset = 4; }, [](const data::Dlpack& taken) { taken.array<double>(); });
  CHECK(refused == 11);
  CHECK(refusal([] { data::Dlpack::take<data::dlpack::ManagedTensor>(nullptr); }) == "the tensor is null");

  Plain scalar({});
  scalar.tensor.deleter = nullptr;  // of memory that nobody releases
  FieldBatch<state> batch;
  const auto taken = data::Dlpack::take(&scalar.tensor);
  CHECK(message<ShapeError>([&] { batch[state].view(taken.array<double>()); }) != "");
}
