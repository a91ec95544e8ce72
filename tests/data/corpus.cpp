// SPDX-License-Identifier: Apache-2.0
// covers: weft/data/source_files.hpp
// Corpus: reading, splitting, and the message for each unreadable file.

#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <weft/data/corpus.hpp>
#include <weft/data/source_files.hpp>

#include "support/temporary_folder.hpp"

using namespace weft;
namespace fs = std::filesystem;

namespace {

struct Folder : weft_test::TemporaryFolder {
  fs::path file(const std::string& name, const std::string& text) const {
    fs::create_directories((path / name).parent_path());
    std::ofstream(path / name, std::ios::binary) << text;
    return path / name;
  }
};

template <class F>
std::string message(F&& f) {
  try {
    f();
  } catch (const UsageError& error) {
    CHECK(error.exit_code() == 2);
    return error.what();
  }
  return "";
}

std::string string_of(std::span<const std::uint8_t> bytes) { return {bytes.begin(), bytes.end()}; }

}  // namespace

TEST_CASE("the end of every file is kept back for validation") {
  const Folder folder;
  const auto a = folder.file("a", "0123456789"), b = folder.file("b", "abcdefghijKLMNOPQRST");
  const auto corpus = data::Corpus::read({a, b}, {.validation_fraction = 0.2});
  CHECK(string_of(corpus.training()) == "01234567abcdefghijKLMNOP");
  CHECK(string_of(corpus.validation()) == "89QRST");
  CHECK(corpus.files() == 2);
  CHECK(corpus.bytes() == 30);
  CHECK(data::Corpus::from_text("abc", {.validation_fraction = 0}).validation().empty());
}

TEST_CASE("bytes are read as they are") {
  const Folder folder;
  std::string all;
  for (int i = 0; i < 256; ++i) all += static_cast<char>(i);
  const auto corpus = data::Corpus::read({folder.file("bytes", all)}, {.validation_fraction = 0});
  CHECK(string_of(corpus.training()) == all);
}

TEST_CASE("a file that cannot be used is named, with the reason") {
  const Folder folder;
  const std::string missing = (folder.path / "missing.txt").string(), empty = folder.file("empty", "").string();
  CHECK(message([&] { data::Corpus::read({missing}); }) == "weft: data: cannot read '" + missing + "': there is no such file");
  CHECK(message([&] { data::Corpus::read({empty}); }) == "weft: data: cannot read '" + empty + "': it is empty (0 bytes)");
  CHECK(message([&] { data::Corpus::read({folder.path}); }) ==
        "weft: data: cannot read '" + folder.path.string() + "': it is a folder, a text file is needed");
  CHECK(message([&] { data::Corpus::read({}); }) == "weft: data: no file given");
  CHECK(message([&] { data::Corpus::from_text("abc", {.validation_fraction = 1}); }) ==
        "weft: data: the validation fraction is 1, it must be at least 0 and below 1");
  CHECK(message([&] { data::Corpus::from_text(std::string(100, 'x')).require(89); }).empty() == false);
  CHECK(message([&] { data::Corpus::from_text(std::string(100, 'x')).require(128); }) ==
        "weft: data: too short: the training part has 90 of 100 bytes (validation fraction 0.1), a sequence of 128 needs 129");
  CHECK(message([&] { data::Corpus::from_text(std::string(100, 'x')).require(20); }) ==
        "weft: data: too short: the validation part has 10 of 100 bytes (validation fraction 0.1), a sequence of 20 needs 21");
}

TEST_CASE("the default corpus: texts of the project, sorted") {
  const Folder folder;
  folder.file("include/weft/b.hpp", "b");
  folder.file("include/weft/a.hpp", "a");
  folder.file("include/weft/empty.hpp", "");
  folder.file("docs/x/page.md", "page");
  folder.file("docs/picture.png", "no");
  folder.file("examples/1.cpp", "one");
  folder.file("README.md", "readme");
  std::string names;
  for (const auto& file : data::source_files(folder.path)) names += fs::relative(file, folder.path).generic_string() + " ";
  CHECK(names == "README.md docs/x/page.md examples/1.cpp include/weft/a.hpp include/weft/b.hpp ");
  CHECK(data::source_files(folder.path / "nowhere").empty());
}
