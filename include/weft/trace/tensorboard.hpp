// SPDX-License-Identifier: Apache-2.0
#pragma once
// Numbers of a run in TensorBoard's event files: `tensorboard --logdir runs` draws them. A file holds records of TFRecord
// (length, checksum, bytes, checksum; little-endian, CRC-32C), each an Event in the wire format of Protocol Buffers
// (tensorflow/core/util/event.proto, summary.proto).
//
//   trace::TensorBoard board("runs/a");
//   board.write(step, {{"loss", 5.5}, {"learning_rate", 3e-4}});

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <string_view>

#include <weft/core/output_file.hpp>
#include <weft/trace/metrics.hpp>

namespace weft::trace {

/// One event file, events.out.tfevents.SECONDS.HOST.PROCESS.NUMBER, new for each object. Each event is written at once, so a
/// killed run keeps its numbers.
class TensorBoard {
 public:
  struct Scalar {
    std::string_view tag;  ///< for example "train/loss"
    double value;          ///< stored as float, as TensorBoard does
  };

  /// Creates the file in an existing folder. `first_step`: TensorBoard drops what files of earlier runs have from this step on,
  /// so a resumed run has one curve. Throws UsageError if the file cannot be created.
  explicit TensorBoard(const std::filesystem::path& folder, std::uint64_t first_step = 0);

  /// Throws Error if the file cannot be written.
  void write(std::uint64_t step, std::initializer_list<Scalar> scalars);
  /// The numbers of a training step that trace::to_json writes: train/loss, train/gradient_norm, train/learning_rate,
  /// speed/tokens_per_s, speed/step_ms, and of the measurements speed/share_of_peak, speed/computing_ms, waiting_ms/AXIS,
  /// message_bytes/AXIS, memory/bytes, memory/peak_bytes and slow_ranks/RANK. Throws as the other.
  void write(const StepRecord& step);

 private:
  void write_summary(std::uint64_t step, std::string_view summary);
  void record(std::string_view event);

  weft::detail::OutputFile out_;
};

namespace detail {
/// CRC-32C (Castagnoli), polynomial 0x1edc6f41 reflected, as in RFC 3720: "123456789" gives 0xe3069283.
std::uint32_t crc32c(std::string_view bytes);
}  // namespace detail

}  // namespace weft::trace

#ifndef WEFT_COMPILED
#include <weft/trace/tensorboard_impl.hpp>
#endif
