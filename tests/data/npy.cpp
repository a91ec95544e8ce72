// SPDX-License-Identifier: Apache-2.0
// .npy files: versions, types, headers as NumPy writes them and as it might, and the message of each file that is refused.

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

#include <weft/data/npy.hpp>

#include "data/support/formats.hpp"
#include "support/message.hpp"

using namespace weft;
using namespace weft_test;

namespace {

template <class T>
void check_type(const std::string& descr, const char* name) {
  const std::vector<T> values{T(1), T(0), T(100), T(3), T(7), T(8)};
  for (const std::uint8_t version : {1, 2, 3}) {
    const data::Npy npy = data::Npy::from_bytes("a.npy", npy_file(npy_dictionary(descr, "(3, 2)"), values, version));
    CHECK(npy.shape() == std::vector<std::size_t>{3, 2});
    CHECK(npy.type().text() == name);
    const std::span<const T> read = npy.values<T>();
    for (std::size_t i = 0; i < 6; ++i) CHECK(read[i] == values[i]);
  }
}

std::string refusal(const Bytes& bytes) {
  const std::string text = message<UsageError>([&] { data::Npy::from_bytes("a.npy", bytes); });
  constexpr std::string_view begin = "weft: data: cannot read 'a.npy': ";
  REQUIRE(text.starts_with(begin));
  CHECK(text.find('\n') == text.npos);
  return text.substr(begin.size());
}
std::string refusal(const std::string& dictionary) { return refusal(npy_file<float>(dictionary, {1, 2, 3, 4, 5, 6})); }

}  // namespace

TEST_CASE("versions and types") {
  check_type<float>("<f4", "float32");
  check_type<double>("<f8", "float64");
  check_type<float16>("<f2", "float16");
  check_type<std::int8_t>("|i1", "int8");
  check_type<std::uint8_t>("|u1", "uint8");
  check_type<std::int16_t>("<i2", "int16");
  check_type<std::int32_t>("<i4", "int32");
  check_type<std::int64_t>("<i8", "int64");
  check_type<std::uint16_t>("<u2", "uint16");
  check_type<std::uint32_t>("<u4", "uint32");
  check_type<std::uint64_t>("<u8", "uint64");
  CHECK(data::Npy::from_bytes("a", npy_file<std::uint8_t>(npy_dictionary("|b1", "(2,)"), {0, 1})).type().text() == "bool");
}

TEST_CASE("headers in other words") {
  const auto shape = [](const std::string& dictionary, std::size_t align = 64) {
    const auto npy = data::Npy::from_bytes("a.npy", npy_file<double>(dictionary, {1, 2, 3, 4, 5, 6}, 1, align));
    CHECK(npy.values<double>()[5] == 6);
    return npy.shape();
  };
  CHECK(shape("{\"shape\":(6,),\"fortran_order\":False,\"descr\":\"<f8\"}") == std::vector<std::size_t>{6});
  CHECK(shape("{'descr': '<f8', 'fortran_order': False, 'shape': (2L, 3L)}") == std::vector<std::size_t>{2, 3});
  CHECK(shape(npy_dictionary("<f8", "(1, 2, 3, 1)"), 1) ==
        std::vector<std::size_t>{1, 2, 3, 1});  // elements that are not aligned
}

TEST_CASE("refused files") {
  CHECK(refusal(npy_dictionary("<f4", "(2, 3)", "True")) ==
        "it is in Fortran order: save it in C order, np.save(file, np.ascontiguousarray(array))");
  for (const char* type : {"|O", "O"})
    CHECK(refusal(npy_dictionary(type, "(2, 3)")) == "its elements are Python objects (dtype '" + std::string(type) +
                                                         "'), which are pickled and could run anything: save numbers");
  CHECK(refusal(npy_dictionary(">f4", "(2, 3)")) ==
        "its elements ('>f4') are in the other order of bytes: save array.astype(array.dtype.newbyteorder('='))");
  for (const char* type : {"<U4", "<c8", "<M8[ns]", "<f16", "|V4", "", "<f3", "<i3"})
    CHECK(refusal(npy_dictionary(type, "(2, 3)")) ==
          "its elements are of dtype '" + std::string(type) +
              "': float16, float32, float64, whole numbers of 8 to 64 bits and bool are known");
  CHECK(refusal(npy_dictionary("<f\n" + std::string(100, 'x'), "(2, 3)")).starts_with("its elements are of dtype '<f?xxxxxx"));
  CHECK(refusal("{'descr': [('x', '<f4')], 'fortran_order': False, 'shape': (6,), }") ==
        "its elements are records of several fields (a structured dtype): save each field as a separate array");
  CHECK(refusal(npy_dictionary("<f4", "(2, 4)")) ==
        "it is cut off: its shape [2, 4] of float32 needs 32 bytes behind the header's 128, the file has 24");
  CHECK(refusal(npy_dictionary("<f4", "(2, 2)")) ==
        "it is too long: its shape [2, 2] of float32 needs 16 bytes behind the header's 128, the file has 24");
  CHECK(refusal(npy_dictionary("<f4", "(18446744073709551615, 2)")) ==
        "its shape [18446744073709551615, 2] of float32 is more than can be counted, the file has 152 bytes");
  CHECK(refusal(npy_dictionary("<f4", "(18446744073709551616,)")).ends_with("an extent is more than can be counted"));
  CHECK(refusal(npy_dictionary("<f4", "(4611686018427387904, 4)")).find("more than can be counted") != std::string::npos);
  CHECK(refusal(npy_dictionary("<f4", "(-6,)")).ends_with("an extent is no number"));
  CHECK(refusal(npy_dictionary("<f4", "(6)").substr(0, 40)).starts_with("its .npy header cannot be read at byte "));
  CHECK(refusal("{'descr': '<f4', 'shape': (6,), }") ==
        "its .npy header cannot be read at byte 33: it lacks one of the keys 'descr', "
        "'fortran_order' and 'shape'");
  CHECK(refusal("{'descr': '<f4', 'fortran_order': False, 'shape': (6,), 'more': 1}").find("it has a key that is not one of") !=
        std::string::npos);
  CHECK(refusal("{'descr': '<f4', 'fortran_order': 0, 'shape': (6,), }").ends_with("fortran_order is neither True nor False"));
  CHECK(refusal(npy_dictionary("<f4", "(6,)") + " rest").ends_with("something follows its dictionary"));
}

TEST_CASE("files that are no .npy file, or less than one") {
  const Bytes whole = npy_file<float>(npy_dictionary("<f4", "(2, 3)"), {1, 2, 3, 4, 5, 6});
  for (std::size_t length = 1; length < whole.size(); ++length)
    CHECK(refusal(Bytes(whole.begin(), whole.begin() + std::ptrdiff_t(length))).starts_with("it is cut off: "));
  Bytes other = whole;
  other[0] = 'P';
  CHECK(refusal(other) == "it is no .npy file: its first six bytes are not \\x93NUMPY");
  other = whole;
  other[6] = 4;
  CHECK(refusal(other) == "it is a .npy file of version 4.0; versions 1 to 3 are known");
  other = npy_file<float>(npy_dictionary("<f4", "(2, 3)"), {1, 2, 3, 4, 5, 6}, 2);
  other[11] = 0xff;
  CHECK(refusal(other).starts_with("it is cut off: its header has "));
}
