// SPDX-License-Identifier: Apache-2.0
// covers: weft/comm/store/server.hpp weft/comm/store/client.hpp
// The store of a rendezvous and its clients in one process: a rank that comes a second time.
#include <doctest/doctest.h>

#include <chrono>
#include <future>
#include <optional>
#include <string>

#include <weft/comm/store/client.hpp>
#include <weft/comm/store/server.hpp>

#include "support/message.hpp"

using namespace weft::comm;

namespace {

const std::string host = "127.0.0.1", secret = "0123456789abcdef";
constexpr std::uint32_t world = 3;

store::Client join(int port, std::uint32_t rank, std::chrono::milliseconds patience) {
  return store::Client(host, port, {rank, world, ""}, secret, store::Clock::now() + patience, true);
}
store::Deadline soon() { return store::Clock::now() + std::chrono::seconds(20); }

}  // namespace

TEST_CASE("a rank that has met and comes back before the others have met waits for the next store") {
  for (int round = 0; round < 30; ++round) {
    std::optional<store::Server> former(std::in_place, host, 0, store::Identity{0, world, ""}, secret);
    const int port = former->port();
    join(port, 1, std::chrono::seconds(20)).met(soon());  // and it ends
    auto back = std::async(std::launch::async, [&] {
      store::Client client = join(port, 1, std::chrono::seconds(20));
      client.set("round", std::to_string(round), soon());
      client.met(soon());
    });
    // The former rendezvous goes on for the others, as long as it lasts.
    store::Client other = join(port, 2, std::chrono::seconds(20));
    if (round == 0) CHECK(back.wait_for(std::chrono::milliseconds(300)) == std::future_status::timeout);
    CHECK_NOTHROW(other.met(soon()));
    CHECK_FALSE(other.has("round", soon()));
    former.reset();
    store::Server next(host, port, {0, world, ""}, secret);
    CHECK_NOTHROW(back.get());
    CHECK(join(port, 2, std::chrono::seconds(20)).get("round", soon()) == std::to_string(round));
  }
}

TEST_CASE("a rank that comes twice before it has met ends the rendezvous") {
  store::Server server(host, 0, {0, world, ""}, secret);
  store::Client first = join(server.port(), 1, std::chrono::seconds(20));
  store::Client other = join(server.port(), 2, std::chrono::seconds(20));
  CHECK_FALSE(other.has("anything", soon()));
  CHECK_FALSE(first.has("anything", soon()));
  const auto begin = store::Clock::now();
  const std::string text = weft_test::message<StoreError>([&] { join(server.port(), 1, std::chrono::seconds(20)); });
  CHECK(text.find("rank 1 has come twice") != std::string::npos);
  CHECK(store::Clock::now() - begin < std::chrono::seconds(10));  // at once, not at its deadline
  CHECK_THROWS_WITH_AS(other.get("link/0", soon()), "weft: rank 1 has come twice", StoreError);
}
