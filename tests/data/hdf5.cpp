// SPDX-License-Identifier: Apache-2.0
// covers: weft/data/hdf5.hpp weft/data/hdf5_set.hpp
// Sets of HDF5 files as fields: types, byte orders and layouts that HDF5 writes, a rank's samples and its piece of them, and the
// message of each file, set and piece that is refused.

#include <doctest/doctest.h>

#include <cstdint>
#include <fstream>
#include <iterator>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include <weft/core/scalar.hpp>
#include <weft/data/hdf5.hpp>
#include <weft/data/hdf5_set.hpp>
#include <weft/data/loader.hpp>
#include <weft/mesh/mesh.hpp>
#include <weft/runtime/run.hpp>

#include "support/message.hpp"
#include "support/temporary_folder.hpp"

using namespace weft;
using namespace weft_test;

namespace {

inline constexpr data::Field<"state", float, data::Cut<dx, 2>, data::Cut<dy, 3>> state;
inline constexpr data::Field<"field", double> field;
inline constexpr data::Field<"single", float> single;
inline constexpr data::Field<"label", std::int32_t> label;
inline constexpr data::Field<"half", float16> half;

/// A file that the test writes through HDF5's C interface.
struct Writer {
  hid_t file;
  explicit Writer(const std::string& path) : file(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT)) {
    REQUIRE(file >= 0);
  }
  ~Writer() { H5Fclose(file); }

  template <class T>
  void set(const char* name, hid_t stored, hid_t memory, const std::vector<hsize_t>& extents, const std::vector<T>& values,
           const std::vector<hsize_t>& chunk = {}) {
    const hid_t space = extents.empty() ? H5Screate(H5S_SCALAR) : H5Screate_simple(int(extents.size()), extents.data(), nullptr);
    const hid_t groups = H5Pcreate(H5P_LINK_CREATE), creation = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_create_intermediate_group(groups, 1);
    if (!chunk.empty()) {
      H5Pset_chunk(creation, int(chunk.size()), chunk.data());
      H5Pset_shuffle(creation);
      H5Pset_deflate(creation, 4);
    }
    const hid_t set = H5Dcreate2(file, name, stored, space, groups, creation, H5P_DEFAULT);
    REQUIRE(set >= 0);
    if (!values.empty()) REQUIRE(H5Dwrite(set, memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()) >= 0);
    H5Dclose(set), H5Pclose(creation), H5Pclose(groups), H5Sclose(space);
  }
};

template <class T>
std::vector<T> counted(std::size_t count, T first = T(0)) {
  std::vector<T> values(count);
  std::iota(values.begin(), values.end(), first);
  return values;
}

template <class T>
void check_type(data::Hdf5& file, const char* name, const char* type) {
  const data::Hdf5Set set = file[name];
  CHECK(set.type().text() == type);
  CHECK(set.shape() == std::vector<std::size_t>{3, 2});
  for (std::size_t sample = 0; sample < 3; ++sample) {
    T values[2]{};
    set.read(sample, std::span<T>(values));
    CHECK(double(values[0]) == double(2 * sample));
    CHECK(double(values[1]) == double(2 * sample + 1));
  }
}

constexpr std::size_t samples = 5, channels = 2, rows = 7, columns = 6;

}  // namespace

