// SPDX-License-Identifier: Apache-2.0
#pragma once
// TCP sockets for the store: closed by their owner, never blocking, every wait with a deadline.

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <utility>

#include <weft/comm/stop.hpp>
#include <weft/comm/store/protocol.hpp>

namespace weft::comm::store {

using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;

class Socket {
 public:
  Socket() = default;
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~Socket() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  int get() const { return descriptor_; }
  explicit operator bool() const { return descriptor_ >= 0; }

 private:
  int descriptor_ = -1;
};

/// A connection that both sides have proved, and the key that only they have.
struct Link {
  Socket socket;
  Digest key{};
};

inline Nonce random_nonce() {
  Nonce nonce;
  if (getrandom(nonce.data(), nonce.size(), 0) != ssize_t(nonce.size()))
    throw StoreError("store: the system gives no random bytes");
  return nonce;
}

/// Waits until `descriptor` is ready for `events`; false once the deadline has passed. Throws InterruptedError if the process was
/// asked to stop and the whole wait, from `start` on, has lasted too long since.
bool wait_for(int descriptor, short events, Deadline deadline, Clock::time_point start = Clock::now());

struct Address {
  sockaddr_storage storage{};
  socklen_t length = 0;
  int family = AF_UNSPEC;

  bool loopback() const;
  int port() const;
  /// The address as text, without its port.
  std::string text() const {
    char host[NI_MAXHOST] = "?";
    ::getnameinfo(reinterpret_cast<const sockaddr*>(&storage), length, host, sizeof host, nullptr, 0, NI_NUMERICHOST);
    return host;
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

/// The address of a host name, IPv4 if it has one. Throws StoreError if the name has no address.
Address resolve(const std::string& host, int port);

void set_not_blocking(int descriptor);

/// The local address of a connection.
Address local_address(const Socket& socket);

}  // namespace weft::comm::store

#ifndef WEFT_COMPILED
#include <weft/comm/store/socket_impl.hpp>
#endif
