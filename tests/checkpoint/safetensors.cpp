// SPDX-License-Identifier: Apache-2.0
// covers: weft/checkpoint/data_types.hpp
// The safetensors reader against the rules of the reference implementation, and the writer against the reader.

#include <doctest/doctest.h>

#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include <weft/checkpoint/data_types.hpp>
#include <weft/checkpoint/safetensors.hpp>

#include "support/temporary_folder.hpp"

using namespace weft;
using checkpoint::Safetensors;
using checkpoint::StoredType;

namespace {

std::string file_of(const std::string& header, std::size_t data, std::uint64_t announced) {
  std::string out(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) out[i] = char(announced >> (8 * i) & 255);
  return out + header + std::string(data, '\x2a');
}
std::string file_of(const std::string& header, std::size_t data) { return file_of(header, data, header.size()); }

struct Folder {
  weft_test::TemporaryFolder folder;
  std::string path = (folder.path / "model.safetensors").string();
  Safetensors open(const std::string& bytes) {
    std::ofstream(path, std::ios::binary).write(bytes.data(), std::streamsize(bytes.size()));
    return Safetensors::open(path);
  }
  /// The message with which these bytes are refused.
  std::string refused(const std::string& bytes) {
    try {
      open(bytes);
    } catch (const checkpoint::Error& error) {
      CHECK(error.file() == path);
      CHECK(error.exit_code() == 2);
      return error.what();
    }
    return "accepted";
  }
};
bool contains(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

std::string one(const std::string& fields) { return "{\"a\":{" + fields + "}}"; }

}  // namespace

TEST_CASE("a file of several types is written and read back") {
  Folder folder;
  std::vector<checkpoint::StoredTensor> tensors = {{"a", StoredType::f32, {2, 3}, 0, 0},
                                                   {"b.\"quoted\"\n", StoredType::bf16, {}, 0, 0},
                                                   {"empty", StoredType::i64, {4, 0, 2}, 0, 0},
                                                   {"flags", StoredType::boolean, {3}, 0, 0}};
  std::string bytes = checkpoint::safetensors_header(tensors, {{"format", "pt"}, {"by", "weft"}});
  CHECK(bytes.size() % 8 == 0);
  for (int i = 0; i < 24 + 2 + 0 + 3; ++i) bytes += char(i);
  const Safetensors file = folder.open(bytes);
  REQUIRE(file.tensors().size() == 4);
  CHECK(file.metadata() == std::map<std::string, std::string>{{"format", "pt"}, {"by", "weft"}});
  for (const auto& tensor : tensors) {
    const auto* found = file.find(tensor.name);
    REQUIRE(found != nullptr);
    CHECK(found->type == tensor.type);
    CHECK(found->shape == tensor.shape);
    CHECK(found->begin == tensor.begin);
    CHECK(found->end == tensor.end);
  }
  CHECK(file.find("c") == nullptr);
  std::vector<std::byte> values(3);
  file.read(*file.find("flags"), values);
  CHECK(values[2] == std::byte(28));
  file.read(*file.find("a"), std::span(values).first(2), 22);
  CHECK(values[1] == std::byte(23));
  CHECK_THROWS_WITH_AS(file.read(*file.find("a"), values, 22),
                       doctest::Contains("3 bytes are asked for from byte 22 on, and it has 24"), checkpoint::Error);
}

TEST_CASE("files that the reference accepts") {
  Folder folder;
  CHECK(folder.open(file_of("{}", 0)).tensors().empty());
  CHECK(folder.open(file_of("{}      ", 0)).tensors().empty());
  CHECK(folder.open(file_of(one("\"dtype\":\"I32\",\"shape\":[2,2],\"data_offsets\":[0,16]"), 16)).tensors().size() == 1);
  CHECK(folder.open(file_of(one("\"shape\":[],\"data_offsets\":[0,8],\"dtype\":\"F64\"") + "   ", 8)).tensors()[0].shape.empty());
  CHECK(folder.open(file_of(one("\"dtype\":\"F32\",\"shape\":[2,0],\"data_offsets\":[0,0]"), 0)).tensors()[0].bytes() == 0);
  // Out of order in the header, in order in the file.
  const Safetensors two =
      folder.open(file_of("{\"b\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[2,5]},"
                          "\"a\":{\"dtype\":\"F16\",\"shape\":[1],\"data_offsets\":[0,2]}}",
                          5));
  CHECK(two.tensors()[0].name == "a");
  CHECK(two.find("b")->begin == 2);
  CHECK(folder.open(file_of("{\"__metadata__\":{\"framework\":\"pt\"}}", 0)).metadata().at("framework") == "pt");
}

TEST_CASE("files that the reference refuses, and those that only weft refuses") {
  Folder folder;
  const std::string good = "\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "has 0 bytes, too few"},
      {"1234567", "has 7 bytes, too few"},
      {file_of("{}", 0, 100'000'001), "announces a header of 100000001 bytes, more than 100000000"},
      {file_of("{}", 0, ~std::uint64_t(0)), "more than 100000000"},
      {file_of("{}", 0, 3), "announces a header of 3 bytes, and 2 follow"},
      {file_of("", 0), "does not begin with {"},
      {file_of(" {}", 0), "does not begin with {"},
      {file_of("[]", 0), "does not begin with {"},
      {file_of("{", 0), "is not the JSON that it should be"},
      {file_of("{}x", 0), "is not the JSON that it should be"},
      {file_of(std::string("{}\0\0", 4), 0), "byte 10: is not the JSON that it should be: a byte of value 0"},
      {file_of(std::string("{}\0x", 4), 0), "a byte of value 0, which no JSON text has"},
      {file_of("{\"\xff\":1}", 0), "is not the JSON that it should be"},
      {file_of("{\"a\":1}", 0), "has a number where none belongs"},
      {file_of("{\"a\":null}", 0), "has null where none belongs"},
      {file_of("{\"a\":[]}", 0), "has an array where none belongs"},
      {file_of(one(""), 0), "lacks one of dtype, shape and data_offsets"},
      {file_of(one("\"dtype\":\"F32\",\"shape\":[1]"), 4), "lacks one of dtype, shape and data_offsets"},
      {file_of(one(good + ",\"more\":1"), 4), "has a field more"},
      {file_of(one(good + ",\"shape\":[1]"), 4), "has its field shape twice"},
      {file_of("{\"a\":{" + good + "},\"a\":{" + good + "}}", 4), "the header has this key twice"},
      {file_of("{\"__metadata__\":{\"a\":\"b\",\"a\":\"c\"}}", 0), "__metadata__ has the key a twice"},
      {file_of("{\"__metadata__\":{\"a\":1}}", 0), "has a number where none belongs"},
      {file_of(one("\"dtype\":\"F33\",\"shape\":[1],\"data_offsets\":[0,4]"), 4),
       "its dtype is F33, which weft does not support"},
      {file_of(one("\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]"), 4), "a negative number"},
      {file_of(one("\"dtype\":\"F32\",\"shape\":[1.0],\"data_offsets\":[0,4]"), 4), "a number that is not whole"},
      {file_of(one("\"dtype\":\"F32\",\"shape\":[18446744073709551616],\"data_offsets\":[0,4]"), 4), "or too large"},
      {file_of(one("\"dtype\":\"F32\",\"shape\":[9223372036854775807,4],\"data_offsets\":[0,4]"), 4),
       "more elements than a number holds"},
      {file_of(one("\"dtype\":\"F64\",\"shape\":[4611686018427387904],\"data_offsets\":[0,0]"), 0),
       "more elements than a number holds"},
      {file_of(one("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]"), 4), "make 8 bytes, its data_offsets 4"},
      {file_of(one("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]"), 8), "there are no holes and no overlaps"},
      {file_of(one("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]"), 4), "there are no holes and no overlaps"},
      {file_of(one("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]"), 4), "has one data_offset"},
      {file_of(one("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,4]"), 4), "more than two data_offsets"},
      {file_of("{\"a\":{" + good + "},\"b\":{" + good + "}}", 4), "there are no holes and no overlaps"},
      {file_of("{\"a\":{" + good + "},\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[8,12]}}", 12),
       "there are no holes and no overlaps"},
      {file_of(one(good), 3), "describes 4 bytes of tensors, and 3 follow it"},
      {file_of(one(good), 5), "describes 4 bytes of tensors, and 5 follow it"},
      {file_of("{\"" + std::string(4097, 'n') + "\":{" + good + "}}", 4), "name has 4097 bytes, more than 4096"},
      {file_of(one("\"dtype\":\"U8\",\"shape\":[" +
                   [] {
                     std::string ones = "1";
                     for (int i = 0; i < 32; ++i) ones += ",1";
                     return ones;
                   }() +
                   "],\"data_offsets\":[0,1]"),
               1),
       "has more than 32 dims"},
      {file_of("{\"a\":{\"dtype\":" + std::string(1'000'000, '['), 0), "an array where none belongs"},
  };
  for (const auto& [bytes, expected] : cases) {
    const std::string what = folder.refused(bytes);
    INFO(what << " | expected: " << expected);
    CHECK(contains(what, expected));
    CHECK(contains(what, "weft: checkpoint: "));
  }
}

