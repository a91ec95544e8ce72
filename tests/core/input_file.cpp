// SPDX-License-Identifier: Apache-2.0
// Files that a user names: regular ones of limited size are read, all others are refused at once.
#include <weft/core/input_file.hpp>

#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <doctest/doctest.h>

namespace {

struct Folder {
  std::string path = [] {
    char name[] = "/tmp/weft-input-XXXXXX";
    return std::string(::mkdtemp(name));
  }();
  ~Folder() { std::filesystem::remove_all(path); }
  std::string file(const std::string& name, const std::string& text) const {
    std::ofstream(path + "/" + name) << text;
    return path + "/" + name;
  }
};

std::string refusal(const std::string& file, std::uint64_t most = 100) {
  try {
    return "read: " + weft::detail::InputFile("data", file, "text file", most).read();
  } catch (const weft::UsageError& error) {
    return error.what();
  }
}

int open_files() {
  int count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

}  // namespace

TEST_CASE("a regular file is read whole, up to its limit") {
  const Folder folder;
  const std::string bytes = std::string("two\nlines\0and more", 18);
  CHECK(refusal(folder.file("a", bytes)) == "read: " + bytes);
  CHECK(refusal(folder.file("empty", "")) == "read: ");
  const std::string file = folder.file("b", std::string(101, 'x'));
  CHECK(refusal(file) == "weft: data: cannot read '" + file + "': it has 101 bytes, a text file has at most 100");
  CHECK(refusal(file, 101) == "read: " + std::string(101, 'x'));
  ::symlink(file.c_str(), (folder.path + "/link").c_str());
  CHECK(refusal(folder.path + "/link", 101) == "read: " + std::string(101, 'x'));
  const int before = open_files();
  for (int k = 0; k < 10; ++k) (void)refusal(file);
  CHECK(open_files() == before);
}

TEST_CASE("what is no regular file is refused at once") {
  const Folder folder;
  const std::string begin = "weft: data: cannot read '", missing = folder.path + "/missing", fifo = folder.path + "/fifo";
  CHECK(refusal(missing) == begin + missing + "': there is no such file");
  CHECK(refusal(folder.path) == begin + folder.path + "': it is a folder, a text file is needed");
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  for (const std::string& name : {fifo, std::string("/dev/zero"), std::string("/dev/null"), std::string("/dev/tty")}) {
    INFO(name);
    const std::string text = refusal(name);
    CHECK((text == begin + name + "': it is a FIFO, a socket or a device, a regular file is needed" ||
           (name == "/dev/tty" && text.starts_with(begin))));  // no terminal here, perhaps
  }
  CHECK(refusal("") == begin + "': there is no such file");
  CHECK(refusal(folder.path + "/a/b") == begin + folder.path + "/a/b': there is no such file");
  CHECK(refusal(std::string(5000, 'n')).starts_with(begin));
}

TEST_CASE("a file that becomes shorter is not read as if it were whole") {
  const Folder folder;
  const std::string file = folder.file("a", std::string(50, 'x'));
  const weft::detail::InputFile input("data", file, "text file", 100);
  REQUIRE(::truncate(file.c_str(), 20) == 0);
  CHECK_THROWS_WITH_AS((void)input.read(), doctest::Contains("it became shorter while it was read: 20 of 50 bytes"),
                       weft::UsageError);
}
