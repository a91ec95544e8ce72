// SPDX-License-Identifier: Apache-2.0
#pragma once
// The identity of a run's training data: size, digest, and the settings by which samples are made. A checkpoint stores it, so
// that resuming with another file or another split is refused. It is in core because data sources create it and checkpoints
// compare it, and neither folder includes the other.
//
//   checkpoint::save("run", model, optimizer, step, {.data = loader.identity()});
//   checkpoint::resume("run", model, optimizer, {.data = loader.identity()});

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <weft/core/standard.hpp>

namespace weft {

/// The identity of one file or array, or of several in their order.
struct DataIdentity {
  std::string name;                                           ///< of the first file, for messages; not compared
  std::size_t files = 0;                                      ///< number of files or arrays
  std::uint64_t bytes = 0;                                    ///< in all files
  std::uint64_t digest = 0;                                   ///< of bytes and order
  std::vector<std::pair<std::string, std::string>> settings;  ///< how samples are made: {"validation-fraction", "0.1"}

  DataIdentity() = default;
  /// Hashes all bytes up to 64 MiB. From larger files it hashes the first, the last and 1,022 evenly spaced blocks of 4 KiB, so
  /// that a file larger than memory takes milliseconds. A change between these blocks that keeps the size is not detected.
  DataIdentity(std::string name, const void* data, std::size_t bytes);

  /// Appends the next file. A setting with different values keeps both.
  void add(const DataIdentity& next);
  /// Appends the value to those that the setting has already: of a dataset made of others of its kind.
  void add(const std::string& setting, const std::string& value);
  void add(const std::string& setting, double value);
  void set(const std::string& setting, const std::string& value);
  void set(const std::string& setting, double value);

  /// "train.bin and 2 more files".
  std::string files_text() const;
  /// "train.bin and 2 more files (1000 bytes, digest 0123456789abcdef)".
  std::string text() const;
  std::string digest_text() const;
};

namespace detail {

/// Calls f(place, bytes), until it returns false, for sampled parts of `bytes` bytes: one part up to 64 MiB, otherwise 1,024
/// blocks of 4 KiB, including the first and the last.
template <class F>
void for_each_sampled_block(std::size_t bytes, F&& f) {
  constexpr std::size_t whole = std::size_t(64) << 20, block = 4096, samples = 1024;
  if (bytes <= whole) {
    f(std::size_t(0), bytes);
    return;
  }
  const std::size_t blocks = (bytes + block - 1) / block;
  for (std::size_t i = 0; i < samples; ++i) {
    const std::size_t place = (blocks - 1) * i / (samples - 1) * block;
    if (!f(place, std::min(block, bytes - place))) return;
  }
}

}  // namespace detail

}  // namespace weft

#ifndef WEFT_COMPILED
#include <weft/core/data_identity_impl.hpp>
#endif