TEST_CASE("types, byte orders and layouts") {
  const TemporaryFolder folder;
  const std::string path = folder.path / "types.h5";
  {
    Writer out(path);
    const std::vector<double> values = counted<double>(6);
    const hid_t memory = H5T_NATIVE_DOUBLE;
    out.set("f8", H5T_IEEE_F64LE, memory, {3, 2}, values);
    out.set("f8big", H5T_IEEE_F64BE, memory, {3, 2}, values);
    out.set("f4", H5T_IEEE_F32LE, memory, {3, 2}, values);
    out.set("f4big", H5T_IEEE_F32BE, memory, {3, 2}, values);
    out.set("i1", H5T_STD_I8LE, memory, {3, 2}, values);
    out.set("u1", H5T_STD_U8BE, memory, {3, 2}, values);
    out.set("i2", H5T_STD_I16BE, memory, {3, 2}, values);
    out.set("u4", H5T_STD_U32LE, memory, {3, 2}, values);
    out.set("i8", H5T_STD_I64BE, memory, {3, 2}, values);
    out.set("deep/er/u8", H5T_STD_U64LE, memory, {3, 2}, values);
    out.set("chunks", H5T_IEEE_F32LE, memory, {3, 2}, values, {2, 1});
    // float16 as h5py stores it
    const hid_t f2 = H5Tcopy(H5T_IEEE_F32LE);
    H5Tset_fields(f2, 15, 10, 5, 0, 10), H5Tset_size(f2, 2), H5Tset_ebias(f2, 15);
    out.set("f2", f2, memory, {3, 2}, values);
    H5Tset_order(f2, H5T_ORDER_BE);
    out.set("f2big", f2, memory, {3, 2}, values);
    // bfloat16's bits are not float16's
    H5Tset_fields(f2, 15, 7, 8, 0, 7), H5Tset_ebias(f2, 127);
    out.set("bf2", f2, memory, {3, 2}, values);
    H5Tclose(f2);
    const hid_t truth = H5Tenum_create(H5T_STD_I8LE);
    const std::int8_t no = 0, yes = 1;
    H5Tenum_insert(truth, "FALSE", &no), H5Tenum_insert(truth, "TRUE", &yes);
    out.set("bool", truth, truth, {2}, std::vector<std::int8_t>{0, 1});
    H5Tclose(truth);
  }
  data::Hdf5 file = data::Hdf5::open(path);
  check_type<double>(file, "f8", "float64");
  check_type<double>(file, "f8big", "float64");
  check_type<float>(file, "f4", "float32");
  check_type<float>(file, "f4big", "float32");
  check_type<std::int8_t>(file, "i1", "int8");
  check_type<std::uint8_t>(file, "u1", "uint8");
  check_type<std::int16_t>(file, "i2", "int16");
  check_type<std::uint32_t>(file, "u4", "uint32");
  check_type<std::int64_t>(file, "i8", "int64");
  check_type<std::uint64_t>(file, "deep/er/u8", "uint64");
  check_type<float>(file, "/chunks", "float32");
  check_type<float16>(file, "f2", "float16");
  check_type<float16>(file, "f2big", "float16");
  CHECK(file["bool"].type().text() == "bool");
  std::uint8_t read[] = {7};
  file["bool"].read<std::uint8_t>(1, std::span<std::uint8_t>(read));
  CHECK(read[0] == 1);
  CHECK(message<UsageError>([&] { file["bf2"]; }) ==
        "weft: data: cannot read '" + path +
            "': set 'bf2': its elements are floating-point numbers of 2 bytes: float16, "
            "float32, float64, whole numbers of 8 to 64 bits and bool are known");
}

TEST_CASE("the samples of a loader") {
  const TemporaryFolder folder;
  const std::string path = folder.path / "run.h5";
  {
    Writer out(path);
    out.set("u", H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, {8, 2, 3}, counted<double>(48));
    out.set("wide", H5T_IEEE_F32LE, H5T_NATIVE_DOUBLE, {8, 2, 3}, counted<double>(48), {4, 2, 2});
    out.set("class", H5T_STD_U8LE, H5T_NATIVE_INT, {8}, std::vector<int>{0, 1, 2, 3, 3, 2, 1, 9});
    out.set("short", H5T_STD_U8LE, H5T_NATIVE_INT, {7}, counted<int>(7));
  }
  const data::Hdf5 file = data::Hdf5::open(path);
  const data::Arrays dataset(data::array<field>(file["u"]),
                             data::array<half, float>(file["wide"], {.shape = Shape{6}, .scale = 0.5, .shift = 1}),
                             data::array<label, std::uint8_t>(file["class"], {.classes = 10}));
  static_assert(data::Dataset<std::remove_const_t<decltype(dataset)>>);
  for (const std::size_t ahead : {0, 2}) {
    data::Loader loader(data::Share{1, 2}, dataset, {.global_batch = 4, .shuffle = false, .ahead = ahead});
    std::size_t first = 2, steps = 0;
    for (const auto& batch : loader) {
      batch.check();
      CHECK(batch[field].shape() == Shape{2, 3});
      CHECK(batch[half].shape() == Shape{6});
      for (std::size_t i = 0; i < 12; ++i) {
        CHECK(batch[field].values()[i] == double(first * 6 + i));
        CHECK(float(batch[half].values()[i]) == float(double(first * 6 + i) * 0.5 + 1));
      }
      CHECK(batch[label].values()[1] == (first == 2 ? 3 : 9));
      first += 4, ++steps;
    }
    CHECK(steps == 2);
  }
  CHECK(message<std::exception>([&] {
          data::Arrays one(data::array<label, std::uint8_t>(file["class"], {.classes = 9}));
          data::Loader(data::Share{}, one, {.global_batch = 8, .ahead = 0}).batch(0);
        }) == "weft: loader: sample 7 of step 0: batch: field label: label(9) of sample 7 is not in classes(9), 0 to 8");
  CHECK(message<UsageError>([&] { data::array<single>(file["u"]); }) ==
        "weft: data: cannot read '" + path + "': set 'u': its elements are float64, float32 was asked for");
  CHECK(message<ShapeError>([&] { data::array<field>(file["u"], {.shape = Shape{7}}); }) ==
        "weft: data: field field: the array's samples are [2, 3], which are not as many elements as [7]");
  CHECK(message<ShapeError>([&] {
          data::Arrays(data::array<field>(file["u"]), data::array<label, std::uint8_t>(file["short"]));
        }) == "weft: data: field label has 7 samples, field field has 8");
}

