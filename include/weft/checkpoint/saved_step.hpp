// SPDX-License-Identifier: Apache-2.0
#pragma once
// The step from which a program would resume, for a process without ranks, such as the parent of runtime/supervisor.hpp.
//
//   if (const auto step = checkpoint::saved_step("run")) std::cout << *step << '\n';

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include <weft/checkpoint/folder.hpp>

namespace weft::checkpoint {

/// The step of the checkpoint that `load` would read from this folder; empty if there is none, or none is readable.
inline std::optional<std::uint64_t> saved_step(const std::string& folder) {
  try {
    if (!exists(folder)) return std::nullopt;
    const std::string path = find(folder);
    std::uint64_t step = 0;
    if (detail::step_of(std::filesystem::path(path).filename().string(), step)) return step;
    return read_index(path).step;  // a checkpoint with another name
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace weft::checkpoint
