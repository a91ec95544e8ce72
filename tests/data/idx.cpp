// SPDX-License-Identifier: Apache-2.0
// IDX files: every type, gzip, and the message for each invalid file.
// covers: weft/data/file_bytes.hpp weft/data/idx.hpp

#include <doctest/doctest.h>

#include <sys/stat.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include <weft/data/file_bytes.hpp>
#include <weft/data/idx.hpp>

#include "data/support/formats.hpp"
#include "support/message.hpp"
#include "support/temporary_folder.hpp"

using namespace weft;
using namespace weft_test;
namespace fs = std::filesystem;

namespace {

template <class T>
void check_type(std::uint8_t type, const char* name) {
  const std::vector<T> values{T(1), T(0), T(100), T(-3), T(7), T(8)};
  const data::Idx idx = data::Idx::from_bytes("a.idx", idx_file<T>(type, {3, 2}, values));
  CHECK(idx.shape() == std::vector<std::size_t>{3, 2});
  CHECK(idx.type().text() == name);
  const std::span<const T> read = idx.values<T>();
  CHECK(std::vector<T>(read.begin(), read.end()) == values);
}

std::string refusal(const Bytes& bytes) {
  const std::string text = message<UsageError>([&] { data::Idx::from_bytes("a.idx", bytes); });
  constexpr std::string_view begin = "weft: data: cannot read 'a.idx': ";
  REQUIRE(text.starts_with(begin));
  return text.substr(begin.size());
}

std::string write(const fs::path& path, const Bytes& bytes) {
  std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(bytes.data()), std::streamsize(bytes.size()));
  return path.string();
}

}  // namespace

TEST_CASE("every type of elements") {
  check_type<std::uint8_t>(0x08, "uint8");
  check_type<std::int8_t>(0x09, "int8");
  check_type<std::int16_t>(0x0B, "int16");
  check_type<std::int32_t>(0x0C, "int32");
  check_type<float>(0x0D, "float32");
  check_type<double>(0x0E, "float64");
  const auto idx = data::Idx::from_bytes("a.idx", idx_file<std::uint8_t>(8, {2}, {1, 2}));
  CHECK(message<UsageError>([&] { idx.values<float>(); }) ==
        "weft: data: cannot read 'a.idx': its elements are uint8, float32 was asked for");
}

TEST_CASE("files, mapped or with gzip") {
  const TemporaryFolder folder;
  const auto plain = data::Idx::open(write(folder.path / "plain", idx_file<std::uint8_t>(8, {2, 2}, {1, 2, 3, 4})));
  CHECK(plain.values<std::uint8_t>()[3] == 4);
  const auto copy = plain;
  CHECK(copy.values<std::uint8_t>().data() == plain.values<std::uint8_t>().data());
  const std::string zipped = write(folder.path / "stored.gz", gzip_stored);  // "plain bytes": unzipped, and then no IDX file
  CHECK(message<UsageError>([&] { data::Idx::open(zipped); }) ==
        "weft: data: cannot read '" + zipped + "': it is no IDX file: it begins with the bytes 112, 108, not 0, 0");
}

TEST_CASE("paths that are no file that can be mapped") {
  const TemporaryFolder folder;
  const auto refused = [&](const std::string& name) {
    const std::string file = (folder.path / name).string(), text = message<UsageError>([&] { data::Idx::open(file); });
    REQUIRE(text.starts_with("weft: data: cannot read '" + file + "': "));
    return text.substr(file.size() + 28);
  };
  write(folder.path / "empty", {});
  REQUIRE(mkfifo((folder.path / "fifo").c_str(), 0600) == 0);
  CHECK(refused("missing") == "there is no such file");
  CHECK(refused("") == "it is a folder, a file is needed");
  CHECK(refused("empty") == "it is empty (0 bytes)");
  CHECK(refused("fifo") == "it is a FIFO, a socket or a device, a regular file is needed");  // without waiting for a writer
}

TEST_CASE("files that are no IDX file, or less or more than one") {
  const Bytes whole = idx_file<std::uint8_t>(8, {2, 3}, {1, 2, 3, 4, 5, 6});
  for (std::size_t length = 1; length < whole.size(); ++length) {
    const std::string text = refusal(Bytes(whole.begin(), whole.begin() + std::ptrdiff_t(length)));
    if (length >= 4) CHECK(text.starts_with("it is cut off: "));
  }
  CHECK(refusal({0, 0, 8}) == "it has 3 bytes, an IDX file at least 8");
  CHECK(refusal({0, 0, 8, 2, 0, 0}) == "it is cut off: the header of 2 dims has 12 bytes, the file 6");
  CHECK(refusal(Bytes(whole.begin(), whole.end() - 1)) ==
        "it is cut off: its shape [2, 3] of uint8 needs 6 bytes behind the header's 12, the file has 5");
  Bytes longer = whole;
  longer.push_back(0);
  CHECK(refusal(longer) == "it is too long: its shape [2, 3] of uint8 needs 6 bytes behind the header's 12, the file has 7");
  Bytes other = whole;
  other[2] = 10;
  CHECK(refusal(other) == "it is no IDX file: its type of elements is 10, which is none of 8, 9, 11, 12, 13 and 14");
  CHECK(refusal(idx_file<std::uint8_t>(8, {}, {1})) == "it has no dims: an IDX file of samples has at least one");
  CHECK(refusal(idx_file<double>(0x0E, {~0u, ~0u, ~0u}, {})) ==
        "its shape [4294967295, 4294967295, 4294967295] of float64 is more than can be counted, the file has 16 bytes");
  CHECK(refusal(idx_file<std::uint8_t>(8, {0, 5}, {})) == "its shape [0, 5] has no elements");
  CHECK(refusal(idx_file<std::uint8_t>(8, {~0u, ~0u, 0}, {})).find("more than can be counted") != std::string::npos);
}

TEST_CASE("Fashion-MNIST, where Debian's package is installed") {
  const fs::path folder = "/usr/share/datasets/fashion-mnist";
  if (!fs::exists(folder / "t10k-labels-idx1-ubyte.gz")) {
    MESSAGE("dataset-fashion-mnist is not installed");
    return;
  }
  const auto labels = data::Idx::open((folder / "t10k-labels-idx1-ubyte.gz").string());
  const auto images = data::Idx::open((folder / "t10k-images-idx3-ubyte.gz").string());
  CHECK(images.shape() == std::vector<std::size_t>{10000, 28, 28});
  std::vector<int> of_class(10, 0);
  for (const std::uint8_t label : labels.values<std::uint8_t>()) ++of_class.at(label);
  CHECK(of_class == std::vector<int>(10, 1000));
}
