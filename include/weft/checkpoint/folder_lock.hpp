// SPDX-License-Identifier: Apache-2.0
#pragma once
// The lock of a folder of checkpoints. Only one process at a time saves into a folder, since a save removes other processes'
// unfinished saves. The lock is a flock of the file .lock in the folder, which the system releases when the process ends for any
// reason. The file's text names the process that holds it. NFS passes such locks to its server, which releases those of a dead
// host after its lease. A file system without locks gives no protection.
//
//   const auto lock = detail::FolderLock::take(system, "run");   // released with the last copy

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include <weft/checkpoint/error.hpp>
#include <weft/checkpoint/file_system.hpp>

namespace weft::checkpoint::detail {

class FolderLock {
 public:
  /// Takes the lock of a folder, or shares this process's lock. Creates the folder if necessary. Waits two seconds for a process
  /// that is about to end. Throws Error that names the process holding the lock.
  static std::shared_ptr<FolderLock> take(FileSystem& system, const std::string& folder) {
    make_folders(system, folder);
    using Clock = std::chrono::steady_clock;
    for (const auto end = Clock::now() + std::chrono::seconds(2);; std::this_thread::sleep_for(std::chrono::milliseconds(20))) {
      if (auto lock = try_take(system, folder)) return lock;
      if (Clock::now() > end)
        refuse({folder}, {"another program saves into this folder: ", holder(folder),
                          ". Two programs would remove each other's checkpoints: end that one, or give another folder"});
    }
  }
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  ~FolderLock() {
    if (::getpid() == process_) (void)::unlink(path_.c_str());  // removed while the lock is held; a forked child leaves it
    ::close(file_);
  }

 private:
  friend class Saving;
  using Key = std::pair<::dev_t, ::ino_t>;
  struct All {
    std::mutex mutex;
    std::map<Key, std::weak_ptr<FolderLock>> locks;
  };
  static All& all() {
    static All locks;
    return locks;
  }
  static std::string path_in(const std::string& folder) { return (folder.back() == '/' ? folder : folder + '/') + ".lock"; }

  FolderLock(std::string path, int file) : path_(std::move(path)), file_(file), process_(::getpid()) {}

  static std::shared_ptr<FolderLock> try_take(FileSystem& system, const std::string& folder) {
    struct stat of_folder = {}, of_file = {}, now = {};
    if (::stat(folder.c_str(), &of_folder) != 0) refuse_call({folder}, "cannot be looked at", errno);
    std::lock_guard guard(all().mutex);
    std::erase_if(all().locks, [](const auto& entry) { return entry.second.expired(); });
    std::weak_ptr<FolderLock>& mine = all().locks[{of_folder.st_dev, of_folder.st_ino}];
    if (auto held = mine.lock()) return held;
    const std::string path = path_in(folder);
    constexpr int flags = O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
    const int file = uninterrupted([&] { return system.open(path.c_str(), flags, 0600); });
    if (file < 0) refuse_call({path}, "cannot be made", errno);
    std::unique_ptr<const int, void (*)(const int*)> close(&file, [](const int* number) { ::close(*number); });
    if (::fstat(file, &of_file) != 0 || !S_ISREG(of_file.st_mode)) refuse({path}, {"is no plain file: move it away"});
    if (uninterrupted([&] { return ::flock(file, LOCK_EX | LOCK_NB); }) != 0 && errno == EWOULDBLOCK) return nullptr;
    // The process that held the lock removed the file, and another process may have created it again.
    if (::stat(path.c_str(), &now) != 0 || now.st_ino != of_file.st_ino || now.st_dev != of_file.st_dev) return nullptr;
    char host[256] = {};
    if (::gethostname(host, sizeof host - 1) != 0) host[0] = '\0';
    const std::string text = weft::detail::joined({"process ", long(::getpid()), " on host ", static_cast<const char*>(host)});
    if (::ftruncate(file, 0) != 0 || ::pwrite(file, text.data(), text.size(), 0) < 0) {  // the lock is valid without its text
    }
    (void)close.release();
    std::shared_ptr<FolderLock> lock(new FolderLock(path, file));
    mine = lock;
    return lock;
  }
  static std::string holder(const std::string& folder) {
    char text[512];
    const int file = ::open(path_in(folder).c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    const ::ssize_t got = file < 0 ? 0 : ::pread(file, text, sizeof text, 0);
    if (file >= 0) ::close(file);
    return got > 0 ? shown(std::string_view(text, std::size_t(got)), sizeof text) : "its .lock does not name the process";
  }

  std::string path_;
  int file_;
  ::pid_t process_;
  std::atomic<bool> saving_{false};
};

/// A save in progress in this process. Throws Error if another one is in progress in the same folder.
class Saving {
 public:
  explicit Saving(std::shared_ptr<FolderLock> lock) : lock_(std::move(lock)) {
    if (lock_->saving_.exchange(true))
      refuse({lock_->path_}, {"this process saves into the folder already: call finish() of that Saver first"});
  }
  Saving(const Saving&) = delete;
  Saving& operator=(const Saving&) = delete;
  ~Saving() { lock_->saving_ = false; }
  const std::shared_ptr<FolderLock>& lock() const { return lock_; }

 private:
  std::shared_ptr<FolderLock> lock_;
};

}  // namespace weft::checkpoint::detail
