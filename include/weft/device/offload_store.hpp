// SPDX-License-Identifier: Apache-2.0
#pragma once
// A store for state that is off the device between its uses (optim/offload.hpp): records of bytes in host memory or in a file of
// this rank. Written records take effect together, at `commit`: if a disk fails in the middle of an optimizer's step, every
// record stays unchanged.
//
//   FileStore store("/scratch/run.3");                           // removed when the program ends for any reason
//   const std::size_t moments = store.record(bytes);            // allocates now, or throws StorageError
//   write_record(device, store, moments, pointer, bytes);
//   store.commit();

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <Kokkos_Core.hpp>

#include <weft/core/error.hpp>
#include <weft/core/inline.hpp>
#include <weft/device/device.hpp>
#include <weft/device/host_copies.hpp>

namespace weft {

namespace detail {

class Store {
 public:
  virtual ~Store() = default;
  /// Creates a record of `bytes` bytes, all zero, and returns its number.
  virtual std::size_t record(std::size_t bytes) = 0;
  /// Copies the record, as of the last commit, to `host`.
  virtual void read(std::size_t record, void* host) const = 0;
  /// Announces a read, so that a store can begin to fetch the record. Does not wait.
  virtual void read_ahead(std::size_t /*record*/) const {}
  /// Sets the contents of the record after the next commit.
  virtual void write(std::size_t record, const void* host) = 0;
  virtual void commit() = 0;
  /// Discards all writes since the last commit.
  virtual void roll_back() = 0;
  /// True if `write` can throw.
  virtual bool may_fail() const = 0;
  /// The record's address in memory, or null.
  virtual void* memory(std::size_t /*record*/) const { return nullptr; }
};

// Host memory that devices copy from and to at full speed.
template <class Exec>
struct HostMemory {
  using type = Kokkos::HostSpace;
};
#if defined(KOKKOS_HAS_SHARED_HOST_PINNED_SPACE)
template <class Exec>
requires(!Kokkos::SpaceAccessibility<Kokkos::HostSpace, typename Exec::memory_space>::accessible) struct HostMemory<Exec> {
  using type = Kokkos::SharedHostPinnedSpace;
};
#endif

/// Records without contents, for rehearsals, which neither read nor write them.
class RehearsedStore final : public Store {
 public:
  std::size_t record(std::size_t) override { return records_++; }
  void read(std::size_t, void*) const override {}
  void write(std::size_t, const void*) override {}
  void commit() override {}
  void roll_back() override {}
  bool may_fail() const override { return false; }

 private:
  std::size_t records_ = 0;
};

/// Records in host memory. Writing to memory cannot fail, so a record has one place.
class HostStore final : public Store {
  using Memory = HostMemory<DefaultDevice::execution_space>::type;

 public:
  WEFT_INLINE std::size_t record(std::size_t bytes) override;
  WEFT_INLINE void read(std::size_t record, void* host) const override;
  WEFT_INLINE void write(std::size_t record, const void* host) override;
  void commit() override {}
  WEFT_INLINE bool may_fail() const override;
  void roll_back() override {}
  WEFT_INLINE void* memory(std::size_t record) const override;

 private:
  struct Record {
    std::shared_ptr<void> memory;
    std::size_t bytes;
  };
  std::vector<Record> records_;
};

/// Records in a file. Each record has two positions in the file, one of which is valid. A new record allocates its disk space at
/// once.
class FileStore final : public Store {
 public:
  explicit FileStore(std::string path);
  FileStore(const FileStore&) = delete;
  FileStore& operator=(const FileStore&) = delete;
  WEFT_INLINE ~FileStore() override;

  WEFT_INLINE std::size_t record(std::size_t bytes) override;
  WEFT_INLINE void read(std::size_t record, void* host) const override;
  /// Starts to fetch the record while this rank computes. Written records are written to the disk in the same way.
  WEFT_INLINE void read_ahead(std::size_t record) const override;
  WEFT_INLINE void write(std::size_t record, const void* host) override;
  WEFT_INLINE bool may_fail() const override;
  WEFT_INLINE void commit() override;
  WEFT_INLINE void roll_back() override;

 private:
  static constexpr std::size_t page = 4096;
  struct Record {
    std::size_t begin, room, bytes;
    int active;
    bool written;
  };

