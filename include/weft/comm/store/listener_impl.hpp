// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for comm/store/listener.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <algorithm>
#include <cstdio>

#include <weft/comm/store/listener.hpp>
#include <weft/core/inline.hpp>

namespace weft::comm::store {

WEFT_INLINE Listener::Listener(const std::string& host, int port, Identity mine, std::string secret, std::uint32_t to)
    : identity_(std::move(mine)),
      secret_(std::move(secret)),
      to_(to),
      // All ranks of a job may come at once, in the worst case all from one address.
      most_(std::min<std::size_t>(2 * identity_.world + 64, 1024)),
      most_of_one_(std::min<std::size_t>(identity_.world + 32, 512)) {
  const Address address = resolve(host, port);
  if (!address.loopback() && secret_.size() < least_secret_bytes)
    throw_error<UsageError>({"MASTER_ADDR ", host, " is not this machine alone: give every rank one WEFT_SECRET of at least ",
                             least_secret_bytes, " bytes (or WEFT_SECRET_FILE)"});
  socket_ = Socket(::socket(address.family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  if (!socket_ || ::setsockopt(socket_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      ::bind(socket_.get(), address.get(), address.length) != 0 || ::listen(socket_.get(), SOMAXCONN) != 0)
    throw_error<StoreError>({"rank ", identity_.rank, " cannot serve the store at ", host, ":", port, ": ", std::strerror(errno),
                             errno == EADDRINUSE      ? " (choose another WEFT_STORE_PORT)"
                             : errno == EADDRNOTAVAIL ? " (MASTER_ADDR must be an address of rank 0's machine)"
                                                      : ""});
  set_not_blocking(socket_.get());
  port_ = local_address(socket_).port();
}

WEFT_INLINE void Listener::append_pollfds(std::vector<pollfd>& entries) const {
  entries.push_back({socket_.get(), POLLIN, 0});
  for (const Pending& pending : pending_) entries.push_back({pending.socket.get(), POLLIN, 0});
}

WEFT_INLINE std::vector<Listener::Arrival> Listener::step(std::span<const pollfd> entries, const Admit& admit,
                                                          const Refused& refused) {
  std::vector<Arrival> arrivals;
  const auto now = Clock::now();
  for (std::size_t k = 0; k < pending_.size(); ++k) {
    Pending& pending = pending_[k];
    if (k + 1 < entries.size() && entries[k + 1].revents != 0 && !read(pending)) continue;
    if (pending.bytes.size() == hello_bytes) {
      answer(pending, admit, refused, arrivals);
      pending.socket = Socket();
    } else if (now > pending.end) {
      complain(weft::detail::joined({pending.peer, " did not say who it is"}));
      pending.socket = Socket();
    }
  }
  std::erase_if(pending_, [](const Pending& pending) { return !pending.socket; });
  if (!entries.empty() && entries[0].revents != 0) accept();
  return arrivals;
}

WEFT_INLINE void Listener::accept() {
  for (int turn = 0; turn < 32; ++turn) {  // then the pending handshakes get their turn
    sockaddr_storage from{};
    socklen_t length = sizeof from;
    Socket socket(::accept4(socket_.get(), reinterpret_cast<sockaddr*>(&from), &length, SOCK_CLOEXEC));
    if (!socket) {
      // Out of descriptors or memory: the oldest stranger makes room.
      if ((errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) && !pending_.empty())
        pending_.erase(pending_.begin());
      return;
    }
    try {
      Address address;
      std::memcpy(&address.storage, &from, length);
      address.length = length;
      address.family = from.ss_family;
      Pending pending{.socket = std::move(socket), .peer = address.text(), .bytes = {}};
      set_not_blocking(pending.socket.get());
      make_room(pending.peer);
      const std::string greeting = challenge(pending.nonce);
      if (::send(pending.socket.get(), greeting.data(), greeting.size(), MSG_NOSIGNAL) == ssize_t(greeting.size()))
        pending_.push_back(std::move(pending));
    } catch (const std::exception& error) {
      complain(error.what());
    }
  }
}

/// The oldest of that address goes first, so that whoever holds many keeps none of the others out.
WEFT_INLINE void Listener::make_room(const std::string& peer) {
  const auto same = [&](const Pending& pending) { return pending.peer == peer; };
  if (std::size_t(std::count_if(pending_.begin(), pending_.end(), same)) >= most_of_one_) {
    pending_.erase(std::find_if(pending_.begin(), pending_.end(), same));
    complain(weft::detail::joined({peer, " held ", most_of_one_, " connections without saying who it is"}));
  } else if (pending_.size() >= most_) {
    pending_.erase(pending_.begin());
    complain(weft::detail::joined({most_, " connections did not say who they are"}));
  }
}

/// False once the connection is closed.
WEFT_INLINE bool Listener::read(Pending& pending) {
  char bytes[hello_bytes];
  const ssize_t got = ::recv(pending.socket.get(), bytes, hello_bytes - pending.bytes.size(), 0);
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return true;
  if (got > 0) pending.bytes.append(bytes, std::size_t(got));
  const std::size_t known = std::min(pending.bytes.size(), magic.size());
  const bool speaks = pending.bytes.substr(0, known) == magic.substr(0, known);
  if (got > 0 && speaks) return true;
  complain(pending.peer + (speaks ? " left before it said who it is" : " does not speak weft's protocol"));
  pending.socket = Socket();
  return false;
}

WEFT_INLINE void Listener::answer(Pending& pending, const Admit& admit, const Refused& refused, std::vector<Arrival>& arrivals) {
  Greeting greeting = read_hello(pending.bytes, identity_, pending.nonce, secret_, to_);
  const bool of_this_job = greeting.refusal.empty();
  if (of_this_job) greeting.refusal = admit(greeting);
  const Status status = greeting.refusal.empty() ? Status::done : greeting.ours ? Status::refused : Status::later;
  // A caller without the secret learns nothing that proves it.
  const Digest proof = greeting.genuine ? welcome(status, pending.bytes, pending.nonce, greeting.refusal, secret_) : Digest{};
  const std::string text = reply(status, 0, std::string(letters(proof)) + greeting.refusal);
  const bool sent = ::send(pending.socket.get(), text.data(), text.size(), MSG_NOSIGNAL) == ssize_t(text.size());
  if (greeting.refusal.empty()) {
    if (sent)
      arrivals.push_back({{std::move(pending.socket), key_of_link(pending.bytes, pending.nonce, secret_)}, std::move(greeting)});
    return;
  }
  if (greeting.ours) refused(greeting);
  else if (!of_this_job) complain(weft::detail::joined({pending.peer, " was refused: ", greeting.refusal}));
}

WEFT_INLINE void Listener::complain(const std::string& text) {
  ++refused_;
  ++unsaid_;
  const auto now = Clock::now();
  if (refused_ != 1 && now - said_ < std::chrono::minutes(1)) return;
  said_ = now;
  std::fprintf(stderr, "weft: rank %u, port %d: a connection was turned away: %s%s\n", identity_.rank, port_, text.c_str(),
               unsaid_ > 1 ? (" (and " + std::to_string(unsaid_ - 1) + " others)").c_str() : "");
  unsaid_ = 0;
}

}  // namespace weft::comm::store
