// SPDX-License-Identifier: Apache-2.0
#pragma once
// An output file that a user named: a regular file, or an unused name. Writing to a FIFO would wait for a reader. Renaming a file
// over a device such as /dev/null would replace the device for every program of the computer.
//
//   detail::write_output("plan", "step.svg", picture);
//   detail::require_output("checkpoint::merge", path);   // before a temporary file is renamed to `path`

#include <string>
#include <string_view>

#include <weft/core/error.hpp>

namespace weft::detail {

/// Throws UsageError, "WRITER: cannot write 'PATH': it is a device, a regular file is needed", if `path`, or the target of a link
/// of that name, is something else than a regular file. Also throws for a link without a target: writing in place would create
/// its target, and renaming would replace the link. A path in a folder that does not exist, or in which this process may not
/// write, is refused as the file's opening would be.
void require_output(std::string_view writer, const std::string& path);

/// An open output, written in place.
class OutputFile {
 public:
  enum class Earlier { go, stay };  ///< removes or keeps the bytes in the file

  /// Throws UsageError as require_output does, or if the file cannot be opened. `writer` may be empty.
  OutputFile(std::string_view writer, std::string path, Earlier earlier = Earlier::go);
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile();

  /// Writes all of it. Throws Error with exit code 1 if the disk is full, or UsageError.
  void write(std::string_view text);
  /// Closes the file; throws as write does.
  void finish();

 private:
  [[noreturn]] void refuse(int error) const;

  std::string writer_, path_;
  int descriptor_ = -1;
};

/// Writes a whole file.
void write_output(std::string_view writer, const std::string& path, std::string_view text);

}  // namespace weft::detail

#ifndef WEFT_COMPILED
#include <weft/core/output_file_impl.hpp>
#endif
