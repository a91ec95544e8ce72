// SPDX-License-Identifier: Apache-2.0
#pragma once
// The system calls that read and write checkpoints, behind virtual functions, so that a test can make the k-th call fail. They
// are POSIX calls, with the same results and errno.
//
//   struct Full : FileSystem { ssize_t write(int, const void*, std::size_t) override { return errno = ENOSPC, -1; } };

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <weft/checkpoint/error.hpp>
#include <weft/core/error.hpp>
#include <weft/core/text.hpp>
#include <weft/core/uninterrupted.hpp>

namespace weft::checkpoint {

class FileSystem {
 public:
  virtual ~FileSystem() = default;
  virtual int open(const char* path, int flags, ::mode_t mode) { return ::open(path, flags, mode); }
  virtual ::ssize_t write(int file, const void* bytes, std::size_t count) { return ::write(file, bytes, count); }
  virtual ::ssize_t read_at(int file, void* bytes, std::size_t count, std::uint64_t offset) {
    return ::pread(file, bytes, count, ::off_t(offset));
  }
  /// Reads bytes of a file into the page cache, so that reading them soon does not need the disk. Returns -1 if they cannot be
  /// read, or if the system has no such call (Linux before 5.14).
  virtual int bring_in([[maybe_unused]] int file, [[maybe_unused]] std::uint64_t offset, [[maybe_unused]] std::size_t count) {
#ifdef MADV_POPULATE_READ
    const std::uint64_t page = std::uint64_t(::sysconf(_SC_PAGESIZE)), before = offset % page;
    void* const map = ::mmap(nullptr, before + count, PROT_READ, MAP_SHARED, file, ::off_t(offset - before));
    if (map == MAP_FAILED) return -1;
    const int result = ::madvise(map, before + count, MADV_POPULATE_READ);
    ::munmap(map, before + count);
    return result;
#else
    return errno = ENOSYS, -1;
#endif
  }
  /// A hint to start writing these bytes to the disk, so that the final sync does not wait for the whole file.
  virtual void begin_sync([[maybe_unused]] int file, [[maybe_unused]] std::uint64_t offset, [[maybe_unused]] std::size_t count) {
#ifdef SYNC_FILE_RANGE_WRITE
    ::sync_file_range(file, ::off_t(offset), ::off_t(count), SYNC_FILE_RANGE_WRITE);
#endif
  }
  virtual int sync(int file) { return ::fsync(file); }
  virtual int close(int file) { return ::close(file); }
  virtual int make_folder(const char* path, ::mode_t mode) { return ::mkdir(path, mode); }
  virtual int rename(const char* from, const char* to) { return ::rename(from, to); }
  /// Exchanges the names of two folders atomically.
  virtual int exchange(const char* a, const char* b) {
#ifdef RENAME_EXCHANGE
    return ::renameat2(AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE);
#else
    (void)a, (void)b;
    return errno = ENOSYS, -1;
#endif
  }
  /// Removes a name in an open folder, or, with AT_FDCWD, a path. Removes a link, not its target.
  virtual int remove_file(int folder, const char* name) { return ::unlinkat(folder, name, 0); }
  virtual int remove_folder(const char* path) { return ::rmdir(path); }