TEST_CASE("a fault names its tensor and its byte") {
  Folder folder;
  try {
    folder.open(file_of(one("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]"), 4));
    FAIL("accepted");
  } catch (const checkpoint::Error& error) {
    CHECK(error.tensor() == "a");
  }
  try {
    folder.open(file_of("{\"a\":}", 0));
    FAIL("accepted");
  } catch (const checkpoint::Error& error) {
    CHECK(error.offset() == 8 + 5);
  }
}

TEST_CASE("links are followed on request, other kinds of files never") {
  Folder folder;
  folder.open(file_of("{}", 0));
  const std::string link = (folder.folder.path / "link").string();
  std::filesystem::create_symlink(folder.path, link);
  CHECK(Safetensors::open(link).tensors().empty());
  CHECK_THROWS_WITH_AS(Safetensors::open(link, {.follow_links = false}), doctest::Contains("is a link"), checkpoint::Error);
  CHECK_THROWS_WITH_AS(Safetensors::open(folder.folder.path.string()), doctest::Contains("is no plain file"), checkpoint::Error);
  CHECK_THROWS_WITH_AS(Safetensors::open(link + "x"), doctest::Contains("cannot be opened: No such file"), checkpoint::Error);
}

TEST_CASE("every truncation and ten thousand damages are refused or change only values") {
  Folder folder;
  std::vector<checkpoint::StoredTensor> tensors = {{"weight", StoredType::f32, {8, 4}, 0, 0},
                                                   {"bias", StoredType::f32, {4}, 0, 0}};
  const std::string header = checkpoint::safetensors_header(tensors, {{"by", "weft"}}), whole = header + std::string(144, 'x');
  for (std::size_t length = 0; length < whole.size(); ++length) CHECK(folder.refused(whole.substr(0, length)) != "accepted");
  // Damaged headers: an accepted one still describes existing bytes.
  std::mt19937_64 random(5);
  std::size_t refused = 0;
  for (int i = 0; i < 10'000; ++i) {
    std::string damaged = header;
    for (std::uint64_t many = 1 + random() % 4; many > 0; --many) damaged[random() % damaged.size()] = char(random());
    try {
      const std::uint64_t announced = std::uint64_t(std::uint8_t(damaged[0])) | std::uint64_t(std::uint8_t(damaged[1])) << 8;
      if (damaged.substr(2, 6) != std::string(6, '\0') || announced > whole.size() - 8) {
        ++refused;
        continue;
      }
      const std::string all = damaged + std::string(144, 'x');
      const auto parsed =
          checkpoint::parse_safetensors_header("f", std::string_view(all).substr(8, announced), all.size() - 8 - announced);
      std::uint64_t bytes = 0;
      for (const auto& tensor : parsed.tensors) bytes += tensor.bytes();
      CHECK(bytes == all.size() - 8 - announced);
    } catch (const checkpoint::Error&) {
      ++refused;
    }
  }
  CHECK(refused > 8000);
}
