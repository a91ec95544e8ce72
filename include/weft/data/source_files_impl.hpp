// SPDX-License-Identifier: Apache-2.0
#pragma once
// The walk through a source tree. Definitions for data/source_files.hpp.

#include <weft/core/inline.hpp>
#include <weft/data/source_files.hpp>

namespace weft::data {

WEFT_INLINE std::vector<std::filesystem::path> source_files(const std::filesystem::path& folder) {
  namespace fs = std::filesystem;
  std::vector<fs::path> files;
  std::error_code error;
  const auto take = [&](const fs::path& path) {
    const auto extension = path.extension();
    const bool text = extension == ".hpp" || extension == ".cpp" || extension == ".md";
    if (text && fs::is_regular_file(path, error) && fs::file_size(path, error) > 0) files.push_back(path);
  };
  for (const char* part : {"include", "docs", "examples"})
    for (fs::recursive_directory_iterator at(folder / part, error), end; !error && at != end; at.increment(error))
      take(at->path());
  error.clear();
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) take(at->path());
  std::sort(files.begin(), files.end(),
            [](const fs::path& a, const fs::path& b) { return a.generic_string() < b.generic_string(); });
  return files;
}

}  // namespace weft::data
