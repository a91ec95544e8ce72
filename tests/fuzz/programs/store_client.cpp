// SPDX-License-Identifier: Apache-2.0
// A rank that connects to a store, or to another rank, which sends any bytes: without the secret it is rejected, and the user's
// message is one line. The other half of store_protocol.cpp.
#include <thread>

#include <weft/comm/store/connector.hpp>

#include "fuzz/support/fuzz.hpp"

using namespace weft;
using namespace weft::comm;

namespace {

/// A program on a port that sends the given bytes to its first connection and closes it.
class Stranger {
 public:
  Stranger() {
    const store::Address address = store::resolve("127.0.0.1", 0);
    listener_ = store::Socket(::socket(address.family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    weft_test::expect(::bind(listener_.get(), address.get(), address.length) == 0 && ::listen(listener_.get(), 16) == 0);
    port_ = ntohs(reinterpret_cast<const sockaddr_in&>(store::local_address(listener_).storage).sin_port);
  }
  int port() const { return port_; }
  std::thread answer(std::string bytes) {
    return std::thread([this, bytes = std::move(bytes)] {
      const store::Socket caller(::accept(listener_.get(), nullptr, nullptr));
      [[maybe_unused]] const auto sent = ::send(caller.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);  // it may have gone
      ::shutdown(caller.get(), SHUT_WR);
      char hello[4096];
      while (::recv(caller.get(), hello, sizeof hello, 0) > 0) {}
    });
  }

 private:
  store::Socket listener_;
  int port_ = 0;
};

}  // namespace

void weft_test::target(Input input) {
  Stranger stranger;  // a new port for each input, so that no earlier connection is left
  const bool until_the_deadline = input.take() % 32 == 0;
  std::thread thread = stranger.answer(std::string(input.rest().substr(0, 4096)));
  struct Tried {};  // a rank tries again every 20 ms; most inputs get one attempt
  try {
    store::Connector connector("127.0.0.1", stranger.port(), {1, 2, "job"}, "0123456789abcdef", store::the_store);
    connector.connect(store::Clock::now() + std::chrono::milliseconds(5), [&] {
      if (!until_the_deadline) throw Tried();
    });
    expect(false);  // a store must have the secret
  } catch (const Error& error) {
    expect_message(error.what());
  } catch (const Tried&) {}
  thread.join();
}

std::vector<std::string> weft_test::seeds() {
  const std::string challenge = store::challenge(store::Nonce{});
  std::vector<std::string> texts;
  for (const char first : {0, 1})
    for (const std::string& said :
         {challenge, challenge + store::reply(store::Status::done, 0, std::string(32, 'x')),
          challenge + store::reply(store::Status::refused, 0, std::string(32, 'x') + "rank 1 has come\ntwice"),
          std::string("HTTP/1.1 400 Bad Request\r\n\r\n")})
      texts.push_back(first + said);
  return texts;
}
