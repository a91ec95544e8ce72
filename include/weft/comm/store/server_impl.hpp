// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for comm/store/server.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <weft/comm/store/server.hpp>
#include <weft/core/inline.hpp>

namespace weft::comm::store {

WEFT_INLINE Server::Server(const std::string& host, int port, Identity identity, std::string secret)
    : identity_(std::move(identity)), secret_(std::move(secret)) {
  const Address address = resolve(host, port);
  if (!address.loopback() && secret_.size() < least_secret)
    throw_error<UsageError>({"MASTER_ADDR ", host, " is not this machine alone: give every rank one WEFT_SECRET of at least ",
                             least_secret, " bytes (or WEFT_SECRET_FILE)"});
  listener_ = Socket(::socket(address.family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  if (!listener_ || ::setsockopt(listener_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      ::bind(listener_.get(), address.get(), address.length) != 0 || ::listen(listener_.get(), 128) != 0)
    throw_error<StoreError>({"rank 0 cannot serve the store at ", host, ":", port, ": ", std::strerror(errno),
                             errno == EADDRINUSE      ? " (choose another WEFT_STORE_PORT)"
                             : errno == EADDRNOTAVAIL ? " (MASTER_ADDR must be an address of rank 0's machine)"
                                                      : ""});
  set_not_blocking(listener_.get());
  const Address bound = local_address(listener_);
  port_ = bound.family == AF_INET ? ntohs(reinterpret_cast<const sockaddr_in&>(bound.storage).sin_port)
                                  : ntohs(reinterpret_cast<const sockaddr_in6&>(bound.storage).sin6_port);
  thread_ = std::thread([this] { serve(); });
}

WEFT_INLINE void Server::serve() {
  std::vector<pollfd> entries;
  while (!stop_.load()) {
    entries.assign(1, {listener_.get(), POLLIN, 0});
    for (const auto& c : connections_)
      entries.push_back({c->socket.get(), short((c->closing ? 0 : POLLIN) | (c->outgoing.empty() ? 0 : POLLOUT)), 0});
    if (::poll(entries.data(), nfds_t(entries.size()), 20) < 0 && errno != EINTR) return;
    const std::size_t known = connections_.size();
    for (std::size_t i = 0; i < known; ++i) {
      Connection& c = *connections_[i];
      bool keep = true;
      try {
        if (entries[i + 1].revents & (POLLIN | POLLHUP | POLLERR)) keep = receive(c);
        if (keep) keep = flush(c);
        if (!c.greeted && Clock::now() > c.must_greet) keep = false;
      } catch (const std::exception& error) {
        complain(error.what());
        keep = false;
      }
      if (!keep) {
        // Who comes to wait for this rank is told; while ranks only meet, nobody asks.
        if (c.greeted)
          if (values_.try_emplace("lost", std::to_string(c.rank)).second) stored_ += values_.find("lost")->second.size() + 4;
        connections_[i].reset();
      }
    }
    std::erase(connections_, nullptr);
    if (entries[0].revents & POLLIN) accept();
  }
}

WEFT_INLINE void Server::accept() {
  Socket socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!socket || connections_.size() >= 2 * identity_.world + 32) return;  // too many: closed at once
  try {
    set_not_blocking(socket.get());
    auto c = std::make_unique<Connection>();
    c->socket = std::move(socket);
    c->outgoing = challenge(c->nonce);
    connections_.push_back(std::move(c));
  } catch (const std::exception& error) {
    complain(error.what());
  }
}

WEFT_INLINE bool Server::receive(Connection& c) {
  char bytes[65536];
  const ssize_t got = ::recv(c.socket.get(), bytes, sizeof bytes, 0);
  if (got < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
  if (got == 0) return false;
  if (c.closing) return true;
  c.reader.add(std::string_view(bytes, std::size_t(got)));
  if (!c.greeted) {
    const std::string_view text = c.reader.hello();
    if (text.empty()) return true;
    greet(c, read_hello(text, identity_, c.nonce, secret_));
  }
  Request request;
  while (c.greeted && !c.closing && c.reader.next(request)) answer(c, request);
  return true;
}

WEFT_INLINE void Server::greet(Connection& c, Greeting greeting) {
  if (greeting.refusal.empty() && came_[greeting.who.rank])
    greeting.refusal = weft::detail::joined({"rank ", greeting.who.rank, " has come twice"});
  if (greeting.refusal.empty()) {
    c.greeted = came_[greeting.who.rank] = true;
    c.rank = greeting.who.rank;
    c.outgoing += reply(Status::done, 0, letters(welcome(greeting.nonce, c.nonce, secret_)));
    if (!failure_.empty()) fail(failure_);
    return;
  }
  // What a rank that knows the secret does wrong ends the job; a stranger is only turned away.
  if (!greeting.genuine) complain("weft: store: a connection was refused: " + greeting.refusal);
  c.outgoing += reply(Status::refused, 0, greeting.refusal);
  c.closing = true;
  if (greeting.genuine) fail(greeting.refusal);
}

WEFT_INLINE void Server::answer(Connection& c, const Request& request) {
  c.number = request.number;
  c.waits_for.clear();
  if (!failure_.empty()) {
    c.outgoing += reply(Status::refused, c.number, failure_);
    return;
  }
  const auto found = values_.find(request.key);
  if (request.op == Op::set) {
    if (found == values_.end() && values_.size() >= most_keys) throw StoreError("store: too many keys");
    const std::size_t before = found == values_.end() ? 0 : found->second.size();
    if (stored_ - before + request.key.size() + request.value.size() > most_stored) throw StoreError("store: it is full");
    stored_ += request.value.size() + (found == values_.end() ? request.key.size() : 0);
    stored_ -= before;
    values_[std::string(request.key)] = request.value;
    c.outgoing += reply(Status::done, c.number, {});
    for (const auto& other : connections_)
      if (other && other->waits_for == request.key) {
        other->waits_for.clear();
        other->outgoing += reply(Status::done, other->number, request.value);
      }
  } else if (request.op == Op::has) {
    c.outgoing += reply(Status::done, c.number, found != values_.end() ? "1" : "0");
  } else if (request.op == Op::take) {
    if (c.outgoing.size() > 2 * most_value) throw StoreError("store: a client does not read its replies");
    c.outgoing += reply(Status::done, c.number, found != values_.end() ? "1" + found->second : "0");
    if (found != values_.end()) {
      stored_ -= found->first.size() + found->second.size();
      values_.erase(found);
    }
  } else if (found != values_.end()) {
    // A client that asks and never reads costs at most a few values.
    if (c.outgoing.size() > 2 * most_value) throw StoreError("store: a client does not read its replies");
    c.outgoing += reply(Status::done, c.number, found->second);
  } else {
    c.waits_for = request.key;
  }
}

WEFT_INLINE void Server::fail(const std::string& why) {
  failure_ = why;
  for (const auto& c : connections_)
    if (c && !c->waits_for.empty()) {
      c->waits_for.clear();
      c->outgoing += reply(Status::refused, c->number, failure_);
    }
}

WEFT_INLINE bool Server::flush(Connection& c) {
  while (!c.outgoing.empty()) {
    const ssize_t sent = ::send(c.socket.get(), c.outgoing.data(), c.outgoing.size(), MSG_NOSIGNAL);
    if (sent < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
    c.outgoing.erase(0, std::size_t(sent));
  }
  return !c.closing;
}

}  // namespace weft::comm::store
