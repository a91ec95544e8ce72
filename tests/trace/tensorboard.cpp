// SPDX-License-Identifier: Apache-2.0
// TensorBoard's event files, byte by byte. test_read_by_tensorboard.py reads those of a run with TensorBoard itself.

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include <weft/core/error.hpp>
#include <weft/trace/tensorboard.hpp>

#include "support/temporary_folder.hpp"

using namespace weft;

namespace {

std::uint64_t little_endian(const std::string& bytes, std::size_t at, int count) {
  std::uint64_t value = 0;
  for (int k = 0; k < count; ++k) value |= std::uint64_t(static_cast<unsigned char>(bytes[at + std::size_t(k)])) << (8 * k);
  return value;
}

std::uint32_t masked(const std::string& bytes) {
  const std::uint32_t sum = trace::detail::crc32c(bytes);
  return ((sum >> 15) | (sum << 17)) + 0xa282ead8u;
}

// The events of the one file in a folder; every length and checksum is checked.
std::vector<std::string> events_in(const std::filesystem::path& folder) {
  std::vector<std::string> events;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    CHECK(entry.path().filename().string().starts_with("events.out.tfevents."));
    std::ifstream in(entry.path(), std::ios::binary);
    const std::string all{std::istreambuf_iterator<char>(in), {}};
    for (std::size_t at = 0; at < all.size();) {
      REQUIRE(at + 12 <= all.size());
      const std::size_t length = little_endian(all, at, 8);
      CHECK(little_endian(all, at + 8, 4) == masked(all.substr(at, 8)));
      REQUIRE(at + 16 + length <= all.size());
      events.push_back(all.substr(at + 12, length));
      CHECK(little_endian(all, at + 12 + length, 4) == masked(events.back()));
      at += 16 + length;
    }
  }
  return events;
}

}  // namespace

TEST_CASE("CRC-32C of the vectors in RFC 3720") {
  CHECK(trace::detail::crc32c("123456789") == 0xe3069283u);
  CHECK(trace::detail::crc32c(std::string(32, '\0')) == 0x8a9136aau);
  CHECK(trace::detail::crc32c(std::string(32, '\xff')) == 0x62a8ab43u);
}

TEST_CASE("the events of a file: version, start, scalars") {
  const weft_test::TemporaryFolder folder;
  {
    trace::TensorBoard board(folder.path, 7);
    board.write(300, {{"loss", 5.5}, {"rate", 0.25}});
    CHECK(events_in(folder.path).size() == 3);  // each is written at once
  }
  const auto events = events_in(folder.path);
  REQUIRE(events.size() == 3);
  const auto after_time = [&](std::size_t k) {
    CHECK(events[k][0] == 0x09);  // wall_time
    double seconds = 0;
    std::memcpy(&seconds, events[k].data() + 1, sizeof seconds);
    CHECK(seconds > 1.7e9);
    return events[k].substr(9);
  };
  using namespace std::string_literals;
  CHECK(after_time(0) ==
        "\x10\x00\x1a\x0d"
        "brain.Event:2"s);
  CHECK(after_time(1) == "\x10\x07\x3a\x02\x08\x01"s);
  CHECK(after_time(2) ==
        "\x10\xac\x02\x2a\x1a"
        "\x0a\x0b\x0a\x04"
        "loss\x15\x00\x00\xb0\x40"
        "\x0a\x0b\x0a\x04"
        "rate\x15\x00\x00\x80\x3e"s);
}

TEST_CASE("a step's record: its numbers, and measurements by axis and rank if there are any") {
  const weft_test::TemporaryFolder folder;
  {
    trace::TensorBoard board(folder.path);
    board.write({.step = 1, .loss = 2.5});
    board.write({.step = 2,
                 .loss = 2.25,
                 .share_of_peak = 0.5,
                 .computing_ms = 12,
                 .axes = {{"dp", 1.5, 4096}, {"tp", 0.25, 64}},
                 .memory_bytes = 100,
                 .memory_peak_bytes = 300,
                 .slow = {{3, 0.25}}});
  }
  const auto events = events_in(folder.path);
  REQUIRE(events.size() == 4);
  // The value of a tag, or NaN. A value is 0x0a, the tag's length, the tag, 0x15 and a float.
  const auto value = [&](std::size_t event, const std::string& tag) {
    const std::size_t at = events[event].find('\x0a' + std::string(1, char(tag.size())) + tag + '\x15');
    if (at == std::string::npos) return double(NAN);
    float number = 0;
    std::memcpy(&number, events[event].data() + at + tag.size() + 3, sizeof number);
    return double(number);
  };
  CHECK(value(2, "train/loss") == 2.5);
  CHECK(value(2, "speed/step_ms") == 0);
  for (const char* absent : {"speed/share_of_peak", "speed/computing_ms", "waiting_ms/dp", "memory/bytes", "slow_ranks/3"})
    CHECK(std::isnan(value(2, absent)));
  const std::pair<const char*, double> measured[] = {
      {"train/loss", 2.25},       {"speed/share_of_peak", 0.5}, {"speed/computing_ms", 12}, {"waiting_ms/dp", 1.5},
      {"message_bytes/dp", 4096}, {"waiting_ms/tp", 0.25},      {"message_bytes/tp", 64},   {"memory/bytes", 100},
      {"memory/peak_bytes", 300}, {"slow_ranks/3", 0.25}};
  for (const auto& [tag, number] : measured) CHECK_MESSAGE(value(3, tag) == number, tag);
}

TEST_CASE("a folder that does not exist, and a second file of the same moment") {
  CHECK_THROWS_AS(trace::TensorBoard("/nonexistent/folder"), Error);
  const weft_test::TemporaryFolder folder;
  trace::TensorBoard first(folder.path), second(folder.path);
  CHECK(events_in(folder.path).size() == 4);
}
