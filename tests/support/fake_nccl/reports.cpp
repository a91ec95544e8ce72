// SPDX-License-Identifier: Apache-2.0
#include "support/fake_nccl/reports.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <utility>

namespace fake_nccl {
namespace {

struct Found {
  std::mutex mutex;
  std::vector<std::string> texts;
};
Found& found() {
  static auto* const found = [] {
    std::atexit([] {
      if (!take_reports().empty()) std::_Exit(3);
    });
    return new Found;  // threads of streams outlive static objects
  }();
  return *found;
}

}  // namespace

void report(const std::string& text) {
  std::lock_guard lock(found().mutex);
  auto& texts = found().texts;
  if (std::find(texts.begin(), texts.end(), text) != texts.end()) return;
  texts.push_back(text);
  std::fprintf(stderr, "ERROR: double of the GPU: %s\n", text.c_str());
}

std::vector<std::string> take_reports() {
  std::lock_guard lock(found().mutex);
  return std::exchange(found().texts, {});
}

}  // namespace fake_nccl
