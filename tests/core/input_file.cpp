// SPDX-License-Identifier: Apache-2.0
// Files that a user names, to read and to write: regular ones of limited size are read, all others are refused at once.
// covers: weft/core/output_file.hpp
#include <weft/core/input_file.hpp>
#include <weft/core/output_file.hpp>

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

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

TEST_CASE("anything but a regular file is refused at once") {
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

TEST_CASE("an output that is no regular file is refused, whether it is written in place or renamed") {
  const Folder folder;
  const std::string file = folder.file("file", "before"), fifo = folder.path + "/fifo", missing = folder.path + "/missing",
                    dangling = folder.path + "/dangling", loop = folder.path + "/loop", link = folder.path + "/to_file",
                    to_device = folder.path + "/to_device", socket = folder.path + "/socket";
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  ::symlink(missing.c_str(), dangling.c_str());
  ::symlink(loop.c_str(), loop.c_str());
  ::symlink(file.c_str(), link.c_str());
  ::symlink("/dev/null", to_device.c_str());
  ::sockaddr_un address{};
  address.sun_family = AF_UNIX;
  socket.copy(address.sun_path, sizeof address.sun_path - 1);
  const int listener = ::socket(AF_UNIX, SOCK_STREAM, 0);
  REQUIRE(::bind(listener, reinterpret_cast<const ::sockaddr*>(&address), sizeof address) == 0);
  const auto said = [](const std::string& path, bool in_place) -> std::string {
    try {
      in_place ? weft::detail::write_output("plan", path, "after") : weft::detail::require_output("plan", path);
      return "";
    } catch (const weft::UsageError& error) {
      return error.what();
    }
  };
  for (const bool in_place : {true, false}) {
    for (const auto& [path, kind] :
         {std::pair(fifo, "it is a FIFO"), std::pair(std::string("/dev/null"), "it is a device"),
          std::pair(to_device, "it is a device"), std::pair(folder.path, "it is a folder"), std::pair(socket, "it is a socket"),
          std::pair(dangling, "it is a link that leads to no file"), std::pair(loop, "it is a link that leads to no file")})
      CHECK(said(path, in_place) == "weft: plan: cannot write '" + path + "': " + kind + ", a regular file is needed");
    for (const std::string& path : {file, link, folder.path + "/new"}) CHECK(said(path, in_place) == "");
    const std::string nowhere = folder.path + "/none/new";
    CHECK(said(nowhere, in_place) == "weft: plan: cannot write '" + nowhere + "': No such file or directory");
  }
  struct ::stat status = {};
  CHECK(::stat(missing.c_str(), &status) != 0);
  CHECK((::stat("/dev/null", &status) == 0 && S_ISCHR(status.st_mode)));
  CHECK(weft::detail::InputFile("plan", file, "file", 100).read() == "after");
  ::close(listener);
}
