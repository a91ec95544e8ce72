// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for comm/store/heartbeat.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <sys/eventfd.h>

#include <system_error>

#include <weft/comm/store/connector.hpp>
#include <weft/comm/store/heartbeat.hpp>
#include <weft/core/inline.hpp>

namespace weft::comm::store {

WEFT_INLINE Heartbeat::Heartbeat(const std::string& host, int port, const Identity& who, const std::string& secret,
                                 Deadline deadline)
    : rank_(who.rank),
      where_(weft::detail::joined({host, ":", port})),
      patience_(heartbeat_patience()),
      link_(Connector(host, port, who, secret, the_heartbeat).connect(deadline)),
      wakes_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      messages_(link_.key, Sealed::Side::rank) {
  outgoing_.reserve(512);
  send(request(Op::beat, 0, "beat", {}));  // in which the store sees that this rank was let in
  try {
    thread_ = std::thread([this] { beat(); });
  } catch (const std::system_error& error) {
    throw_error<StoreError>({"rank ", rank_, " cannot start the thread of its heartbeat: ", error.what()});
  }
}

WEFT_INLINE Heartbeat::~Heartbeat() {
  stop_.store(true);
  const std::uint64_t one = 1;
  (void)!::write(wakes_.get(), &one, sizeof one);
  thread_.join();
}

WEFT_INLINE void Heartbeat::leave() noexcept {
  static constexpr char text[] = {char(Op::leave), 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 'l', 'e', 'a', 'v', 'e'};
  send({text, sizeof text});
}

WEFT_INLINE void Heartbeat::send(std::string_view request) noexcept {
  const std::lock_guard lock(sending_);
  // A stopped store reads no bytes. Beats that do not fit into its buffers are left out.
  if (outgoing_.size() < 256) messages_.seal(request, outgoing_);
  const ssize_t sent = ::send(link_.socket.get(), outgoing_.data(), outgoing_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent > 0) outgoing_.erase(0, std::size_t(sent));
}

WEFT_INLINE void Heartbeat::beat() {
  const std::string sign = request(Op::beat, 0, "beat", {});
  auto next = Clock::now(), heard = next, looked = next;
  while (!stop_.load()) {
    const auto now = Clock::now();
    if (now - looked > std::chrono::seconds(1)) heard = now;  // this process stood still itself
    looked = now;
    if (now >= next) {
      send(sign);
      next = now + heartbeat_period;
    }
    if (now - heard > patience_ && rank_ != 0)
      return lose(0, weft::detail::joined(
                         {"rank 0 is lost, nothing was heard of it for ", long(patience_.count()), " s (WEFT_HEARTBEAT_S)"}));
    pollfd entries[] = {{link_.socket.get(), POLLIN, 0}, {wakes_.get(), POLLIN, 0}};
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(next - now).count();
    (void)::poll(entries, 2, int(left) + 1);
    if (entries[0].revents == 0) continue;
    char bytes[1024];
    const ssize_t got = ::recv(link_.socket.get(), bytes, sizeof bytes, MSG_DONTWAIT);
    if (got > 0) {
      heard = Clock::now();
      take({bytes, std::size_t(got)});
      if (found_) return;
    } else if (got == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) {
      return lose(0, "rank 0 is lost, its process ended or its connection broke (the store at " + where_ + ")");
    }
  }
}

WEFT_INLINE void Heartbeat::lose(int rank, std::string text, bool disturbed) {
  if (lost_.load() >= 0 && !disturbed) return;
  {
    const std::lock_guard lock(mutex_);
    fate_ = std::move(text);
  }
  lost_.store(rank, std::memory_order_release);
  disturbed_.store(disturbed, std::memory_order_release);
}

WEFT_INLINE void Heartbeat::take(std::string_view bytes) {
  try {
    messages_.add(bytes);
    while (const auto text = messages_.open()) take_reply(*text);
  } catch (const InvalidFrame& error) {
    found_ = true;
    lose(0,
         weft::detail::joined({"rank 0 is lost, the connection to its store at ", where_,
                               " broke (bytes from rank 0 are no valid frame: ", error.what(), ")"}),
         true);
  }
}

/// "RANK text" if a rank is lost, else empty.
WEFT_INLINE void Heartbeat::take_reply(const std::string& reply) {
  if (reply.size() < reply_bytes) throw InvalidFrame("it is no reply");
  const std::string text = reply.substr(reply_bytes);
  if (const auto space = text.find(' '); space != std::string::npos)
    lose(std::atoi(text.c_str()), text.substr(space + 1), number_at(reply, 1) == invalid_frame);
}

}  // namespace weft::comm::store
