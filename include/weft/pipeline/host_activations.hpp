// SPDX-License-Identifier: Apache-2.0
#pragma once
// The activations of a unit in host memory between its forward and its backward (ModelOptions::activations). The tensors on the
// unit's tape stay where they are, without elements: backward gets the same bits in other blocks of the device. A GPU copies
// while it computes: the blocks leave during the next unit's forward, and come during the backward of the units behind.
//
//   HostActivations<Exec> kept;
//   MadeTensors made;
//   unit.forward(...);
//   kept.leave(device, made, tape);
//   ...
//   kept.fetch(device);    // early
//   kept.arrive(device);   // before unit.backward(...)

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include <weft/autograd/tape.hpp>
#include <weft/device/offload_store.hpp>
#include <weft/device/rehearsal.hpp>
#include <weft/tensor/made_tensors.hpp>
#include <weft/tensor/tensor.hpp>

namespace weft::detail {

/// Records of host memory, one object of each device. A record is free again once its elements are back on the device, for blocks
/// down to half its size: batches of many lengths share their records.
template <class Exec>
class HostRecords {
 public:
  using Record = std::multimap<std::size_t, std::size_t>::node_type;  // its bytes and its number

  Store& store(Device<Exec>& device) {
    if (store_ == nullptr) {
      if (device.rehearsal() != nullptr) store_ = std::make_unique<RehearsedStore>();
      else store_ = std::make_unique<HostStore>();
    }
    return *store_;
  }
  Record take(Device<Exec>& device, std::size_t bytes) {
    auto free = free_.lower_bound(bytes);
    if (free == free_.end() || free->first > 2 * bytes) {
      free = free_.emplace(bytes, store(device).record(bytes));
      if (Rehearsal* const notes = device.rehearsal()) notes->host_activation_bytes += bytes;
    }
    return free_.extract(free);
  }
  void give_back(Record record) { free_.insert(std::move(record)); }

 private:
  std::unique_ptr<Store> store_;
  std::multimap<std::size_t, std::size_t> free_;
};

/// The copies of a rehearsal that are under way. A block on its way to host memory stays on the device until `settle`, as on a
/// GPU.
class RehearsedCopies {
 public:
  WEFT_COLD void put(Rehearsal& notes, const Buffer& from, std::size_t bytes) {
    leaving_.push_back(notes.moves_activations(true, bytes));
    if (!notes.early) blocks_.push_back(from);
  }
  WEFT_COLD void fetch(Rehearsal& notes, std::size_t bytes) { coming_.push_back(notes.moves_activations(false, bytes)); }
  WEFT_COLD void settle(Rehearsal& notes) {
    wait(notes, leaving_);
    blocks_.clear();
  }
  WEFT_COLD void arrive(Rehearsal& notes) { wait(notes, coming_); }

 private:
  static void wait(Rehearsal& notes, std::vector<std::uint64_t>& copies) {
    for (const std::uint64_t copy : copies)
      if (notes.trace) notes.trace->wait(copy);
    copies.clear();
  }

  std::vector<std::uint64_t> leaving_, coming_;  // numbers of the trace
  std::vector<Buffer> blocks_;
};

/// The elements that one unit keeps for the backward of one micro-batch. A block leaves the device if only tensors on the unit's
/// tape hold it: values that other units or the program still use stay, and so do parameters.
template <class Exec>
class HostActivations {
  static constexpr std::size_t least = 1024;  // bytes of a block for which a copy is worth its start

 public:
  HostActivations() = default;
  HostActivations(HostActivations&&) noexcept = default;
  /// After a step that failed: no copy is under way, and the records are free.
  WEFT_COLD ~HostActivations() {
    if (away_.empty()) return;
    try {
      settle(*device_);
      traffic(*device_).arrive(*device_);
      for (Block& block : away_) records(*device_).give_back(std::move(block.record));
    } catch (...) {  // the device is lost, and its records with it
    }
  }

  /// `tape` is the unit's, and `made` has listed the tensors since the unit's forward began. Waits for the copies of the unit
  /// before, so blocks of at most one unit are held for copies while another computes.
  WEFT_COLD void leave(Device<Exec>& device, MadeTensors& made, const Tape& tape) {
    device_ = &device;
    settle(device);
    std::map<void*, std::vector<operations::Elements*>> blocks;
    for (operations::Elements* const tensor : made.stop())
      if (tape.holds(tensor) && ElementPlace::buffer(*tensor)) blocks[ElementPlace::buffer(*tensor).get()].push_back(tensor);
    for (const auto& [begin, tensors] : blocks) {
      const Buffer buffer = ElementPlace::buffer(*tensors.front());
      const std::size_t bytes = Arena<typename Exec::memory_space>::bytes_of_activations(buffer);
      if (bytes < least || std::size_t(buffer.use_count()) != tensors.size() + 1) continue;
      Block& block = away_.emplace_back(Block{records(device).take(device, bytes), bytes});
      for (operations::Elements* const tensor : tensors) {
        void*& data = ElementPlace::data(*tensor);
        block.tensors.push_back({tensor, static_cast<char*>(std::exchange(data, nullptr)) - static_cast<char*>(begin)});
        ElementPlace::buffer(*tensor).reset();
      }
      traffic(device).put(device, records(device).store(device), block.record.mapped(), buffer, bytes);
      if (Rehearsal* const notes = device.rehearsal()) copies(device).put(*notes, buffer, bytes);
    }
  }
  /// Starts the copies to the device, into new blocks. Throws MemoryError if they have no room.
  WEFT_COLD void fetch(Device<Exec>& device) {
    if (away_.empty() || away_.back().buffer) return;
    settle(device);
    for (Block& block : away_) {
      if (block.buffer) continue;  // started before a MemoryError
      Buffer buffer = device.allocate(block.bytes);
      traffic(device).fetch(device, records(device).store(device), block.record.mapped(), buffer.get(), block.bytes);
      if (Rehearsal* const notes = device.rehearsal()) copies(device).fetch(*notes, block.bytes);
      block.buffer = std::move(buffer);
    }
  }
  /// Gives the tensors their elements, for the device's later work.
  WEFT_COLD void arrive(Device<Exec>& device) {
    if (away_.empty()) return;
    fetch(device);
    traffic(device).arrive(device);
    if (Rehearsal* const notes = device.rehearsal()) copies(device).arrive(*notes);
    for (Block& block : away_) {
      for (const auto& [tensor, offset] : block.tensors) {
        ElementPlace::buffer(*tensor) = block.buffer;
        ElementPlace::data(*tensor) = static_cast<char*>(block.buffer.get()) + offset;
      }
      records(device).give_back(std::move(block.record));
    }
    away_.clear();
  }

 private:
  struct Block {
    typename HostRecords<Exec>::Record record;
    std::size_t bytes;
    std::vector<std::pair<operations::Elements*, std::ptrdiff_t>> tensors = {};
    Buffer buffer = {};  // once the copy to the device has started
  };
  static HostRecords<Exec>& records(Device<Exec>& device) { return device.template cache<HostRecords<Exec>>(); }
  static RecordTraffic<Exec>& traffic(Device<Exec>& device) { return device.template cache<RecordTraffic<Exec>>(); }
  static RehearsedCopies& copies(Device<Exec>& device) { return device.template cache<RehearsedCopies>(); }
  static void settle(Device<Exec>& device) {
    traffic(device).settle();
    if (Rehearsal* const notes = device.rehearsal()) copies(device).settle(*notes);
  }

  Device<Exec>* device_ = nullptr;  // once values have left
  std::vector<Block> away_;
};

}  // namespace weft::detail
