// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for comm/store/secret.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <sys/stat.h>

#include <weft/comm/store/secret.hpp>
#include <weft/core/inline.hpp>
#include <weft/core/uninterrupted.hpp>

namespace weft::comm::store {

WEFT_COLD WEFT_INLINE std::string user_secret() {
  const std::string folder = "/tmp/weft-" + std::to_string(::geteuid()), name = folder + "/secret";
  const auto refuse = [](const std::string& what, const std::string& why) {
    throw StoreError(
        weft::detail::joined({"no secret for the ranks of this user: ", what, " ", why, " (set WEFT_SECRET instead)"}));
  };
  const auto of_mine_alone = [](int descriptor, mode_t kind) {
    struct stat found {};
    return ::fstat(descriptor, &found) == 0 && found.st_uid == ::geteuid() && (found.st_mode & S_IFMT) == kind &&
           (found.st_mode & 077) == 0;
  };
  using weft::detail::uninterrupted;
  if (uninterrupted([&] { return ::mkdir(folder.c_str(), 0700); }) != 0 && errno != EEXIST) refuse(folder, std::strerror(errno));
  const Socket at(uninterrupted([&] { return ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC); }));
  if (!at) refuse(folder, std::strerror(errno));
  if (!of_mine_alone(at.get(), S_IFDIR)) refuse(folder, "is not this user's alone");
  constexpr std::size_t bytes = 64;
  for (int turn = 0; turn < 2; ++turn) {
    constexpr int reads = O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK,
                  writes = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    if (const Socket file(uninterrupted([&] { return ::openat(at.get(), "secret", reads); })); file) {
      char text[bytes];
      if (!of_mine_alone(file.get(), S_IFREG)) refuse(name, "is not a file of this user's alone");
      if (uninterrupted([&] { return ::read(file.get(), text, bytes); }) != ssize_t(bytes)) refuse(name, "is damaged: remove it");
      return {text, bytes};
    }
    if (errno != ENOENT) refuse(name, std::strerror(errno));
    // Written under another name and linked: of several first ranks one gives its own to all, and no rank reads a half-written
    // one.
    std::string text;
    for (const Nonce& nonce : {random_nonce(), random_nonce()})
      for (const char c : nonce)
        for (const int shift : {4, 0}) text.push_back("0123456789abcdef"[static_cast<unsigned char>(c) >> shift & 15]);
    const std::string fresh = "new-" + text.substr(0, 16);
    {
      const Socket file(uninterrupted([&] { return ::openat(at.get(), fresh.c_str(), writes, 0600); }));
      const auto write = [&] { return ::write(file.get(), text.data(), bytes); };
      if (!file || uninterrupted(write) != ssize_t(bytes)) refuse(name, std::strerror(errno));
    }
    const bool linked = ::linkat(at.get(), fresh.c_str(), at.get(), "secret", 0) == 0 || errno == EEXIST;
    const int problem = errno;
    ::unlinkat(at.get(), fresh.c_str(), 0);
    if (!linked) refuse(name, std::strerror(problem));
  }
  refuse(name, "disappears");
  return {};
}

}  // namespace weft::comm::store
