// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for comm/store/connector.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <weft/comm/store/connector.hpp>
#include <weft/core/inline.hpp>

namespace weft::comm::store {

WEFT_INLINE Connector::Connector(const std::string& host, int port, Identity who, std::string secret, std::uint32_t to)
    : where_(weft::detail::joined({host, ":", port})),
      address_(resolve(host, port)),
      who_(std::move(who)),
      secret_(std::move(secret)),
      to_(to) {
  if (!address_.loopback() && secret_.size() < least_secret_bytes)
    throw_error<UsageError>({"MASTER_ADDR ", host, " is not this machine alone: give every rank one WEFT_SECRET of at least ",
                             least_secret_bytes, " bytes (or WEFT_SECRET_FILE)"});
}

WEFT_INLINE Link Connector::connect(Deadline deadline, const std::function<void()>& look) {
  look_ = look ? &look : nullptr;
  const auto begin = Clock::now();
  bool said = false, refused = false;
  for (std::string why;;) {
    try {
      const Deadline end = std::min(deadline, Clock::now() + handshake_time);
      Socket socket = open(end);
      const Digest key = greet(socket, end);
      return {std::move(socket), key};
    } catch (const Later& later) {
      // The last attempt has no time left, so its reason means little. An earlier refusal is reported even if no listener is
      // there later.
      if (why.empty() || later.refused || (!refused && Clock::now() <= deadline)) why = later.why;
      refused = refused || later.refused;
    }
    const auto now = Clock::now();
    if (now > deadline) throw StoreError(weft::detail::joined({"rank ", who_.rank, ": ", why}));
    if (comm::detail::wait_must_end(begin))
      throw_error<InterruptedError>({"rank ", who_.rank, ": ", comm::detail::stop_text(), " while it waited: ", why});
    if (!said && now - begin > handshake_time && why.find("(Connection refused)") == std::string::npos) {
      said = true;
      std::fprintf(stderr, "weft: rank %u: %s; it tries again until its deadline (WEFT_RENDEZVOUS_S)\n", who_.rank, why.c_str());
    }
    if (look_ != nullptr) (*look_)();
    std::this_thread::sleep_until(std::min(now + std::chrono::milliseconds(20), deadline + std::chrono::milliseconds(1)));
  }
}

WEFT_INLINE Socket Connector::open(Deadline end) {
  const auto nobody = [&](int problem) -> Later {
    if (to_ < the_heartbeat)
      return {.why = weft::detail::joined({"rank ", to_, " is not at ", where_, " (", std::strerror(problem), ")"})};
    return {.why = weft::detail::joined({"no store at ", where_, " (", std::strerror(problem),
                                         "): rank 0 did not come, or MASTER_ADDR or MASTER_PORT is wrong"})};
  };
  Socket socket(::socket(address_.family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket) throw nobody(errno);
  set_not_blocking(socket.get());
  if (::connect(socket.get(), address_.get(), address_.length) != 0) {
    if (errno != EINPROGRESS) throw nobody(errno);
    int problem = 0;
    socklen_t length = sizeof problem;
    try {
      wait(socket, POLLOUT, end, "");
    } catch (const Later&) {
      throw nobody(ETIMEDOUT);
    }
    if (::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &problem, &length) != 0) problem = errno;
    if (problem != 0) throw nobody(problem);
  }
  // A connection from a port to itself looks like a silent store.
  const Address mine = local_address(socket);
  if (mine.length == address_.length && std::memcmp(&mine.storage, &address_.storage, mine.length) == 0)
    throw nobody(ECONNREFUSED);
  return socket;
}

/// The key of the connection.
WEFT_INLINE Digest Connector::greet(const Socket& socket, Deadline end) {
  const std::string at = "the store at " + where_ + " ";
  const std::string greeting = read(socket, challenge_bytes, end);
  if (greeting.substr(0, magic.size()) != magic)
    throw Later{at + "is something else: its greeting is not weft's (is it the launcher's own port?)"};
  if (number_at(greeting, 8) != version)
    throw Later{
        weft::detail::joined({at, "speaks version ", number_at(greeting, 8), " of its protocol, this rank version ", version})};
  Nonce server;
  std::memcpy(server.data(), greeting.data() + 12, server.size());
  const std::string mine = hello(who_, random_nonce(), server, secret_, to_);
  if (::send(socket.get(), mine.data(), mine.size(), MSG_NOSIGNAL) != ssize_t(mine.size()))
    throw Later{at + "does not read requests"};
  const std::string head = read(socket, reply_bytes, end);
  const std::size_t length = number_at(head, 5);
  const auto status = static_cast<unsigned char>(head[0]);
  if (length < sizeof(Digest) || length > most_key || status > 2) throw Later{at + "sent an invalid reply"};
  const std::string text = read(socket, length, end);
  Digest found;
  std::memcpy(found.data(), text.data(), found.size());
  const std::string why = text.substr(found.size());
  const bool proved = equal_in_constant_time(found, welcome(Status(status), mine, server, why, secret_));
  if (proved && Status(status) == Status::done) return key_of_link(mine, server, secret_);
  if (proved && Status(status) == Status::refused) throw_error<StoreError>({"rank ", who_.rank, ": ", at, "refused: ", why});
  if (Status(status) == Status::done) throw Later{at + "does not know the secret", true};
  std::string said = why.substr(0, 300);  // the other side has not proved that it has the secret: print one short line of it
  for (char& c : said)
    if (c < ' ' || c > '~') c = '?';
  throw Later{at + "refused: " + said, true};
}

WEFT_INLINE void Connector::wait(const Socket& socket, short events, Deadline end, const char* why) {
  for (const auto start = Clock::now();;) {
    const auto now = Clock::now();
    if (now > end) throw Later{why};
    if (wait_for(socket.get(), events, std::min(end, now + std::chrono::milliseconds(100)), start)) return;
    if (look_ != nullptr) (*look_)();
  }
}

WEFT_INLINE std::string Connector::read(const Socket& socket, std::size_t count, Deadline end) {
  std::string text;
  char bytes[512];
  while (text.size() < count) {
    const ssize_t got = ::recv(socket.get(), bytes, std::min(sizeof bytes, count - text.size()), 0);
    if (got > 0) text.append(bytes, std::size_t(got));
    else if (got == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR))
      throw Later{"the store at " + where_ + " closed the connection: rank 0 ended, or it is another program"};
    else wait(socket, POLLIN, end, "the store does not answer as a store does (is MASTER_PORT the port of another program?)");
  }
  return text;
}

}  // namespace weft::comm::store
