// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for comm/tcp/connection.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <new>
#include <utility>

#include <weft/comm/tcp/connection.hpp>
#include <weft/core/inline.hpp>

namespace weft::comm::tcp {

/// The key of one direction.
inline store::Digest key_of_frames(const store::Digest& link, int from) {
  return store::hmac_sha256(store::letters(link), weft::detail::joined({"frames from rank ", from}));
}

/// Bytes that one turn moves on a connection at most; then the others get theirs.
inline constexpr std::size_t turn_bytes = std::size_t(1) << 20;

WEFT_INLINE Connection::Connection(int rank, int peer, store::Link link, int epoll, Signal& signal)
    : peer_(peer),
      epoll_(epoll),
      link_(std::move(link)),
      signal_(signal),
      out_(store::letters(key_of_frames(link_.key, rank))),
      in_(store::letters(key_of_frames(link_.key, peer))) {
  store::set_not_blocking(link_.socket.get());
  epoll_event event{.events = EPOLLIN, .data = {.u64 = std::uint64_t(peer)}};
  if (::epoll_ctl(epoll_, EPOLL_CTL_ADD, link_.socket.get(), &event) != 0)
    throw_error<StoreError>({"the connection to rank ", peer, " cannot be watched: ", std::strerror(errno)});
}

WEFT_INLINE void Connection::send(Delivery& buffer, std::uint64_t slot, const std::byte* data, std::size_t length) {
  const std::lock_guard lock(mutex_);
  expect_whole();
  const Message message{&buffer, const_cast<std::byte*>(data), length};
  const auto room = announced_.lower_bound(slot);
  if (room == announced_.end() || room->first != slot) {
    sends_.emplace(slot, message);
    return;
  }
  if (length > room->second) {
    break_off(true, "rank %d has room for less than the message that this rank sends");
    expect_whole();
  }
  announced_.erase(room);
  push({FrameKind::data, slot, length}, message);
}

WEFT_INLINE void Connection::receive(Delivery& buffer, std::uint64_t slot, std::byte* data, std::size_t length) {
  const std::lock_guard lock(mutex_);
  expect_whole();
  receives_.emplace(slot, Message{&buffer, data, length});
  push({FrameKind::ready, slot, length}, {});
}

WEFT_INLINE void Connection::forget(Delivery& buffer) noexcept {
  const std::lock_guard lock(mutex_);
  std::erase_if(sends_, [&](const auto& entry) { return entry.second.buffer == &buffer; });
  for (auto& entry : receives_)
    if (entry.second.buffer == &buffer) entry.second.buffer = nullptr;
  if (arriving_.buffer == &buffer) arriving_.buffer = nullptr;
  for (Leaving& leaving : leaving_) {
    Message& message = leaving.message;
    if (message.buffer != &buffer) continue;
    message.buffer = nullptr;
    leaving.kept.reset(new (std::nothrow) std::byte[message.length]);
    if (!leaving.kept) return break_off(false, "no memory is left for a message to rank %d");
    if (message.length != 0) std::memcpy(leaving.kept.get(), message.data, message.length);
    message.data = leaving.kept.get();
  }
}

WEFT_INLINE void Connection::handle(std::uint32_t events) noexcept {
  bool news = false;
  {
    const std::lock_guard lock(mutex_);
    if (is_broken_) return;
    try {
      if ((events & ~std::uint32_t(EPOLLOUT)) != 0 && !read())
        break_off(false, inside_ || begin_ != end_ ? "rank %d closed its connection inside of a frame"
                                                   : "rank %d closed its connection");
      else if ((events & EPOLLOUT) != 0) write();
    } catch (const InvalidFrame& error) {
      break_off(true, "bytes from rank %d are no valid frame: %s", error.what());
    } catch (const std::exception& error) {
      break_off(false, "the connection to rank %d: %s", error.what());
    }
    std::swap(news, news_);
  }
  if (news) signal_.notify();
}

WEFT_INLINE void Connection::fail(const char* why) noexcept {
  {
    const std::lock_guard lock(mutex_);
    break_off(false, "the connection to rank %d: %s", why);
  }
  signal_.notify();
}

/// `format` takes the peer and `why`.
WEFT_COLD WEFT_INLINE void Connection::break_off(bool invalid, const char* format, const char* why) noexcept {
  if (is_broken_) return;
  is_broken_ = news_ = true;
  broken_.invalid_ = invalid;
  std::snprintf(broken_.text_, sizeof broken_.text_, format, peer_, why);
  ::epoll_ctl(epoll_, EPOLL_CTL_DEL, link_.socket.get(), nullptr);
  shut();
  const auto end = [&](const Message& message) {
    if (message.buffer != nullptr) message.buffer->broken_.store(&broken_, std::memory_order_release);
  };
  for (const auto& entry : sends_) end(entry.second);
  for (const auto& entry : receives_) end(entry.second);
  for (const Leaving& leaving : leaving_) end(leaving.message);
  end(arriving_);
  sends_.clear();
  receives_.clear();
  leaving_.clear();
  announced_.clear();
  arriving_ = {};
  if (invalid) signal_.disturb();
}

/// Sends a frame at once if the socket takes it.
WEFT_INLINE void Connection::push(const Frame& frame, Message message) {
  Leaving& leaving = leaving_.emplace_back();
  leaving.head = out_.seal(frame, leaving.code);
  leaving.message = message;
  leaving.has_data = frame.kind == FrameKind::data;
  if (!watches_writable_) write();  // else the loop does, once there is room
}

/// Writes frames until there are none or the socket takes no more.
WEFT_INLINE void Connection::write() {
  constexpr std::size_t most = 24;
  for (std::size_t moved = 0; !leaving_.empty() && !deaf_;) {
    if (moved >= turn_bytes) return watch(true);
    iovec parts[most];
    std::size_t count = 0;
    for (auto leaving = leaving_.begin(); leaving != leaving_.end() && count + 3 <= most; ++leaving) {
      std::size_t skip = leaving->sent;
      const auto add = [&](const void* data, std::size_t bytes) {
        const std::size_t skipped = std::min(skip, bytes);
        skip -= skipped;
        if (bytes != skipped) parts[count++] = {static_cast<char*>(const_cast<void*>(data)) + skipped, bytes - skipped};
      };
      add(leaving->head.data(), leaving->head.size());
      if (!leaving->has_data) continue;
      add(leaving->message.data, leaving->message.length);
      add(FrameSeal::tail_of(leaving->code), FrameSeal::code_bytes);
    }
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = count;
    const ssize_t sent = ::sendmsg(link_.socket.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return watch(true);
      if (errno != EPIPE && errno != ECONNRESET) return break_off(false, "the connection to rank %d: %s", std::strerror(errno));
      deaf_ = true;  // its last words may still be there to be read
      break;
    }
    moved += std::size_t(sent);
    for (auto left = std::size_t(sent); left != 0;) {
      Leaving& leaving = leaving_.front();
      const std::size_t taken = std::min(left, leaving.bytes() - leaving.sent);
      leaving.sent += taken;
      left -= taken;
      if (leaving.sent != leaving.bytes()) break;
      Delivery* const buffer = leaving.message.buffer;
      leaving_.pop_front();
      if (buffer == nullptr) continue;
      news_ = true;
      buffer->sends_.fetch_add(1, std::memory_order_release);  // from here on it may be gone
    }
  }
  watch(false);
}

/// Whether the loop is notified of room in the socket.
WEFT_INLINE void Connection::watch(bool writable) {
  if (watches_writable_ == writable) return;
  epoll_event event{.events = EPOLLIN, .data = {.u64 = std::uint64_t(peer_)}};
  if (writable) event.events |= EPOLLOUT;
  if (::epoll_ctl(epoll_, EPOLL_CTL_MOD, link_.socket.get(), &event) != 0)
    return break_off(false, "the connection to rank %d: %s", std::strerror(errno));
  watches_writable_ = writable;
}

/// Reads all received bytes; false at the end of the connection.
WEFT_INLINE bool Connection::read() {
  for (std::size_t moved = 0; moved < turn_bytes && !is_broken_;) {
    iovec parts[2];
    std::size_t count = 0, direct = 0;
    std::memmove(inbox_.data(), inbox_.data() + begin_, end_ - begin_);
    end_ -= std::exchange(begin_, 0);
    std::size_t room = inbox_.size() - end_;
    if (inside_ && arriving_.buffer != nullptr && got_ < arriving_.length) {
      direct = std::min(arriving_.length - got_, turn_bytes);
      if (direct != arriving_.length - got_) room = 0;
      parts[count++] = {arriving_.data + got_, direct};
    }
    if (room != 0) parts[count++] = {inbox_.data() + end_, room};
    const ssize_t got = ::readv(link_.socket.get(), parts, int(count));
    if (got == 0) return false;
    if (got < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return true;
      break_off(false, "the connection to rank %d: %s", std::strerror(errno));
      return true;
    }
    const std::size_t placed = std::min(std::size_t(got), direct);
    got_ += placed;
    end_ += std::size_t(got) - placed;
    moved += std::size_t(got);
    parse();
    if (std::size_t(got) < direct + room) return true;  // that was all
  }
  return true;
}

/// Takes the frames out of the inbox.
WEFT_INLINE void Connection::parse() {
  while (!is_broken_) {
    if (!inside_) {
      if (end_ - begin_ < FrameSeal::head_bytes) return in_.expect_mark(inbox_.data() + begin_, end_ - begin_);
      const Frame frame = in_.open(inbox_.data() + begin_, code_);
      begin_ += FrameSeal::head_bytes;
      begin_frame(frame);
      continue;
    }
    const std::size_t taken = std::min(end_ - begin_, arriving_.length - got_);
    if (taken != 0 && arriving_.buffer != nullptr) std::memcpy(arriving_.data + got_, inbox_.data() + begin_, taken);
    got_ += taken;
    begin_ += taken;
    if (got_ < arriving_.length || end_ - begin_ < FrameSeal::code_bytes) return;
    in_.close(inbox_.data() + begin_, code_);
    begin_ += FrameSeal::code_bytes;
    inside_ = false;
    Delivery* const buffer = std::exchange(arriving_, {}).buffer;
    if (buffer == nullptr) continue;
    news_ = true;
    buffer->receives_.fetch_add(1, std::memory_order_release);  // from here on it may be gone
  }
}

WEFT_INLINE void Connection::begin_frame(const Frame& frame) {
  if (frame.kind == FrameKind::ready) {
    const auto waiting = sends_.lower_bound(frame.slot);
    if (waiting == sends_.end() || waiting->first != frame.slot) {
      if (announced_.size() >= most_announced) throw InvalidFrame("it announces room for too many messages");
      announced_.emplace(frame.slot, frame.length);
      return;
    }
    if (waiting->second.length > frame.length) throw InvalidFrame("it has room for less than the message that this rank sends");
    const Message message = waiting->second;
    sends_.erase(waiting);
    return push({FrameKind::data, frame.slot, message.length}, message);
  }
  const auto place = receives_.lower_bound(frame.slot);
  if (place == receives_.end() || place->first != frame.slot) throw InvalidFrame("it sends a message for which there is no room");
  if (frame.length > place->second.length)
    throw InvalidFrame(
        weft::detail::joined({"it sends a message of ", frame.length, " bytes where there is room for ", place->second.length}));
  arriving_ = place->second;
  arriving_.length = frame.length;
  got_ = 0;
  inside_ = true;
  receives_.erase(place);
}

}  // namespace weft::comm::tcp
