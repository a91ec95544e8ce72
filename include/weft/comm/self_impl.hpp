// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for comm/self.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <weft/comm/self.hpp>
#include <weft/core/inline.hpp>

namespace weft::comm {

WEFT_INLINE int SelfGroup::rank() const { return 0; }

WEFT_INLINE int SelfGroup::size() const { return 1; }

WEFT_INLINE std::string_view SelfGroup::axis() const { return axis_; }

WEFT_INLINE std::string_view SelfGroup::backend() const { return backend_; }

WEFT_INLINE bool SelfGroup::supports(Operation operation, DataType, MemoryKind memory) const {
  return memory == MemoryKind::host || !is_point_to_point(operation);
}

WEFT_INLINE void SelfGroup::execute(const Call& call) {
  ++sequence_;
  if (call.operation == Operation::send) return send(call);
  if (call.operation == Operation::recv) {
    if (!receive(call)) refuse(call, "rank 0 waits for a message from itself that it has not sent");
    return;
  }
  const bool by_counts = call.operation == Operation::all_gather_v || call.operation == Operation::reduce_scatter_v ||
                         call.operation == Operation::all_to_all_v;
  const std::size_t bytes = (by_counts ? call.receive_counts[0] : call.count) * size_of(call.type);
  if (bytes == 0 || call.input == call.output || call.input == nullptr || call.output == nullptr) return;
  if (call.memory == MemoryKind::device) return copy_on_device(call, bytes);
  call.order.fence();
  std::memmove(call.output, call.input, bytes);
}

WEFT_INLINE std::unique_ptr<Pending> SelfGroup::start(const Call& call) {
  if (call.operation != Operation::recv) {
    execute(call);
    return nullptr;
  }
  ++sequence_;
  if (receive(call)) return nullptr;
  return std::unique_ptr<Pending>(new Later(*this, call));
}

WEFT_INLINE std::shared_ptr<Group> SelfGroup::split(int, int, std::string axis) {
  return std::make_shared<SelfGroup>(std::move(axis), backend_);
}

WEFT_INLINE void SelfGroup::send(const Call& call) {
  call.order.fence();
  for (Later* expected = expected_.first(); expected != nullptr; expected = expected->next) {
    if (expected->call.tag != call.tag) continue;
    expected_.remove(*expected);
    take(call.type, call.bytes(), call.input, expected->call);
    expected->done = true;
    return;
  }
  std::unique_ptr<Message>* last = &messages_;
  while (*last) last = &(*last)->next;
  last->reset(new Message{call.tag, call.type, call.bytes(), std::unique_ptr<std::byte[]>(new std::byte[call.bytes()]), {}});
  if (call.bytes() != 0) std::memcpy((*last)->copy.get(), call.input, call.bytes());
}

WEFT_INLINE bool SelfGroup::receive(const Call& call) {
  for (std::unique_ptr<Message>* at = &messages_; *at; at = &(*at)->next) {
    if ((*at)->tag != call.tag) continue;
    const std::unique_ptr<Message> message = std::move(*at);
    *at = std::move(message->next);
    take(message->type, message->bytes, message->copy.get(), call);
    return true;
  }
  return false;
}

WEFT_INLINE void SelfGroup::take(DataType type, std::size_t bytes, const void* from, const Call& call) const {
  if (type != call.type || bytes != call.bytes())
    refuse(call, weft::detail::joined({"the message holds ", bytes / size_of(type), " ", name_of(type)}));
  if (bytes != 0) std::memcpy(call.output, from, bytes);
}

WEFT_COLD WEFT_INLINE void SelfGroup::copy_on_device(const Call& call, std::size_t bytes) const {
  if (call.order.device == nullptr) refuse(call, "this communicator knows no device: take the one of World or Mesh");
  call.order.device->copy(call.order.stream(call.order.instance), call.output, call.input, bytes);
}

WEFT_COLD WEFT_INLINE void SelfGroup::refuse(const Call& call, const std::string& text) const {
  throw MismatchError(0, axis_, describe(call), sequence_, text);
}

}  // namespace weft::comm
