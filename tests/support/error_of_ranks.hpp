// SPDX-License-Identifier: Apache-2.0
#pragma once
// The error of a program of several ranks.
//
//   const std::string found = error_of_ranks(2, "has no nodes", [](World& world) { ... });

#include <mutex>
#include <string>

#include <weft/core/error.hpp>
#include <weft/mesh/world.hpp>
#include <weft/runtime/run.hpp>

namespace weft_test {

/// The text of the first error of a rank that has `part`, else of the first one; empty if no rank fails.
template <class F>
std::string error_of_ranks(int ranks, const std::string& part, F&& body) {
  std::mutex mutex;
  std::string found;
  weft::run(weft::RunOptions{.ranks = ranks}, [&](weft::World& world) {
    try {
      body(world);
    } catch (const weft::Error& error) {
      const std::lock_guard lock(mutex);
      const auto has_part = [&part](const std::string& text) { return text.find(part) != std::string::npos; };
      if (found.empty() || (has_part(error.what()) && !has_part(found))) found = error.what();
      throw;
    }
  });
  return found;
}

}  // namespace weft_test
