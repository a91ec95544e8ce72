// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for comm/store/client.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <weft/comm/store/client.hpp>
#include <weft/core/inline.hpp>

namespace weft::comm::store {

WEFT_INLINE Client::Client(const std::string& host, int port, const Identity& who, std::string_view secret, Deadline deadline,
                           bool meets)
    : where_(weft::detail::joined({host, ":", port})),
      link_(Connector(host, port, who, std::string(secret), the_store).connect(deadline)),
      messages_(link_.key, Sealed::Side::rank) {
  // The store counts a rank after this first request, which shows that it received its admission. The reply is not awaited.
  send(request(meets ? Op::met : Op::has, ++number_, "begin", {}), deadline);
}

WEFT_INLINE void Client::leave(const std::string& why) noexcept {
  try {
    const auto soon = Clock::now() + std::chrono::seconds(1);
    send(request(Op::leave, ++number_, why.substr(0, most_key), {}), soon);
    receive("leave", soon, true);
  } catch (const std::exception&) {}  // the store is gone already
}

WEFT_INLINE bool Client::ready(short events, Deadline deadline) {
  if (!look_) return wait_for(link_.socket.get(), events, deadline);
  for (const auto start = Clock::now();;) {
    const auto now = Clock::now();
    if (wait_for(link_.socket.get(), events, std::min(deadline, now + std::chrono::milliseconds(100)), start)) return true;
    if (now > deadline) return false;
    look_();
  }
}

WEFT_INLINE void Client::send(std::string_view text, Deadline deadline) {
  std::string sealed;
  messages_.seal(text, sealed);
  for (std::string_view bytes = sealed; !bytes.empty();) {
    const ssize_t sent = ::send(link_.socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent >= 0) {
      bytes.remove_prefix(std::size_t(sent));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (!ready(POLLOUT, deadline)) throw_error<StoreError>({"the store at ", where_, " does not read requests"});
    } else if (errno != EINTR) {
      throw_error<StoreError>({"the store at ", where_, " is gone with rank 0: ", std::strerror(errno)});
    }
  }
}

WEFT_INLINE std::string Client::read(std::size_t count, Deadline deadline) {
  while (incoming_.size() < count) {
    char bytes[65536];
    const ssize_t got = ::recv(link_.socket.get(), bytes, sizeof bytes, 0);
    if (got > 0) {
      messages_.add({bytes, std::size_t(got)});
      try {
        while (const auto text = messages_.open()) incoming_ += *text;
      } catch (const InvalidFrame& error) {
        throw_error<StoreError>(
            {"the connection to the store at ", where_, " broke: bytes from rank 0 are no valid frame: ", error.what()});
      }
    } else if (got == 0)
      throw_error<StoreError>({"the store at ", where_, " closed the connection: rank 0 is lost, its process ended"});
    else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (!ready(POLLIN, deadline)) throw Late{};
    } else if (errno != EINTR) {
      throw_error<StoreError>({"the store at ", where_, " is gone with rank 0: ", std::strerror(errno)});
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
    if (length > most_value || status > 1) throw_error<StoreError>({"the store at ", where_, " sent an invalid reply"});
    const std::uint32_t found = number_at(*head_, 1);
    std::string value = read(length, deadline);
    head_.reset();
    if (found == number || (found == 0 && Status(status) == Status::refused)) return {Status(status), std::move(value)};
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
  } catch (const InterruptedError&) {
    const std::size_t at = std::min(key.find_first_of("0123456789"), key.size());  // "link/2": the key that rank 2 sets
    const std::string_view rank = key.substr(at, key.find_first_not_of("0123456789", at) - at);
    throw_error<InterruptedError>({comm::detail::stop_text(), " while this rank waited at the store ", where_, " for '", key, "'",
                                   rank.empty() ? "" : " of rank ", rank});
  }
}

}  // namespace weft::comm::store
