// SPDX-License-Identifier: Apache-2.0
#pragma once
// The records of memory and of files. Definitions for device/offload_store.hpp.

#include <weft/core/inline.hpp>
#include <weft/core/uninterrupted.hpp>
#include <weft/device/offload_store.hpp>

namespace weft::detail {

WEFT_INLINE std::size_t HostStore::record(std::size_t bytes) {
  records_.push_back({std::shared_ptr<void>(Kokkos::kokkos_malloc<Memory>("weft offload", bytes > 0 ? bytes : 1),
                                            [](void* memory) { Kokkos::kokkos_free<Memory>(memory); }),
                      bytes});
  std::memset(records_.back().memory.get(), 0, bytes);
  return records_.size() - 1;
}

WEFT_INLINE void HostStore::read(std::size_t record, void* host) const {
  std::memcpy(host, records_[record].memory.get(), records_[record].bytes);
}

WEFT_INLINE void HostStore::write(std::size_t record, const void* host) {
  std::memcpy(records_[record].memory.get(), host, records_[record].bytes);
}

WEFT_INLINE bool HostStore::may_fail() const { return false; }

WEFT_INLINE void* HostStore::memory(std::size_t record) const { return records_[record].memory.get(); }

WEFT_INLINE FileStore::FileStore(std::string path) : path_(std::move(path)) {
  file_ = uninterrupted([&] { return ::open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600); });
  if (file_ < 0) fail("cannot be made", errno);
  ::unlink(path_.c_str());  // the open file stays usable without a name
}

WEFT_INLINE FileStore::~FileStore() { ::close(file_); }

WEFT_INLINE std::size_t FileStore::record(std::size_t bytes) {
  const std::size_t room = (bytes + page - 1) / page * page;
  if (room > 0)
    if (const int error = uninterrupted_error([&] { return ::posix_fallocate(file_, ::off_t(end_), ::off_t(2 * room)); })) {
      struct statvfs left = {};
      const bool known = ::fstatvfs(file_, &left) == 0;
      fail(known ? joined({"has no room for ", 2 * room, " more bytes (", end_, " in use, ",
                           std::size_t(left.f_bavail) * std::size_t(left.f_frsize), " free)"})
                 : joined({"has no room for ", 2 * room, " more bytes"}),
           error);
    }
  records_.push_back({end_, room, bytes, 0, false});
  end_ += 2 * room;
  return records_.size() - 1;
}

WEFT_INLINE void FileStore::read(std::size_t record, void* host) const {
  const Record& r = records_[record];
  move("cannot be read", r, r.active, [&](std::size_t done, std::size_t at) {
    return ::pread(file_, static_cast<char*>(host) + done, r.bytes - done, ::off_t(at));
  });
}

WEFT_INLINE void FileStore::read_ahead(std::size_t record) const {
  const Record& r = records_[record];
  ::posix_fadvise(file_, ::off_t(r.begin + std::size_t(r.active) * r.room), ::off_t(r.bytes), POSIX_FADV_WILLNEED);
}

WEFT_INLINE void FileStore::write(std::size_t record, const void* host) {
  Record& r = records_[record];
  move("cannot be written", r, 1 - r.active, [&](std::size_t done, std::size_t at) {
    return ::pwrite(file_, static_cast<const char*>(host) + done, r.bytes - done, ::off_t(at));
  });
  r.written = true;
}

WEFT_INLINE bool FileStore::may_fail() const { return true; }

WEFT_INLINE void FileStore::commit() {
  for (Record& r : records_)
    if (std::exchange(r.written, false)) r.active = 1 - r.active;
}

WEFT_INLINE void FileStore::roll_back() {
  for (Record& r : records_) r.written = false;
}

}  // namespace weft::detail
