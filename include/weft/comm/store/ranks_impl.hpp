// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for comm/store/ranks.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <weft/comm/flight_file.hpp>
#include <weft/comm/store/ranks.hpp>
#include <weft/core/inline.hpp>

namespace weft::comm::store {

WEFT_COLD WEFT_INLINE Place rendezvous(const runtime::Launch& launch, std::chrono::duration<double> patience) {
  const Meeting meeting{.host = launch.host,
                        .port = launch.port,
                        .who = {std::uint32_t(launch.rank), std::uint32_t(launch.world), launch.job},
                        .secret = secret_of(launch.host, launch.secret),
                        .patience = patience};
  const auto& [host, port, who, secret, most, deadline] = meeting;
  Place place;
  if (launch.rank == 0) place.server = std::make_unique<Server>(host, port, who, secret);
  try {
    place.process = std::make_shared<Process>(Client(host, port, who, secret, deadline, true), who, std::chrono::minutes(30));
    Client& client = place.process->client;
    place.process->heart = start_heart(client, meeting);
    client.set("here/" + std::to_string(launch.rank), "", deadline);
    for (int q = 0; q < launch.world; ++q)
      if (!client.get("here/" + std::to_string(q), deadline)) throw_missing(client, meeting, "here/");
    client.met(deadline);
  } catch (const StoreError& error) {
    if (place.server) place.server->end_meeting(unnamed(who, error));
    throw named(who, error);
  }
  return place;
}

WEFT_INLINE std::shared_ptr<Group> over(const std::shared_ptr<Process>& process) {
  if (process->who.world == 1) return std::make_shared<SelfGroup>("world", "store");
  std::vector<int> members(process->who.world);
  std::iota(members.begin(), members.end(), 0);
  return std::make_shared<StoreGroup>(process, 0, std::move(members), "world");
}

}  // namespace weft::comm::store

namespace weft::comm {

WEFT_INLINE RunResult StoreRanks::Session::run(int, std::chrono::duration<double> deadline,
                                               const std::function<void(std::shared_ptr<Group>)>& body) {
  place_.process->deadline = deadline;
  try {
    const Communicator world(store::over(place_.process));
    with_flight_record(launch_.rank, [&] {
      body(world.group());
      world.barrier();  // a rank that is done does not leave while others may fail
    });
    leave("bye/", "", std::chrono::seconds(5));
  } catch (const AbortedError&) {
    primary_ = false;
    return {std::current_exception(), launch_.rank};
  } catch (...) {
    return {std::current_exception(), launch_.rank};
  }
  return {};
}

WEFT_INLINE int StoreRanks::Session::fail(int code, const std::function<void()>& report) {
  bool mine = true;
  int result = primary_ ? code : 0;
  try {
    auto& client = place_.process->client;
    if (primary_)
      client.set("failed", weft::detail::joined({"rank ", launch_.rank, " failed with exit code ", code}),
                 place_.process->soon());
    const auto ends = leave("end/", weft::detail::joined({code, primary_ ? "p" : "s"}), std::chrono::milliseconds(600));
    for (int q = 0; q < launch_.world; ++q) {
      const std::string& end = ends[std::size_t(q)];
      if (q == launch_.rank || end.empty()) continue;
      const bool primary = end.back() == 'p';
      if (result == 0 && primary) result = std::atoi(end.c_str());
      if (primary != primary_ ? primary : q < launch_.rank) mine = false;
    }
  } catch (const Error&) {  // the store is gone with rank 0
  }
  if (mine) report();
  return result == 0 ? code : result;
}

WEFT_INLINE std::vector<std::string> StoreRanks::Session::leave(const std::string& key, const std::string& word,
                                                                std::chrono::milliseconds patience) {
  auto& client = place_.process->client;
  if (place_.process->heart) place_.process->heart->leave();
  const auto end = store::Clock::now() + patience;
  client.set(key + std::to_string(launch_.rank), word, end);
  std::vector<std::string> words(std::size_t(launch_.world));
  for (int q = 0; q < launch_.world; ++q)
    if (const auto found = client.get(key + std::to_string(q), end)) words[std::size_t(q)] = *found;
  client.set("heard/" + std::to_string(launch_.rank), "", store::Clock::now() + patience);
  if (launch_.rank == 0)
    for (int q = 1; q < launch_.world; ++q)
      if (!words[std::size_t(q)].empty() || key == "bye/") (void)client.get("heard/" + std::to_string(q), end + patience);
  return words;
}

}  // namespace weft::comm
