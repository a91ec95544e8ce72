// SPDX-License-Identifier: Apache-2.0
#pragma once
// The steps, the limits and the addresses of rehearsals. Definitions for device/rehearsal.hpp.

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <mutex>

#include <weft/core/error.hpp>
#include <weft/core/inline.hpp>
#include <weft/device/rehearsal.hpp>

namespace weft {

WEFT_COLD WEFT_INLINE void RehearsedWork::sent(std::string_view axis, std::string_view operation, double bytes) {
  std::size_t i = 0;
  while (i < messages.size() && (messages[i].operation != operation || messages[i].axis != axis)) ++i;
  if (i == messages.size()) messages.push_back({std::string(axis), operation});
  ++messages[i].calls;
  messages[i].bytes += bytes;
}

WEFT_COLD WEFT_INLINE RehearsedWork RehearsedWork::since(const RehearsedWork& before) const {
  RehearsedWork work = *this;
  work.product_flops -= before.product_flops;
  work.product_bytes -= before.product_bytes;
  work.attention_flops -= before.attention_flops;
  work.products -= before.products;
  work.attentions -= before.attentions;
  work.launches -= before.launches;
  work.kernel_bytes -= before.kernel_bytes;
  work.copies -= before.copies;
  work.offloaded_bytes -= before.offloaded_bytes;
  work.activation_bytes -= before.activation_bytes;
  for (std::size_t i = 0; i < before.kernels.size(); ++i) {  // new kinds are only appended to the list
    work.kernels[i].launches -= before.kernels[i].launches;
    work.kernels[i].bytes -= before.kernels[i].bytes;
  }
  for (std::size_t i = 0; i < before.messages.size(); ++i) {
    work.messages[i].calls -= before.messages[i].calls;
    work.messages[i].bytes -= before.messages[i].bytes;
  }
  std::erase_if(work.kernels, [](const Kernels& one) { return one.launches == 0; });
  std::erase_if(work.messages, [](const Messages& one) { return one.calls == 0; });
  return work;
}

WEFT_COLD WEFT_INLINE void Rehearsal::before_run(const MemoryUse& use) {
  if (steps == 0) kept = use;
  copies_before_ = copies;
  if (trace && first_model_ == nullptr) trace->drop_part();  // events since an optimizer's step belong to no step
  if (++runs_ > most_runs)
    throw_error<UsageError>({"a model is called in a rehearsal, ", most_runs,
                             " times without an optimizer's step: a loop that ends by the clock, or by a value (all are zero "
                             "here), goes on and on; end it where world.communicator().rehearsed() is true"});
}

WEFT_COLD WEFT_INLINE void Rehearsal::before_step(const void* model, std::size_t rows) {
  const bool known = std::find(models_.begin(), models_.end(), model) != models_.end();
  const bool complete = known && first_model_ == nullptr && stepped_.size() >= std::max<std::size_t>(1, most_optimizers_);
  if (wanted_steps != 0 && step_ >= wanted_steps && complete) throw detail::RehearsalEnd();
  if (trained_ >= most_steps)
    throw_error<UsageError>({"train_step in a rehearsal, after ", most_steps,
                             " of them: a loop that ends by the clock, or by a value (all are zero here), goes on and on; "
                             "WEFT_REHEARSE_STEPS=3 ends the program after three steps, or end the loop where "
                             "world.communicator().rehearsed() is true"});
  ++trained_;
  if (!known) models_.push_back(model);
  if (first_model_ == nullptr) {
    first_model_ = model;
    before_part_ = static_cast<const RehearsedWork&>(*this);
    if (trace) trace->begin_part();
  }
  entered(model, rows);
}

WEFT_COLD WEFT_INLINE void Rehearsal::entered(const void* model, std::size_t rows) {
  if (trace && model == first_model_) trace->enter(double(rows));
}

WEFT_COLD WEFT_INLINE void Rehearsal::trains(std::string_view unit) {
  if (std::find(units.begin(), units.end(), unit) == units.end()) units.emplace_back(unit);
}

WEFT_COLD WEFT_INLINE void Rehearsal::stepped(const void* optimizer, const MemoryUse& use) {
  ++steps;
  runs_ = 0;
  kept = use;
  const bool anew = stepped_.empty() || std::find(stepped_.begin(), stepped_.end(), optimizer) != stepped_.end();
  if (anew) {
    most_optimizers_ = std::max(most_optimizers_, stepped_.size());
    stepped_.clear();
    ++step_;
    before_step_ = std::move(before_part_);
  }
  stepped_.push_back(optimizer);
  last_step = since(before_step_);
  if (trace) trace->end_part(anew);
  first_model_ = nullptr;
  before_part_ = static_cast<const RehearsedWork&>(*this);
}

WEFT_COLD WEFT_INLINE void Rehearsal::refuse_copies() {
  throw_error<UsageError>({"a tensor is copied to or from the host in a rehearsal, ", most_copies,
                           " times without a call of a model: a loop whose end depends on values that it reads (tensors read as "
                           "zeros here) or on the clock does not end; end it where world.communicator().rehearsed() is true"});
}

WEFT_COLD WEFT_INLINE void Rehearsal::sent(std::string_view axis, std::string_view operation, double bytes) {
  RehearsedWork::sent(axis, operation, bytes);
  if (const std::uint64_t now = launches + copies + runs_ + trained_ + steps; now != done_) in_a_row_ = 0, done_ = now;
  if (++in_a_row_ > most_messages)
    throw_error<UsageError>({operation, " on '", axis, "' in a rehearsal, after ", most_messages,
                             " messages in a row: a loop whose end depends on the clock or on another rank's values (here they "
                             "equal this rank's) does not end; end it where world.communicator().rehearsed() is true"});
}

WEFT_COLD WEFT_INLINE void Rehearsal::launched(const detail::Traffic& traffic, std::size_t threads) {
  std::size_t i = 0;
  while (i < kernels.size() && kernels[i].kind != traffic.kind) ++i;
  if (i == kernels.size()) kernels.push_back({.kind = traffic.kind, .least_threads = threads});
  kernels[i].least_threads = std::min(kernels[i].least_threads, threads);
  ++launches;
  kernel_bytes += double(traffic.bytes);
  ++kernels[i].launches;
  kernels[i].bytes += double(traffic.bytes);
  if (trace)
    trace->add({.kind = RehearsedTrace::Kind::kernel,
                .a = trace->kind_of(traffic.kind),
                .b = std::int64_t(traffic.exponentials),
                .amount = double(traffic.bytes)});
}

WEFT_COLD WEFT_INLINE RehearsedWork::Kernels RehearsedWork::of(std::string_view kind) const {
  for (const Kernels& one : kernels)
    if (one.kind == kind) return one;
  return {};
}

WEFT_COLD WEFT_INLINE std::uint64_t Rehearsal::moves_activations(bool to_host, std::size_t bytes) {
  activation_bytes += double(bytes);
  if (!trace) return 0;
  const std::uint64_t lane = ~std::uint64_t(2 * rank + int(to_host));  // one for each direction, which no other rank shares
  const std::int32_t group = trace->group_of({.axis = std::string(RehearsedTrace::host_memory), .identity = lane});
  return trace->start({.kind = RehearsedTrace::Kind::start, .group = group, .amount = double(bytes)});
}

WEFT_COLD WEFT_INLINE RehearsedWork::Messages RehearsedWork::of(std::string_view axis, std::string_view operation) const {
  for (const Messages& one : messages)
    if (one.operation == operation && one.axis == axis) return one;
  return {};
}

WEFT_COLD WEFT_INLINE const Rehearsal::Axis* Rehearsal::axis(std::string_view name) const {
  const Axis* largest = nullptr;
  for (const Axis& one : axes)
    if (one.name == name && (largest == nullptr || one.size > largest->size)) largest = &one;
  return largest;
}

WEFT_COLD WEFT_INLINE std::size_t Rehearsal::nodes_of(const Axis& axis) const {
  if (ranks_per_node <= 0) return 0;
  std::size_t most = 1;
  const auto first_of_a_group = [&](std::size_t rank) {
    for (const Axis::Line& line : axis.lines)
      if (rank / line.stride % line.size != 0) return false;
    return true;
  };
  for (std::size_t first = 0; first < std::size_t(ranks); ++first) {
    if (!first_of_a_group(first)) continue;
    std::size_t nodes = 0, last = 0;
    for (std::size_t i = 0; i < axis.size; ++i) {
      std::size_t rank = first, rest = i;
      for (const Axis::Line& line : axis.lines) {
        rank += rest % line.size * line.stride;
        rest /= line.size;
      }
      const std::size_t node = rank / std::size_t(ranks_per_node);
      nodes += nodes == 0 || node != last;
      last = node;
    }
    most = std::max(most, nodes);
  }
  return most;
}

}  // namespace weft

