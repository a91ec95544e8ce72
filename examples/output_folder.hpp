// SPDX-License-Identifier: Apache-2.0
#pragma once
// The folder that a training example writes, and the records that a resumed run finds there.
//
//   output_folder::make("train_gpt", folder);
//   output_folder::keep_records_before(step, file, [&](const nlohmann::json& record) { add_point(losses, record, "loss"); });

#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <vector>

#include <nlohmann/json.hpp>

#include <weft/core/error.hpp>
#include <weft/core/output_file.hpp>
#include <weft/core/text.hpp>
#include <weft/trace/loss_curve.hpp>
#include <weft/trace/metrics.hpp>

namespace output_folder {

/// Makes the folder of --output. Throws UsageError, which begins with the program's name, if it cannot be written.
inline void make(const std::string& program, const std::filesystem::path& folder) {
  const std::string named = "'" + weft::detail::shown(folder.string(), 300) + "': ";
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error || !std::filesystem::is_directory(folder))
    throw weft::UsageError(program + ": --output: cannot make the folder " + named +
                           (error ? error.message() : "it is not a folder"));
  if (::access(folder.c_str(), W_OK | X_OK) != 0)
    throw weft::UsageError(program + ": --output: cannot write to " + named + std::strerror(errno));
}

/// Removes the records of step `step` and later from a file with a line of JSON for each record, and calls f(record) for the
/// others. An incomplete last line is removed too. Throws UsageError if `file` is no regular file.
template <class F>
void keep_records_before(std::uint64_t step, const std::filesystem::path& file, F&& f) {
  weft::detail::require_output({}, file.string());
  std::ifstream in(file);
  std::string kept, line;
  while (std::getline(in, line)) {
    const auto record = nlohmann::json::parse(line, nullptr, false);
    if (!record.is_object() || !record.contains("step") || !record["step"].is_number_unsigned() || record["step"] >= step)
      continue;
    kept += line + "\n";
    f(record);
  }
  const std::string temporary = file.string() + ".tmp";
  weft::trace::write_text(temporary, kept);
  std::filesystem::rename(temporary, file);
}

/// Adds the number of that name, if the record has one, to the points of a curve.
inline void add_point(std::vector<weft::trace::LossCurve::Point>& points, const nlohmann::json& record, const char* name) {
  if (record.contains(name) && record[name].is_number()) points.push_back({double(record["step"]), double(record[name])});
}

}  // namespace output_folder
