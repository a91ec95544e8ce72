// SPDX-License-Identifier: Apache-2.0
// Every operation between ranks that have only the store in common, here threads with a connection each.
#include <doctest/doctest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <weft/comm/store/ranks.hpp>

#include "comm/conformance.hpp"

using namespace weft;
namespace store = comm::store;

namespace {

/// A world of threads at one store; returns each thread's error.
std::vector<std::string> errors_of(int ranks, std::chrono::duration<double> deadline,
                                   const std::function<void(const Communicator&)>& body) {
  const store::Identity zero{0, std::uint32_t(ranks), "job"};
  auto server = std::make_unique<store::Server>("127.0.0.1", 0, zero, "");
  std::vector<std::string> texts(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      try {
        const store::Identity who{std::uint32_t(rank), std::uint32_t(ranks), "job"};
        store::Client client("127.0.0.1", server->port(), who, "", store::Clock::now() + std::chrono::seconds(20));
        body(Communicator(store::over(std::make_shared<store::Process>(std::move(client), who, deadline))));
      } catch (const std::exception& error) {
        texts[std::size_t(rank)] = error.what();
      }
    });
  for (auto& thread : threads) thread.join();
  return texts;
}

}  // namespace

TEST_CASE("the store's ranks: every operation, brief") {
  for (const int ranks : {1, 2, 3}) {
    const auto texts = errors_of(ranks, std::chrono::seconds(60), [](const Communicator& c) {
      for (const std::size_t count : {0, 1, 300}) {
        weft_test::check_operations<float>(c, count, true);
        weft_test::check_operations<bfloat16>(c, count, false);
        weft_test::check_operations<std::int16_t>(c, count, false);
      }
      weft_test::check_in_flight(c);
      weft_test::check_tags(c);
      c.barrier();
    });
    CHECK(texts == std::vector<std::string>(std::size_t(ranks)));
  }
}

TEST_CASE("the store's ranks: a value longer than one message") {
  const auto texts = errors_of(2, std::chrono::seconds(60), [](const Communicator& c) {
    std::vector<float> x(std::size_t(3) << 20, float(c.rank() + 1));
    c.all_reduce(x);
    if (x.front() != 3.0f || x.back() != 3.0f) throw Error("a wrong sum");
    if (c.rank() == 0) c.send(x, 1);
    else c.recv(x, 0);
    c.barrier();
  });
  CHECK(texts == std::vector<std::string>{"", ""});
}

TEST_CASE("the store's ranks: who disagrees is named, who is lost is missed, who never comes is given up") {
  auto texts = errors_of(2, std::chrono::seconds(60), [](const Communicator& c) {
    std::vector<float> x(4 + std::size_t(c.rank()));
    c.all_reduce(x);
  });
  for (const auto& text : texts)
    CHECK(text.find("ranks disagree: rank 0 of world called all_reduce(sum) of 4 float32, rank 1 of world called all_reduce(sum) "
                    "of 5 float32") != std::string::npos);
  texts = errors_of(3, std::chrono::seconds(60), [](const Communicator& c) {
    if (c.rank() == 2) throw Error("gone");
    c.barrier();
  });
  for (const int rank : {0, 1})
    CHECK(texts[std::size_t(rank)].find("barrier() #1: rank 2 is lost, its process ended or its connection broke") !=
          std::string::npos);
  texts = errors_of(2, std::chrono::milliseconds(200), [](const Communicator& c) {
    std::vector<float> x(4);
    if (c.rank() == 0) c.recv(x, 1, 2);
    else std::this_thread::sleep_for(std::chrono::milliseconds(600));
  });
  CHECK(texts[0].find("recv of 4 float32 with tag 2 from rank 1 #1: waited longer than the deadline of 0.2") !=
        std::string::npos);
}