TEST_CASE("ranks read the pieces of the domain axes") {
  const TemporaryFolder folder;
  const std::string path = folder.path / "cut.h5";
  {
    Writer out(path);
    out.set("u", H5T_IEEE_F32LE, H5T_NATIVE_DOUBLE, {samples, channels, rows, columns},
            counted<double>(samples * channels * rows * columns), {2, 1, 4, 4});
  }
  std::mutex mutex;
  std::vector<int> seen(samples * channels * rows * columns);
  // 4 samples of an epoch, 2 of each rank of dp; rows 4 and 3, columns 2, 2 and 2.
  CHECK(run(RunOptions{.ranks = 12}, [&](World& world) {
          const Mesh mesh(world, axes<dp, dx, dy>, {.dp = 2, .dx = 2, .dy = 3});
          const data::Hdf5 file = data::Hdf5::open(path);
          const data::Arrays dataset(data::array<state>(mesh, file["u"]));
          data::Loader loader(mesh, dataset, {.global_batch = 4, .shuffle = false});
          const auto batch = loader.batch(0);
          const std::size_t x = std::size_t(mesh.rank(dx{})), y = std::size_t(mesh.rank(dy{})), height = x == 0 ? 4 : 3;
          const std::scoped_lock lock(mutex);
          CHECK(batch[state].shape() == Shape{channels, height, 2});
          std::size_t at = 0;
          for (std::size_t n = 0; n < 2; ++n)
            for (std::size_t c = 0; c < channels; ++c)
              for (std::size_t i = 0; i < height; ++i)
                for (std::size_t j = 0; j < 2; ++j) {
                  const std::size_t sample = std::size_t(mesh.rank(dp{})) * 2 + n;
                  const std::size_t place = ((sample * channels + c) * rows + x * 4 + i) * columns + y * 2 + j;
                  CHECK(batch[state].values()[at++] == float(place));
                  ++seen[place];
                }
        }) == 0);
  for (std::size_t i = 0; i < seen.size(); ++i) CHECK(seen[i] == (i < 4 * channels * rows * columns ? 1 : 0));

  const data::Hdf5 file = data::Hdf5::open(path);
  const std::string where = "'u' of '" + path + "'";
  CHECK(message<UsageError>([&] { data::array<state>(file["u"].piece(2, 0, 3)); }) ==
        "weft: data: field state: its dim 3 is cut over a domain axis, and set " + where +
            " is whole there: give the mesh, data::array<field>(mesh, set), or cut it, set.piece(3, first, count)");
  // The program's own pieces, which need not be even.
  const auto mine = data::array<state>(file["u"].piece(2, 1, 5).piece(3, 4, 1));
  CHECK(mine.shape == Shape{channels, 5, 1});
  std::vector<float> values(10);
  mine.load(3, values);
  CHECK(values[7] == float(((3 * channels + 1) * rows + 3) * columns + 4));
  CHECK(message<ShapeError>([&] {
          data::array<state>(file["u"].piece(2, 1, 5).piece(3, 4, 1), {.shape = Shape{5, channels, 1}});
        }) == "weft: data: field state: domain axes cut it, and the piece [5, 2, 5, 1] of set " + where +
                  " is no samples of [5, 2, 1]");
  // The identity of a dataset is one for all layouts.
  CHECK(mine.identity().digest == file["u"].identity().digest);
  CHECK(message<ShapeError>([&] { file["u"].piece(2, 5, 3); }) ==
        "weft: data: set " + where + " has the extent 7 in dim 2: it has no 3 places from 5 on");
  CHECK(message<ShapeError>([&] { file["u"].piece(0, 0, 3); }) ==
        "weft: data: set " + where + " has the shape [5, 2, 7, 6]: no piece of dim 0, samples are dim 0");
  CHECK(run(RunOptions{.ranks = 8}, [&](World& world) {
          const Mesh mesh(world, axes<dp, dy>, {.dp = 1, .dy = 8});
          const std::string text = message<ShapeError>([&] { data::array<state>(mesh, data::Hdf5::open(path)["u"]); });
          const std::scoped_lock lock(mutex);
          CHECK(text == "weft: data: field state: set " + where + " has the extent 6 in dim 3, which dy(8) cannot cut");
        }) == 0);
}

