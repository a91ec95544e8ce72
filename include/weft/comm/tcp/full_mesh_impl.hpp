// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for comm/tcp/full_mesh.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <system_error>

#include <weft/comm/tcp/full_mesh.hpp>
#include <weft/core/inline.hpp>

namespace weft::comm::tcp {

WEFT_INLINE Buffer::~Buffer() {
  if (complete() == posted_) return;
  for (const auto& connection : mesh_.connections_)
    if (connection) connection->forget(*this);
}

WEFT_INLINE Connection& Buffer::connection(int peer, std::size_t offset, std::size_t length) {
  if (offset > bytes_ || length > bytes_ - offset)
    throw_error<UsageError>({"a message of ", length, " bytes at byte ", offset, " of a buffer of ", bytes_});
  ++posted_;
  return *mesh_.connections_[std::size_t(peer)];
}
WEFT_INLINE void Buffer::send(int peer, std::uint64_t slot, std::size_t offset, std::size_t length) {
  connection(peer, offset, length).send(*this, slot, data_ + offset, length);
}
WEFT_INLINE void Buffer::recv(int peer, std::uint64_t slot, std::size_t offset, std::size_t length) {
  connection(peer, offset, length).receive(*this, slot, data_ + offset, length);
}
WEFT_INLINE void Buffer::wait_for_sends(std::size_t count, std::chrono::microseconds patience) const {
  mesh_.signal_.wait(patience, [&] { return sends() >= count; });
}
WEFT_INLINE void Buffer::wait_for_receives(std::size_t count, std::chrono::microseconds patience) const {
  mesh_.signal_.wait(patience, [&] { return receives() >= count; });
}

WEFT_INLINE Mesh::Mesh(int rank, std::vector<store::Link> links)
    : rank_(rank), process_(::getpid()), epoll_(::epoll_create1(EPOLL_CLOEXEC)), bell_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  epoll_event event{.events = EPOLLIN, .data = {.u64 = std::uint64_t(rank)}};
  if (!epoll_ || !bell_ || ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, bell_.get(), &event) != 0)
    throw_error<StoreError>({"rank ", rank, " cannot watch its connections: ", std::strerror(errno)});
  for (std::size_t q = 0; q < links.size(); ++q)
    connections_.push_back(
        int(q) == rank ? nullptr : std::make_unique<Connection>(rank, int(q), std::move(links[q]), epoll_.get(), signal_));
  sigset_t all, before;  // signals go to the threads of the program
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  std::error_code problem;
  try {
    loop_ = std::thread([this] { run(); });
  } catch (const std::system_error& error) {
    problem = error.code();
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (problem) throw_error<StoreError>({"rank ", rank, " cannot start the thread of its connections: ", problem.message()});
}

WEFT_INLINE Mesh::~Mesh() {
  if (::getpid() != process_) {  // a forked process has no such thread, and leaves the sockets of its parent open
    loop_.detach();
    return;
  }
  const std::uint64_t one = 1;
  (void)!::write(bell_.get(), &one, sizeof one);
  loop_.join();
  for (const auto& connection : connections_)
    if (connection) connection->shut();  // also where a forked process holds the socket
}

/// The loop. The bell has the number of this rank.
WEFT_INLINE void Mesh::run() noexcept {
  epoll_event events[64];
  for (;;) {
    const int found = ::epoll_wait(epoll_.get(), events, 64, -1);
    if (found < 0 && errno != EINTR) return fail(std::strerror(errno));
    for (int k = 0; k < found; ++k) {
      if (events[k].data.u64 == std::uint64_t(rank_)) return;
      connections_[events[k].data.u64]->handle(events[k].events);
    }
  }
}

WEFT_INLINE void Mesh::fail(const char* why) noexcept {
  for (const auto& connection : connections_)
    if (connection) connection->fail(why);
}

}  // namespace weft::comm::tcp
