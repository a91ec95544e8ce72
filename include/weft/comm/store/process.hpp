// SPDX-License-Identifier: Apache-2.0
#pragma once
// The state that all groups of a process share if the store at rank 0 is its only connection: the client, the record of
// operations, and values longer than one entry of the store.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <weft/comm/flight_recorder.hpp>
#include <weft/comm/group.hpp>
#include <weft/comm/store/client.hpp>
#include <weft/comm/store/heart.hpp>

namespace weft::comm::store {

class StoreGroup;

/// The state that all groups of this process share.
struct Process {
  Process(Client connection, const Identity& identity, std::chrono::duration<double> most)
      : client(std::move(connection)), who(identity), deadline(most) {
    recorder.belongs_to(rank(), int(who.world), "store");
  }

  Client client;
  Identity who;
  std::chrono::duration<double> deadline;
  FlightRecorder recorder;
  std::vector<StoreGroup*> groups;
  std::unique_ptr<Heart> heart = nullptr;  ///< null in a world of one
  std::uint64_t next_group = 1;

  int rank() const { return int(who.rank); }
  Deadline soon() const {
    return Clock::now() +
           std::max(std::chrono::duration_cast<Clock::duration>(deadline), Clock::duration(std::chrono::seconds(10)));
  }

  /// Stores a value. A long one goes in pieces, the first piece last: once that is there, all are.
  void put(const std::string& key, const std::string& bytes);
  std::optional<std::string> take(const std::string& key);
  /// The error that ended another rank, if the store knows one; empty otherwise.
  std::string failure();

 private:
  static constexpr std::size_t piece = std::size_t(4) << 20;
};

}  // namespace weft::comm::store

#ifndef WEFT_COMPILED
#include <weft/comm/store/process_impl.hpp>
#endif