TEST_CASE("sets without the field's dims of one place") {
  const TemporaryFolder folder;
  const std::string path = folder.path / "flat.h5";
  Writer(path).set("u", H5T_IEEE_F32LE, H5T_NATIVE_DOUBLE, {3, rows, 1, rows}, counted<double>(3 * rows * rows));
  std::mutex mutex;
  CHECK(run(RunOptions{.ranks = 4}, [&](World& world) {
          const Mesh mesh(world, axes<dx, dy>, {.dx = 2, .dy = 2});
          const data::Hdf5Set u = data::Hdf5::open(path)["u"];
          const auto values = data::array<state>(mesh, u, {.shape = Shape{1, rows, rows}});
          const std::size_t x = std::size_t(mesh.rank(dx{})), y = std::size_t(mesh.rank(dy{})), height = x ? 3 : 4,
                            width = y ? 3 : 4;
          std::vector<float> read(height * width);
          const std::scoped_lock lock(mutex);
          CHECK(values.shape == Shape{1, height, width});
          values.load(2, read);
          for (std::size_t i = 0; i < height; ++i)
            for (std::size_t j = 0; j < width; ++j)
              CHECK(read[i * width + j] == float((2 * rows + x * 4 + i) * rows + y * 4 + j));
          const std::string begin = "weft: data: field state: its dim 2 of [samples, ...] is cut, and set 'u' of '" + path +
                                    "' with the shape [3, 7, 1, 7] has no such dim as samples of ";
          for (const Shape& wrong : {Shape{rows, 1, rows}, Shape{1, rows * rows}, Shape{1, rows, rows, 2}, Shape{rows}})
            CHECK(message<ShapeError>([&] { data::array<state>(mesh, u, {.shape = wrong}); }) == begin + wrong.text());
        }) == 0);
}

TEST_CASE("an identity notices another set") {
  const TemporaryFolder folder;
  const std::string path = folder.path / "identity.h5";
  std::vector<double> values = counted<double>(3000 * 4);
  const auto identity_of = [&](std::vector<hsize_t> extents, hid_t type, std::vector<hsize_t> chunk = {}) {
    Writer(path).set("u", type, H5T_NATIVE_DOUBLE, extents, values, chunk);
    return data::Hdf5::open(path)["u"].identity();
  };
  const DataIdentity first = identity_of({3000, 4}, H5T_IEEE_F64LE);
  CHECK(first.bytes == 3000 * 4 * 8);
  CHECK(identity_of({3000, 4}, H5T_IEEE_F64BE, {100, 3}).digest == first.digest);  // stored in another way
  CHECK(identity_of({4, 3000}, H5T_IEEE_F64LE).settings != first.settings);
  CHECK(identity_of({3000, 4}, H5T_STD_I64LE).settings != first.settings);
  values.back() = 0;  // of the last line
  CHECK(identity_of({3000, 4}, H5T_IEEE_F64LE).digest != first.digest);
}

