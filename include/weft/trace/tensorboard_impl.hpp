// SPDX-License-Identifier: Apache-2.0
#pragma once
// The records of TensorBoard's event files. Definitions for trace/tensorboard.hpp.

#include <unistd.h>

#include <array>
#include <atomic>
#include <bit>
#include <chrono>

#include <weft/core/inline.hpp>
#include <weft/trace/tensorboard.hpp>

namespace weft::trace {

namespace detail {

WEFT_INLINE std::uint32_t crc32c(std::string_view bytes) {
  static constexpr auto table = [] {
    std::array<std::uint32_t, 256> t{};
    for (std::uint32_t i = 0; i < 256; ++i) {
      std::uint32_t r = i;
      for (int bit = 0; bit < 8; ++bit) r = (r >> 1) ^ ((r & 1) != 0 ? 0x82f63b78u : 0u);
      t[i] = r;
    }
    return t;
  }();
  std::uint32_t sum = ~0u;
  for (const char c : bytes) sum = (sum >> 8) ^ table[(sum ^ static_cast<unsigned char>(c)) & 0xff];
  return ~sum;
}

/// The fields of a message of Protocol Buffers, appended in their wire format.
class ProtoMessage {
 public:
  void varint(int field, std::uint64_t value) {
    key(field, 0);
    number(value);
  }
  void fixed64(int field, double value) {
    key(field, 1);
    little_endian(std::bit_cast<std::uint64_t>(value), 8);
  }
  void fixed32(int field, float value) {
    key(field, 5);
    little_endian(std::bit_cast<std::uint32_t>(value), 4);
  }
  /// A string or an embedded message.
  void bytes(int field, std::string_view value) {
    key(field, 2);
    number(value.size());
    text_ += value;
  }
  void little_endian(std::uint64_t value, int bytes) {
    for (int k = 0; k < bytes; ++k) text_ += static_cast<char>((value >> (8 * k)) & 0xff);
  }
  const std::string& text() const { return text_; }

 private:
  void key(int field, unsigned type) { number(std::uint64_t(field) << 3 | type); }
  void number(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) text_ += static_cast<char>((value & 0x7f) | 0x80);
    text_ += static_cast<char>(value);
  }

  std::string text_;
};

/// The first fields of an Event: wall_time in seconds since 1970, and step.
WEFT_INLINE ProtoMessage event_at(std::uint64_t step) {
  ProtoMessage event;
  event.fixed64(1, std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count());
  event.varint(2, step);
  return event;
}

WEFT_INLINE void add_scalar(ProtoMessage& summary, std::string_view tag, double number) {
  ProtoMessage value;
  value.bytes(1, tag);
  value.fixed32(2, static_cast<float>(number));
  summary.bytes(1, value.text());
}

WEFT_INLINE std::string new_event_file(const std::filesystem::path& folder) {
  static std::atomic<int> number{0};
  const auto seconds =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0 || host[0] == '\0') host = {'h', 'o', 's', 't'};
  return (folder / ("events.out.tfevents." + std::to_string(seconds) + "." + host.data() + "." + std::to_string(::getpid()) +
                    "." + std::to_string(number++)))
      .string();
}

}  // namespace detail

WEFT_INLINE TensorBoard::TensorBoard(const std::filesystem::path& folder, std::uint64_t first_step)
    : out_({}, detail::new_event_file(folder)) {
  detail::ProtoMessage version = detail::event_at(0);
  version.bytes(3, "brain.Event:2");
  record(version.text());
  detail::ProtoMessage start;
  start.varint(1, 1);  // SessionLog.status = START
  detail::ProtoMessage session = detail::event_at(first_step);
  session.bytes(7, start.text());
  record(session.text());
}

WEFT_INLINE void TensorBoard::write(std::uint64_t step, std::initializer_list<Scalar> scalars) {
  detail::ProtoMessage summary;
  for (const Scalar& scalar : scalars) detail::add_scalar(summary, scalar.tag, scalar.value);
  write_summary(step, summary.text());
}

WEFT_INLINE void TensorBoard::write(const StepRecord& step) {
  detail::ProtoMessage summary;
  const auto add = [&](const std::string& tag, double value) { detail::add_scalar(summary, tag, value); };
  add("train/loss", step.loss);
  add("train/gradient_norm", step.gradient_norm);
  add("train/learning_rate", step.learning_rate);
  add("speed/tokens_per_s", step.tokens_per_s);
  add("speed/step_ms", step.ms);
  if (step.share_of_peak > 0) add("speed/share_of_peak", step.share_of_peak);
  if (step.computing_ms > 0) add("speed/computing_ms", step.computing_ms);
  for (const StepRecord::Axis& axis : step.axes) {
    add("waiting_ms/" + axis.axis, axis.waiting_ms);
    add("message_bytes/" + axis.axis, axis.bytes);
  }
  if (step.memory_peak_bytes > 0) {
    add("memory/bytes", double(step.memory_bytes));
    add("memory/peak_bytes", double(step.memory_peak_bytes));
  }
  for (const StepRecord::Slow& one : step.slow) add("slow_ranks/" + std::to_string(one.rank), one.slower);
  write_summary(step.step, summary.text());
}

WEFT_INLINE void TensorBoard::write_summary(std::uint64_t step, std::string_view summary) {
  detail::ProtoMessage event = detail::event_at(step);
  event.bytes(5, summary);
  record(event.text());
}

WEFT_INLINE void TensorBoard::record(std::string_view event) {
  const auto masked = [](std::string_view bytes) {
    const std::uint32_t sum = detail::crc32c(bytes);
    return ((sum >> 15) | (sum << 17)) + 0xa282ead8u;
  };
  detail::ProtoMessage length;
  length.little_endian(event.size(), 8);
  detail::ProtoMessage all = length;
  all.little_endian(masked(length.text()), 4);
  std::string bytes = all.text();
  bytes += event;
  detail::ProtoMessage sum;
  sum.little_endian(masked(event), 4);
  out_.write(bytes + sum.text());
}

}  // namespace weft::trace