namespace weft::detail {

WEFT_COLD WEFT_INLINE NotesAside::NotesAside(Rehearsal& notes) : notes_(notes), before_(std::make_unique<Rehearsal>(notes)) {
  notes.trace = nullptr;
}
WEFT_COLD WEFT_INLINE NotesAside::~NotesAside() { notes_ = std::move(*before_); }

/// The address space, and its used part. The mapping has no pages, so it needs no memory.
struct RehearsedAddresses {
  static constexpr std::size_t size = std::size_t(64) << 40;
  std::atomic<char*> begin{nullptr};
  std::atomic<std::size_t> taken{0};
  std::mutex mutex;
  std::size_t uses = 0;  // protected by the mutex

  char* mapped() {
    if (char* const known = begin.load()) return known;
    void* const block = ::mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (block == MAP_FAILED)
      throw_error<Error>({"rehearsal: this process may not have 64 TiB of addresses (no memory): raise its limit (ulimit -v)"});
    char* none = nullptr;
    if (!begin.compare_exchange_strong(none, static_cast<char*>(block))) ::munmap(block, size);
    return begin.load();
  }
};

WEFT_COLD WEFT_INLINE RehearsedAddresses& rehearsed_addresses() {
  static RehearsedAddresses addresses;
  return addresses;
}

WEFT_COLD WEFT_INLINE RehearsedMemory::Use::Use() {
  RehearsedAddresses& addresses = rehearsed_addresses();
  const std::lock_guard lock(addresses.mutex);
  ++addresses.uses;
}

WEFT_COLD WEFT_INLINE RehearsedMemory::Use::~Use() {
  RehearsedAddresses& addresses = rehearsed_addresses();
  const std::lock_guard lock(addresses.mutex);
  if (--addresses.uses == 0) addresses.taken = 0;
}

WEFT_COLD WEFT_INLINE void* RehearsedMemory::take(std::size_t bytes) {
  RehearsedAddresses& addresses = rehearsed_addresses();
  char* const begin = addresses.mapped();
  const std::size_t rounded = (bytes + 63) / 64 * 64, at = addresses.taken.fetch_add(rounded);
  if (rounded > RehearsedAddresses::size || at > RehearsedAddresses::size - rounded) return nullptr;
  return begin + at;
}

WEFT_COLD WEFT_INLINE bool RehearsedMemory::holds(const void* address) {
  const char* const begin = rehearsed_addresses().begin.load();
  const char* const at = static_cast<const char*>(address);
  return begin != nullptr && at >= begin && at < begin + RehearsedAddresses::size;
}

}  // namespace weft::detail
