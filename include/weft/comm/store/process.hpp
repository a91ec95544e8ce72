// SPDX-License-Identifier: Apache-2.0
#pragma once
// The state that all groups of a process share if the store at rank 0 is its only connection: the client, the record of
// operations, and values longer than one entry of the store.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <weft/comm/flight_recorder.hpp>
#include <weft/comm/group.hpp>
#include <weft/comm/store/client.hpp>

namespace weft::comm::store {

class StoreGroup;

/// The state that all groups of this process share.
struct Process {
  Process(Client connection, const Identity& identity, std::chrono::duration<double> most)
      : client(std::move(connection)), who(identity), deadline(most) {}

  Client client;
  Identity who;
  std::chrono::duration<double> deadline;
  FlightRecorder recorder;
  std::vector<StoreGroup*> groups;
  std::uint64_t next_group = 1;

  int rank() const { return int(who.rank); }
  Deadline soon() const {
    return Clock::now() + std::max(std::chrono::duration_cast<Clock::duration>(deadline), Clock::duration(std::chrono::seconds(10)));
  }

  /// Stores a value. A long one goes in pieces, the first piece last: once that is there, all are.
  void put(const std::string& key, const std::string& bytes) {
    const std::size_t rest = bytes.size() <= piece ? 0 : (bytes.size() - 1) / piece;
    for (std::size_t k = rest; k > 0; --k) client.set(weft::detail::joined({key, "/", k}), std::string_view(bytes).substr(k * piece, piece), soon());
    std::string first;
    store::put(first, std::uint32_t(rest));
    client.set(key, first += std::string_view(bytes).substr(0, piece), soon());
  }
  std::optional<std::string> take(const std::string& key) {
    auto found = client.take(key, soon());
    if (!found) return std::nullopt;
    if (found->size() < 4) throw_error<StoreError>({"the store holds nothing sensible under '", key, "'"});
    std::string bytes = found->substr(4);
    const std::uint32_t rest = number_at(*found, 0);
    for (std::uint32_t k = 1; k <= rest; ++k) {
      const auto next = client.take(weft::detail::joined({key, "/", k}), soon());
      if (!next) throw_error<StoreError>({"the store has lost a part of '", key, "'"});
      bytes += *next;
    }
    return bytes;
  }
  /// The error that ended another rank, if the store knows one; empty otherwise.
  std::string failure() {
    if (client.has("failed", soon())) return *client.get("failed", soon());
    if (client.has("lost", soon()))
      return weft::detail::joined({"rank ", *client.get("lost", soon()), " is lost, its process ended or its connection broke"});
    return {};
  }

 private:
  static constexpr std::size_t piece = std::size_t(4) << 20;
};

}  // namespace weft::comm::store