TEST_CASE("refused files and sets") {
  const TemporaryFolder folder;
  const std::string path = folder.path / "some.h5";
  {
    Writer out(path);
    out.set("u", H5T_IEEE_F32LE, H5T_NATIVE_DOUBLE, {4, 3}, counted<double>(12));
    out.set("flow/p", H5T_IEEE_F32LE, H5T_NATIVE_DOUBLE, {4, 3}, counted<double>(12));
    out.set("scalar", H5T_IEEE_F32LE, H5T_NATIVE_DOUBLE, {}, counted<double>(1));
    out.set("empty", H5T_IEEE_F32LE, H5T_NATIVE_DOUBLE, {0, 3}, std::vector<double>());
    out.set("deep", H5T_IEEE_F32LE, H5T_NATIVE_DOUBLE, {1, 1, 1, 1, 1, 1, 1, 2}, counted<double>(2));
    out.set("vast", H5T_IEEE_F32LE, H5T_NATIVE_DOUBLE, {hsize_t(1) << 40, 1 << 19, 1 << 19}, std::vector<double>(), {1, 1, 64});
    const hid_t text = H5Tcopy(H5T_C_S1);
    H5Tset_size(text, 5);
    out.set("text", text, text, {2}, std::vector<char>(10, 'a'));
    H5Tclose(text);
    const hid_t complex = H5Tcreate(H5T_COMPOUND, 16);
    H5Tinsert(complex, "r", 0, H5T_NATIVE_DOUBLE), H5Tinsert(complex, "i", 8, H5T_NATIVE_DOUBLE);
    out.set("complex", complex, complex, {2}, counted<double>(4));
    H5Tclose(complex);
  }
  const auto refusal = [](const std::string& file, auto&& f) {
    const std::string text = message<UsageError>(f), begin = "weft: data: cannot read '" + file + "': ";
    CHECK(text.find('\n') == text.npos);
    REQUIRE(text.starts_with(begin));
    return text.substr(begin.size());
  };
  const data::Hdf5 file = data::Hdf5::open(path);
  const auto of_set = [&](const char* name) { return refusal(path, [&] { file[name]; }); };
  CHECK(of_set("v") ==
        "set 'v': it is not there; the file has 'complex', 'deep', 'empty', 'flow', 'scalar', 'text', 'u', 'vast'");
  CHECK(of_set("").starts_with("set '': it is not there; the file has 'complex'"));
  CHECK(of_set("flow").starts_with("set 'flow': it is not there"));  // a group
  CHECK(of_set("flow/q").starts_with("set 'flow/q': it is not there"));
  CHECK(of_set("scalar") == "set 'scalar': it has 0 dims: samples, and up to 6 of a sample, are 1 to 7");
  CHECK(of_set("deep") == "set 'deep': it has 8 dims: samples, and up to 6 of a sample, are 1 to 7");
  CHECK(of_set("empty") == "set 'empty': its shape [0, 3] has no elements");
  CHECK(of_set("vast") == "set 'vast': its shape [1099511627776, 524288, 524288] is more than can be counted");
  CHECK(of_set("text").starts_with("set 'text': its elements are texts of 5 bytes: float16, float32"));
  CHECK(of_set("complex").starts_with("set 'complex': its elements are records of several fields (compound) of 16 bytes"));

  CHECK(refusal("none.h5", [] { data::Hdf5::open("none.h5"); }).starts_with("it is no HDF5 file that can be read: "));
  CHECK(refusal("none.h5", [] { data::Hdf5::open("none.h5"); }).find("No such file") != std::string::npos);
  std::ifstream in(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(in)), {});
  for (const std::size_t length : {std::size_t(0), std::size_t(100), bytes.size() / 2, bytes.size() - 1}) {
    const std::string cut = folder.path / "cut.h5";
    std::ofstream(cut, std::ios::binary) << bytes.substr(0, length);
    refusal(cut, [&] { data::Hdf5::open(cut); });
  }
}

TEST_CASE("threads read at the same time, and sets outlive the file") {
  const TemporaryFolder folder;
  const std::string path = folder.path / "threads.h5";
  Writer(path).set("u", H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, {64, 32}, counted<double>(2048), {8, 8});
  const auto values = data::array<field>(data::Hdf5::open(path)["u"]);
  std::vector<int> wrong(4);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread)
    threads.emplace_back([&, thread] {
      std::vector<double> sample(32);
      for (std::size_t i = 0; i < 256; ++i) {
        const std::size_t index = (i * 7 + std::size_t(thread) * 13) % 64;
        values.load(index, sample);
        for (std::size_t k = 0; k < 32; ++k) wrong[std::size_t(thread)] += sample[k] != double(index * 32 + k);
      }
    });
  for (std::thread& one : threads) one.join();
  CHECK(wrong == std::vector<int>(4));
}