  template <class Call>
  void move(const char* what, const Record& r, int place, Call&& call) const {
    const std::size_t begin = r.begin + std::size_t(place) * r.room;
    for (std::size_t done = 0; done < r.bytes;) {
      const ::ssize_t moved = call(done, begin + done);
      if (moved < 0 && errno == EINTR) continue;
      if (moved <= 0)
        fail(joined({what, " at byte ", begin + done, ", ", r.bytes - done, " bytes to go"}), moved < 0 ? errno : 0);
      done += std::size_t(moved);
    }
  }
  [[noreturn]] void fail(const std::string& what, int error) const {
    const char* const reason = error != 0 ? std::strerror(error) : "it has ended";
    throw StorageError(joined({"offload: file '", path_, "' ", what, ": ", reason}), error != 0 ? exit_code_of_errno(error) : 1);
  }

  std::string path_;
  int file_ = -1;
  std::size_t end_ = 0;
  std::vector<Record> records_;
};

/// Copies the record to `bytes` bytes at `data` in device memory; a record in memory may be longer. Waits until the copy is done.
template <class Exec>
void read_record(Device<Exec>& device, const Store& store, std::size_t record, void* data, std::size_t bytes) {
  if (Rehearsal* const notes = device.rehearsal(); notes != nullptr) [[unlikely]]
    return notes->offloaded(bytes);
  if constexpr (Kokkos::SpaceAccessibility<Kokkos::HostSpace, typename Exec::memory_space>::accessible) {
    device.exec().fence("weft::read_record");
    if (const void* const from = store.memory(record)) std::memcpy(data, from, bytes);
    else store.read(record, data);
  } else {
    std::vector<char> staged;
    const void* from = store.memory(record);
    if (from == nullptr) store.read(record, (staged.resize(bytes), staged.data()));
    copy_to_device(device, data, from ? from : staged.data(), bytes);
    device.exec().fence("weft::read_record");
  }
}

/// Copies `bytes` bytes at `data` in device memory to the record, valid after the store's next commit; a record in memory may be
/// longer. Waits until the copy is done.
template <class Exec>
void write_record(Device<Exec>& device, Store& store, std::size_t record, const void* data, std::size_t bytes) {
  if (Rehearsal* const notes = device.rehearsal(); notes != nullptr) [[unlikely]]
    return notes->offloaded(bytes);
  if constexpr (Kokkos::SpaceAccessibility<Kokkos::HostSpace, typename Exec::memory_space>::accessible) {
    device.exec().fence("weft::write_record");
    if (void* const to = store.memory(record)) std::memcpy(to, data, bytes);
    else store.write(record, data);
  } else {
    std::vector<char> staged;
    void* to = store.memory(record);
    if (to == nullptr) to = (staged.resize(bytes), staged.data());
    copy_from_device(device, to, data, bytes);
    device.exec().fence("weft::write_record");
    if (!staged.empty()) store.write(record, to);
  }
}

/// Transfers of records to a device and back. A device has one object (device.cache<RecordTraffic<Exec>>()). This general version
/// copies synchronously; a GPU copies while it computes (device/cuda/record_traffic.hpp).
template <class Exec>
class RecordTraffic {
 public:
  static constexpr bool beside = false;
  /// Copies the record to `bytes` bytes at `to`. They are valid for work after the next `arrive`.
  void fetch(Device<Exec>& device, const Store& store, std::size_t record, void* to, std::size_t bytes) {
    read_record(device, store, record, to, bytes);
  }
  void arrive(Device<Exec>&) {}
  /// Copies `from`, in its state after the device's earlier computation, to the record. Until `settle`, `from` is kept alive and
  /// must not be written.
  void put(Device<Exec>& device, Store& store, std::size_t record, const Buffer& from, std::size_t bytes) {
    write_record(device, store, record, from.get(), bytes);
  }
  /// Waits until every `put` is in its record. Required before the store commits or a record is read.
  void settle() {}
};

}  // namespace detail

}  // namespace weft

#ifdef KOKKOS_ENABLE_CUDA
#include <weft/device/cuda/record_traffic.hpp>
#endif

#ifndef WEFT_COMPILED
#include <weft/device/offload_store_impl.hpp>
#endif

#ifdef WEFT_COMPILED
namespace weft::detail {
extern template void read_record(Device<Kokkos::DefaultHostExecutionSpace>&, const Store&, std::size_t, void*, std::size_t);
extern template void write_record(Device<Kokkos::DefaultHostExecutionSpace>&, Store&, std::size_t, const void*, std::size_t);
}  // namespace weft::detail
#endif
