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
      socket_(Connector(host, port, who, secret, the_heartbeat).connect(deadline).socket),
      wakes_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  const std::string first = request(Op::beat, 0, "beat", {});  // in which the store sees that this rank was let in
  (void)::send(socket_.get(), first.data(), first.size(), MSG_NOSIGNAL);
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
  // The thread may be sending, too, but either request fits the empty buffer of the connection whole.
  static constexpr char text[] = {char(Op::leave), 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 'l', 'e', 'a', 'v', 'e'};
  (void)::send(socket_.get(), text, sizeof text, MSG_NOSIGNAL);
}

WEFT_INLINE void Heartbeat::beat() {
  const std::string sign = request(Op::beat, 0, "beat", {});
  std::string incoming;
  auto next = Clock::now(), heard = next, looked = next;
  while (!stop_.load()) {
    const auto now = Clock::now();
    if (now - looked > std::chrono::seconds(1)) heard = now;  // this process stood still itself
    looked = now;
    if (now >= next) {
      (void)::send(socket_.get(), sign.data(), sign.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      next = now + heartbeat_period;
    }
    if (now - heard > patience_ && rank_ != 0)
      return lose(0, weft::detail::joined(
                         {"rank 0 is lost, nothing was heard of it for ", long(patience_.count()), " s (WEFT_HEARTBEAT_S)"}));
    pollfd entries[] = {{socket_.get(), POLLIN, 0}, {wakes_.get(), POLLIN, 0}};
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(next - now).count();
    (void)::poll(entries, 2, int(left) + 1);
    if (entries[0].revents == 0) continue;
    char bytes[1024];
    const ssize_t got = ::recv(socket_.get(), bytes, sizeof bytes, MSG_DONTWAIT);
    if (got > 0) {
      heard = Clock::now();
      incoming.append(bytes, std::size_t(got));
      take(incoming);
    } else if (got == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) {
      return lose(0, "rank 0 is lost, its process ended or its connection broke (the store at " + where_ + ")");
    }
  }
}

WEFT_INLINE void Heartbeat::lose(int rank, std::string text) {
  if (lost_.load() >= 0) return;
  {
    const std::lock_guard lock(mutex_);
    fate_ = std::move(text);
  }
  lost_.store(rank, std::memory_order_release);
}

WEFT_INLINE void Heartbeat::take(std::string& incoming) {
  while (incoming.size() >= reply_bytes) {
    const std::size_t length = number_at(incoming, 5);
    if (length > most_key) return lose(0, "rank 0 is lost: the store at " + where_ + " sends what is no reply");
    if (incoming.size() < reply_bytes + length) return;
    const std::string text = incoming.substr(reply_bytes, length);
    incoming.erase(0, reply_bytes + length);
    if (const auto space = text.find(' '); space != std::string::npos) lose(std::atoi(text.c_str()), text.substr(space + 1));
  }
}

}  // namespace weft::comm::store
