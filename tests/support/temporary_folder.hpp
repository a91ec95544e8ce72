// SPDX-License-Identifier: Apache-2.0
#pragma once
// A test's temporary folder, removed with the object.

#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

namespace weft_test {

struct TemporaryFolder {
  std::filesystem::path path;
  TemporaryFolder() {
    std::string name =
        (std::filesystem::temp_directory_path() / ("weft-test-" + std::string(6, 'X'))).string();  // mkdtemp fills them in
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path = name;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() { std::filesystem::remove_all(path); }
};

}  // namespace weft_test
