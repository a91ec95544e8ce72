// SPDX-License-Identifier: Apache-2.0
#pragma once
// One libFuzzer target: a function of bytes that must hold for all of them, and the few inputs from which the search starts,
// which are created here and not stored. tests/fuzz/test_fuzz.py compiles and runs them; for long runs by hand, use its --seconds
// or --runs.
//
//   void weft_test::target(Input input) { ... weft_test::expect(held <= received); ... }
//   std::vector<std::string> weft_test::seeds() { return {"0F0,0F1"}; }

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace weft_test {

/// Bytes to read from. Past the end there are zeros, so every input is complete.
class Input {
 public:
  explicit Input(std::string_view bytes) : rest_(bytes) {}
  bool empty() const { return rest_.empty(); }
  std::size_t left() const { return rest_.size(); }
  template <class T = std::uint8_t>
  T take() {
    T value{};
    std::memcpy(&value, rest_.data(), std::min(sizeof value, rest_.size()));
    rest_.remove_prefix(std::min(sizeof value, rest_.size()));
    return value;
  }
  std::string_view take_bytes(std::size_t most) {
    const std::string_view taken = rest_.substr(0, most);
    rest_.remove_prefix(taken.size());
    return taken;
  }
  std::string_view rest() { return take_bytes(rest_.size()); }

 private:
  std::string_view rest_;
};

inline void expect(bool holds) {
  if (!holds) std::abort();
}
/// A message that a user may meet: one line, of a length that a user reads.
inline void expect_message(std::string_view text) {
  expect(!text.empty() && text.size() < 2000);
  expect(text.find('\n') == text.npos);
}

void target(Input input);
std::vector<std::string> seeds();

}  // namespace weft_test

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  weft_test::target(weft_test::Input({reinterpret_cast<const char*>(data), size}));
  return 0;
}

/// Writes the seeds into the folder that WEFT_FUZZ_SEEDS names, from which libFuzzer then starts.
extern "C" int LLVMFuzzerInitialize(int*, char***) {
  const char* folder = std::getenv("WEFT_FUZZ_SEEDS");
  if (folder == nullptr) return 0;
  int number = 0;
  for (const std::string& seed : weft_test::seeds()) {
    std::FILE* file = std::fopen((std::string(folder) + "/seed" + std::to_string(number++)).c_str(), "wb");
    weft_test::expect(file != nullptr && std::fwrite(seed.data(), 1, seed.size(), file) == seed.size());
    std::fclose(file);
  }
  return 0;
}