  /// The operating system's calls.
  static FileSystem& system() {
    static FileSystem own;
    return own;
  }
};

namespace detail {

[[noreturn]] WEFT_COLD inline void refuse_call(const Place& place, std::string_view what, int error) {
  refuse(place, {what, ": ", std::strerror(error)}, exit_code_of_errno(error));
}

using weft::detail::uninterrupted;

/// An open file, closed with the object.
class File {
 public:
  /// Opens a plain file for reading; no link and no device. Throws Error.
  static File open(FileSystem& system, const std::string& path, bool follow_links = false) {
    const int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | (follow_links ? 0 : O_NOFOLLOW);
    File file(system, path, uninterrupted([&] { return system.open(path.c_str(), flags, 0); }));
    if (file.number_ < 0)
      refuse_call({path}, errno == ELOOP ? "is a link, which a checkpoint does not follow" : "cannot be opened", errno);
    struct stat status = {};
    if (::fstat(file.number_, &status) != 0) refuse_call({path}, "cannot be looked at", errno);
    if (!S_ISREG(status.st_mode)) refuse({path}, {"is no plain file"});
    file.length_ = std::uint64_t(status.st_size);
    return file;
  }
  /// Makes a new file for writing, readable only by its owner. Throws Error.
  /// `final_path`: the name in messages of a file that is renamed to it once it is whole.
  static File make(FileSystem& system, const std::string& path, const std::string& final_path = {}) {
    const int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW;
    File file(system, final_path.empty() ? path : final_path,
              uninterrupted([&] { return system.open(path.c_str(), flags, 0600); }));
    if (file.number_ < 0) refuse_call({file.path()}, "cannot be made", errno);
    return file;
  }
  File(File&& other) noexcept
      : system_(other.system_),
        path_(std::move(other.path_)),
        number_(std::exchange(other.number_, -1)),
        length_(other.length_),
        handed_over_(other.handed_over_) {}
  File& operator=(File&&) = delete;
  ~File() {
    if (number_ >= 0) system_->close(number_);
  }

  const std::string& path() const { return path_; }
  /// For a file that is read: its size when it was opened. For one that is written: the bytes so far.
  std::uint64_t length() const { return length_; }

  /// Reads `count` bytes at `offset`. Throws Error at the end of the file.
  void read(void* bytes, std::size_t count, std::uint64_t offset, const std::string& tensor = {}) const {
    for (std::size_t done = 0; done < count;) {
      const ::ssize_t got = system_->read_at(number_, static_cast<char*>(bytes) + done, count - done, offset + done);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) refuse_call({path_, tensor, offset + done}, "cannot be read", errno);
      if (got == 0) refuse({path_, tensor, offset + done}, {"the file has ended, ", count - done, " bytes short"});
      done += std::size_t(got);
    }
  }
  /// Reads `count` bytes at `offset` into the page cache. Throws Error if they cannot be read.
  void bring_in(std::uint64_t count, std::uint64_t offset, const std::string& tensor = {}) const {
    if (count == 0 || system_->bring_in(number_, offset, std::size_t(count)) == 0) return;
    std::vector<char> some(std::size_t(std::min<std::uint64_t>(count, 1u << 18)));  // an ordinary read gives the reason of the
                                                                                    // failure, or succeeds
    for (std::uint64_t done = 0; done < count; done += some.size())
      read(some.data(), std::size_t(std::min<std::uint64_t>(some.size(), count - done)), offset + done, tensor);
  }
  void write(const void* bytes, std::size_t count) {
    for (std::size_t done = 0; done < count;) {
      const ::ssize_t put = system_->write(number_, static_cast<const char*>(bytes) + done, count - done);
      if (put < 0 && errno == EINTR) continue;
      if (put <= 0) refuse_call({path_, {}, length_}, "cannot be written", put < 0 ? errno : ENOSPC);
      done += std::size_t(put);
      length_ += std::uint64_t(put);
    }
    if (length_ - handed_over_ < worth_a_call) return;
    system_->begin_sync(number_, handed_over_, std::size_t(length_ - handed_over_));
    handed_over_ = length_;
  }
  /// Writes everything to the disk and closes the file. Throws Error if either fails.
  void finish() {
    if (uninterrupted([&] { return system_->sync(number_); }) != 0)
      refuse_call({path_}, "cannot be brought to the disk (fsync)", errno);
    if (system_->close(std::exchange(number_, -1)) != 0) refuse_call({path_}, "cannot be closed", errno);
  }

 private:
  static constexpr std::uint64_t worth_a_call = 8u << 20;

  File(FileSystem& system, std::string path, int number) : system_(&system), path_(std::move(path)), number_(number) {}

