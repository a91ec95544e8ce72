// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for comm/store/client.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <weft/comm/store/client.hpp>
#include <weft/core/inline.hpp>

namespace weft::comm::store {

WEFT_INLINE Client::Client(const std::string& host, int port, const Identity& who, std::string_view secret, Deadline deadline)
    : where_(weft::detail::joined({host, ":", port})) {
  const Address address = resolve(host, port);
  if (!address.loopback() && secret.size() < Server::least_secret)
    throw_error<UsageError>({"MASTER_ADDR ", host, " is not this machine alone: give every rank one WEFT_SECRET of at least ",
                             Server::least_secret, " bytes (or WEFT_SECRET_FILE)"});
  for (int problem = 0;;) {
    const int found = try_connect(address, deadline);
    if (found == 0) break;
    if (problem == 0 || found != ETIMEDOUT) problem = found;  // the last attempt has no time left, whatever is there
    if (Clock::now() > deadline)
      throw_error<StoreError>({"rank ", who.rank, ": no store at ", where_, " (", std::strerror(problem),
                               "): rank 0 did not come, or MASTER_ADDR or MASTER_PORT is wrong"});
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  greet(who, secret, std::min(deadline, Clock::now() + std::chrono::seconds(10)));
}

WEFT_INLINE std::optional<std::string> Client::take(std::string_view key, Deadline deadline) {
  send(request(Op::take, ++number_, key, {}), deadline);
  const auto found = receive(key, deadline);
  if (found->empty() || (*found)[0] != '1') return std::nullopt;
  return found->substr(1);
}

WEFT_INLINE int Client::try_connect(const Address& address, Deadline deadline) {
  socket_ = Socket(::socket(address.family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket_) return errno;
  set_not_blocking(socket_.get());
  if (::connect(socket_.get(), address.get(), address.length) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  if (!wait_for(socket_.get(), POLLOUT, deadline)) return ETIMEDOUT;
  int problem = 0;
  socklen_t length = sizeof problem;
  if (::getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &problem, &length) != 0) return errno;
  if (problem != 0) return problem;
  // A connection from a port to itself looks like a store that says nothing.
  const Address mine = local_address(socket_);
  return mine.length == address.length && std::memcmp(&mine.storage, &address.storage, mine.length) == 0 ? ECONNREFUSED : 0;
}

WEFT_INLINE void Client::greet(const Identity& who, std::string_view secret, Deadline deadline) {
  const auto refuse = [&](const std::string& why) {
    throw_error<StoreError>({"rank ", who.rank, ": the store at ", where_, " ", why});
  };
  try {
    const std::string challenge = read(challenge_bytes, deadline);
    if (challenge.substr(0, magic.size()) != magic)
      refuse("is something else: its greeting is not weft's (is it the launcher's own port?)");
    if (number_at(challenge, 8) != version)
      refuse(weft::detail::joined({"speaks version ", number_at(challenge, 8), " of its protocol, this rank version ", version}));
    Nonce server, mine = random_nonce();
    std::memcpy(server.data(), challenge.data() + 12, server.size());
    send(hello(who, mine, server, secret), deadline);
    const auto [status, text] = read_reply(0, deadline);
    if (status != Status::done) refuse("refused: " + text);
    const Digest expected = welcome(mine, server, secret);
    Digest found{};
    if (text.size() == found.size()) std::memcpy(found.data(), text.data(), found.size());
    if (text.size() != found.size() || !equal_in_constant_time(expected, found)) refuse("does not know the secret");
  } catch (const Late&) {
    refuse("does not answer as a store does (is MASTER_PORT the port of another program?)");
  }
}

WEFT_INLINE void Client::send(std::string_view bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent >= 0) {
      bytes.remove_prefix(std::size_t(sent));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (!wait_for(socket_.get(), POLLOUT, deadline)) throw_error<StoreError>({"the store at ", where_, " takes nothing"});
    } else if (errno != EINTR) {
      throw_error<StoreError>({"the store at ", where_, " is gone: ", std::strerror(errno)});
    }
  }
}

WEFT_INLINE std::string Client::read(std::size_t count, Deadline deadline) {
  while (incoming_.size() < count) {
    char bytes[65536];
    const ssize_t got = ::recv(socket_.get(), bytes, sizeof bytes, 0);
    if (got > 0) incoming_.append(bytes, std::size_t(got));
    else if (got == 0)
      throw_error<StoreError>({"the store at ", where_, " closed the connection: rank 0 ended, or it is another program"});
    else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (!wait_for(socket_.get(), POLLIN, deadline)) throw Late{};
    } else if (errno != EINTR) {
      throw_error<StoreError>({"the store at ", where_, " is gone: ", std::strerror(errno)});
    }
  }
  std::string text = incoming_.substr(0, count);
  incoming_.erase(0, count);
  return text;
}

WEFT_INLINE std::pair<Status, std::string> Client::read_reply(std::uint32_t number, Deadline deadline) {
  for (;;) {
    if (!head_) head_ = read(reply_bytes, deadline);
    const std::size_t length = number_at(*head_, 5);
    const auto status = static_cast<unsigned char>((*head_)[0]);
    if (length > most_value || status > 1) throw_error<StoreError>({"the store at ", where_, " sends what is no reply"});
    const std::uint32_t found = number_at(*head_, 1);
    std::string value = read(length, deadline);
    head_.reset();
    if (found == number) return {Status(status), std::move(value)};
  }
}

WEFT_INLINE std::optional<std::string> Client::receive(std::string_view key, Deadline deadline, bool may_be_late) {
  try {
    auto [status, value] = read_reply(number_, deadline);
    if (status != Status::done) throw StoreError(value);
    return std::move(value);
  } catch (const Late&) {
    if (may_be_late) return std::nullopt;
    throw_error<StoreError>({"the store at ", where_, " does not answer about '", key, "'"});
  }
}

}  // namespace weft::comm::store
