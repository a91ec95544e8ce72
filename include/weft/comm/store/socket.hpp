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

#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

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

inline Nonce random_nonce() {
  Nonce nonce;
  if (getrandom(nonce.data(), nonce.size(), 0) != ssize_t(nonce.size())) throw StoreError("store: the system gives no random bytes");
  return nonce;
}

/// Waits until `descriptor` is ready for `events`; false once the deadline has passed.
inline bool wait_for(int descriptor, short events, Deadline deadline) {
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left < 0) return false;
    pollfd entry{descriptor, events, 0};
    const int ready = ::poll(&entry, 1, int(std::min<long long>(left + 1, 1000)));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) throw_error<StoreError>({"store: poll: ", std::strerror(errno)});
  }
}

struct Address {
  sockaddr_storage storage{};
  socklen_t length = 0;
  int family = AF_UNSPEC;

  bool loopback() const {
    if (family == AF_INET) return (ntohl(reinterpret_cast<const sockaddr_in&>(storage).sin_addr.s_addr) >> 24) == 127;
    return family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(storage).sin6_addr);
  }
  /// The address as text, without its port.
  std::string text() const {
    char host[NI_MAXHOST] = "?";
    ::getnameinfo(reinterpret_cast<const sockaddr*>(&storage), length, host, sizeof host, nullptr, 0, NI_NUMERICHOST);
    return host;
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

/// The address of a host name, IPv4 if it has one. Throws StoreError if the name has no address.
inline Address resolve(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int code = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found); code != 0)
    throw StoreError(weft::detail::joined({"MASTER_ADDR is '", host, "', which is no address: ", gai_strerror(code)}), 2);
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, &::freeaddrinfo);
  for (const int family : {AF_INET, AF_INET6})
    for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next)
      if (entry->ai_family == family && entry->ai_addrlen <= sizeof(sockaddr_storage)) {
        Address address;
        std::memcpy(&address.storage, entry->ai_addr, entry->ai_addrlen);
        address.length = entry->ai_addrlen;
        address.family = family;
        return address;
      }
  throw_error<StoreError>({"MASTER_ADDR is '", host, "', which has no IP address"});
}

inline void set_not_blocking(int descriptor) {
  const int flags = ::fcntl(descriptor, F_GETFL);
  if (flags < 0 || ::fcntl(descriptor, F_SETFL, flags | O_NONBLOCK) < 0) throw_error<StoreError>({"store: fcntl: ", std::strerror(errno)});
  const int on = 1;
  ::setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

/// The local address of a connection.
inline Address local_address(const Socket& socket) {
  Address address;
  address.length = sizeof address.storage;
  if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address.storage), &address.length) != 0)
    throw_error<StoreError>({"store: getsockname: ", std::strerror(errno)});
  address.family = address.storage.ss_family;
  return address;
}

}  // namespace weft::comm::store
