// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for comm/threads/mailbox.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <weft/comm/threads/mailbox.hpp>
#include <weft/core/inline.hpp>

namespace weft::comm::threads {

WEFT_INLINE Receive::~Receive() {
  if (!complete_) mailbox_.forget(*this);
}

WEFT_INLINE bool Receive::advance() {
  if (complete_ || !matched_.load(std::memory_order_seq_cst)) return false;
  world_.rank(rank_).advances.fetch_add(1, std::memory_order_relaxed);
  if (message_->type != call_.type || message_->count != call_.count) {
    Call sent = call_;
    sent.operation = Operation::send;
    sent.function = message_->function;
    sent.type = message_->type;
    sent.count = message_->count;
    world_.fail(rank_,
                weft::detail::joined({"ranks disagree: rank ", sender(), " called ", describe(signature(sent), sent.count),
                                      ", rank ", rank_, " called ", describe(signature(call_), call_.count),
                                      functions_of(weft::detail::joined({"rank ", sender()}), signature(sent),
                                                   weft::detail::joined({"rank ", rank_}), signature(call_))}),
                true);
    complete_ = true;
    return true;
  }
  if (!message_->copy && call_.bytes() != 0) {
    const World::Touch touch(world_, world_.rank(rank_));
    if (!touch.allowed()) return false;
    std::memcpy(call_.output, message_->data, call_.bytes());
    message_->taken.store(true, std::memory_order_seq_cst);
  } else if (call_.bytes() != 0) {
    std::memcpy(call_.output, message_->data, call_.bytes());
  }
  world_.wake(sender());
  complete_ = true;
  return true;
}

WEFT_INLINE void Mailbox::send(const std::shared_ptr<Message>& message) {
  std::lock_guard lock(mutex_);
  for (Receive** at = &expected_; *at != nullptr; at = &(*at)->next_) {
    Receive& receive = **at;
    if (!receive.wants(*message)) continue;
    *at = receive.next_;
    receive.match(message);
    return;
  }
  (newest_ != nullptr ? newest_->next : oldest_) = message;
  newest_ = message.get();
}

WEFT_INLINE void Mailbox::expect(Receive& receive) {
  std::lock_guard lock(mutex_);
  Message* before = nullptr;
  for (std::shared_ptr<Message>* at = &oldest_; *at; before = at->get(), at = &before->next) {
    if (!receive.wants(**at)) continue;
    std::shared_ptr<Message> found = std::move(*at);
    *at = std::move(found->next);
    if (newest_ == found.get()) newest_ = before;
    receive.match(std::move(found));
    return;
  }
  Receive** last = &expected_;
  while (*last != nullptr) last = &(*last)->next_;
  *last = &receive;
}

WEFT_INLINE void Mailbox::forget(Receive& receive) {
  std::lock_guard lock(mutex_);
  Receive** at = &expected_;
  while (*at != nullptr && *at != &receive) at = &(*at)->next_;
  if (*at != nullptr) *at = receive.next_;
}

}  // namespace weft::comm::threads