  FileSystem* system_;
  std::string path_;
  int number_;
  std::uint64_t length_ = 0;
  std::uint64_t handed_over_ = 0;  // written bytes for which begin_sync was called
};

/// Writes a folder's names to the disk.
inline void sync_folder(FileSystem& system, const std::string& path) {
  const int folder = uninterrupted([&] { return system.open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0); });
  if (folder < 0) refuse_call({path}, "cannot be opened", errno);
  const int failed = uninterrupted([&] { return system.sync(folder); }) != 0 ? errno : 0;
  system.close(folder);
  // Some file systems have no fsync for folders. They decide themselves when names reach the disk.
  if (failed != 0 && failed != EINVAL && failed != ENOTSUP) refuse_call({path}, "cannot be brought to the disk (fsync)", failed);
}

// Calls that change names, repeated if a signal interrupts them.
inline int make_folder(FileSystem& system, const std::string& path) {
  return uninterrupted([&] { return system.make_folder(path.c_str(), 0700); });
}
inline int rename(FileSystem& system, const std::string& from, const std::string& to) {
  return uninterrupted([&] { return system.rename(from.c_str(), to.c_str()); });
}
inline int remove_file(FileSystem& system, const std::string& path) {
  return uninterrupted([&] { return system.remove_file(AT_FDCWD, path.c_str()); });
}
inline int remove_folder(FileSystem& system, const std::string& path) {
  return uninterrupted([&] { return system.remove_folder(path.c_str()); });
}

/// The kind of a name in a folder; links are not followed.
enum class Found { nothing, folder, file, link, other };
/// Throws Error if that cannot be determined, for example without permission.
inline Found found_at(const std::string& path) {
  struct stat status = {};
  if (::lstat(path.c_str(), &status) != 0) {
    if (errno != ENOENT) refuse_call({path}, "cannot be looked at", errno);
    return Found::nothing;
  }
  return S_ISDIR(status.st_mode)   ? Found::folder
         : S_ISREG(status.st_mode) ? Found::file
         : S_ISLNK(status.st_mode) ? Found::link
                                   : Found::other;
}
/// True if the path is a folder, or a link to one.
inline bool leads_to_folder(const std::string& path) {
  struct stat status = {};
  return ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

/// Makes a folder and its missing parents. Throws Error.
inline void make_folders(FileSystem& system, const std::string& folder) {
  if (leads_to_folder(folder)) return;
  std::string name = folder;
  while (name.size() > 1 && name.back() == '/') name.pop_back();
  const std::string parent = std::filesystem::path(name).lexically_normal().parent_path().string();
  if (!parent.empty() && parent != name && found_at(parent) == Found::nothing) make_folders(system, parent);
  if (make_folder(system, name) != 0 && (errno != EEXIST || !leads_to_folder(name)))
    refuse_call({folder}, "cannot be made", errno);
  sync_folder(system, parent.empty() ? "." : parent);
}

/// Adds the names in a folder, sorted. Returns errno of a failure, even after some names; 0: the list is complete.
inline int read_names(::DIR* folder, std::vector<std::string>& names) {
  if (folder == nullptr) return errno;
  errno = 0;
  for (const ::dirent* entry; (entry = ::readdir(folder)) != nullptr; errno = 0)
    if (const std::string_view name = entry->d_name; name != "." && name != "..") names.emplace_back(name);
  const int failed = errno;
  ::closedir(folder);
  std::sort(names.begin(), names.end());
  return failed;
}
/// The names in a folder, sorted; none if it does not exist. Throws Error if it cannot be read, or if it is a link without a
/// target, for example to a disk that is not mounted.
inline std::vector<std::string> names_in(const std::string& path) {
  std::vector<std::string> names;
  const int failed = read_names(::opendir(path.c_str()), names);
  if (failed == ENOENT && found_at(path) == Found::link) refuse({path}, {"is a link that leads to no folder"});
  if (failed != 0 && failed != ENOENT) refuse_call({path}, "cannot be listed", failed);
  return names;
}

/// True if an index may use this file name: letters, digits, '.', '_' and '-', without '.' as the first character.
inline bool plain_name(std::string_view name) {
  if (name.empty() || name.size() > 255 || name.front() == '.') return false;
  for (const char c : name)
    if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-'))
      return false;
  return true;
}

}  // namespace detail

}  // namespace weft::checkpoint
