// SPDX-License-Identifier: Apache-2.0
#pragma once
// Connections that weft has made and proved, given to Gloo's pairs. A pair of Gloo's listens on a port of its own, takes whoever
// comes first for its peer and believes each of its bytes; so none is ever left listening. While the pairs are made, Gloo's
// thread, which alone would accept, is held at a gate; before it goes on, each listening socket has been replaced by a connection
// (a caller in its queue is reset, and no byte of it is read).
//
//   Handover handover(device);  context.createPair(q);  handover.give(context.getPair(q), socket);

#include <fcntl.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/tcp/pair.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>

#include <weft/comm/store/socket.hpp>

namespace weft::comm::gloo {

class Handover {
 public:
  /// Holds the device's thread until this object ends.
  explicit Handover(std::shared_ptr<::gloo::transport::Device> device)
      : device_(std::static_pointer_cast<::gloo::transport::tcp::Device>(std::move(device))) {
    device_->registerDescriptor(gate_.bell.get(), EPOLLIN, &gate_);
    std::unique_lock lock(gate_.mutex);
    gate_.changed.wait(lock, [&] { return gate_.held; });
  }
  Handover(const Handover&) = delete;
  Handover& operator=(const Handover&) = delete;
  ~Handover() {
    {
      std::unique_lock lock(gate_.mutex);
      gate_.open = true;
      gate_.changed.notify_all();
      gate_.changed.wait(lock, [&] { return !gate_.held; });
    }
    device_->unregisterDescriptor(gate_.bell.get(), &gate_);
  }

  /// Takes the place of the pair's listening socket.
  void give(::gloo::transport::Pair& to, const store::Socket& connection) {
    auto& pair = static_cast<::gloo::transport::tcp::Pair&>(to);
    const std::lock_guard lock(pair.*&Access::m_);
    // Closes the listening socket and forgets it in epoll at once.
    if (::dup3(connection.get(), pair.*&Access::fd_, O_CLOEXEC) < 0)
      throw_error<StoreError>({"a connection cannot be given to Gloo: ", std::strerror(errno)});
    (pair.*&Access::handleConnected)();
  }

 private:
  /// The names of Gloo's protected members.
  struct Access : ::gloo::transport::tcp::Pair {
    using Pair::fd_;
    using Pair::handleConnected;
    using Pair::m_;
  };
  struct Gate final : ::gloo::transport::tcp::Handler {
    store::Socket bell{::eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK)};
    std::mutex mutex;
    std::condition_variable changed;
    bool held = false, open = false;

    void handleEvents(int) override {
      std::uint64_t rings = 0;
      if (::read(bell.get(), &rings, sizeof rings) != sizeof rings) return;  // once
      std::unique_lock lock(mutex);
      held = true;
      changed.notify_all();
      changed.wait(lock, [&] { return open; });
      held = false;
      changed.notify_all();
    }
  };

  std::shared_ptr<::gloo::transport::tcp::Device> device_;
  Gate gate_;
};

}  // namespace weft::comm::gloo
