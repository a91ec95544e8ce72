// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for comm/store/socket.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <weft/comm/store/socket.hpp>
#include <weft/core/inline.hpp>

namespace weft::comm::store {

WEFT_INLINE bool wait_for(int descriptor, short events, Deadline deadline, Clock::time_point start) {
  for (;;) {
    if (comm::detail::wait_must_end(start))
      throw_error<InterruptedError>({comm::detail::stop_text(), " and waited ", long(comm::detail::stop_patience().count()),
                                     " ms more for the store, in vain"});
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left < 0) return false;
    pollfd entry{descriptor, events, 0};
    const int ready = ::poll(&entry, 1, int(std::min<long long>(left + 1, 100)));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) throw_error<StoreError>({"store: poll: ", std::strerror(errno)});
  }
}

WEFT_INLINE bool Address::loopback() const {
  if (family == AF_INET) return (ntohl(reinterpret_cast<const sockaddr_in&>(storage).sin_addr.s_addr) >> 24) == 127;
  return family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(storage).sin6_addr);
}

WEFT_INLINE int Address::port() const {
  return ntohs(family == AF_INET ? reinterpret_cast<const sockaddr_in&>(storage).sin_port
                                 : reinterpret_cast<const sockaddr_in6&>(storage).sin6_port);
}

WEFT_INLINE Address resolve(const std::string& host, int port) {
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

WEFT_INLINE void set_not_blocking(int descriptor) {
  const int flags = ::fcntl(descriptor, F_GETFL);
  if (flags < 0 || ::fcntl(descriptor, F_SETFL, flags | O_NONBLOCK) < 0)
    throw_error<StoreError>({"store: fcntl: ", std::strerror(errno)});
  const int on = 1;
  ::setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

WEFT_INLINE Address local_address(const Socket& socket) {
  Address address;
  address.length = sizeof address.storage;
  if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address.storage), &address.length) != 0)
    throw_error<StoreError>({"store: getsockname: ", std::strerror(errno)});
  address.family = address.storage.ss_family;
  return address;
}

}  // namespace weft::comm::store
