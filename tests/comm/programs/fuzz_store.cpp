// SPDX-License-Identifier: Apache-2.0
// Random bytes, and requests with random damage, for the parser of the store, under AddressSanitizer and UBSan; then random
// connections for a store that serves a client meanwhile. Argument: how many inputs (default 200000; nightly 100 million).
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include <weft/comm/store/client.hpp>

using namespace weft;
using namespace weft::comm::store;

namespace {

std::mt19937_64 engine(7);
std::size_t below(std::size_t n) { return n == 0 ? 0 : engine() % n; }

std::string random_bytes(std::size_t count) {
  std::string text(count, '\0');
  for (char& c : text) c = char(engine());
  return text;
}

std::string some_requests() {
  std::string text;
  for (std::size_t k = below(4); k < 4; ++k) {
    const auto op = Op(1 + below(3));
    text += request(op, std::uint32_t(engine()), random_bytes(1 + below(20)),
                    op == Op::set ? random_bytes(below(200)) : std::string());
  }
  return text;
}

void damage(std::string& text) {
  for (std::size_t k = below(6); k > 0 && !text.empty(); --k) {
    const std::size_t at = below(text.size());
    switch (below(5)) {
      case 0: text[at] = char(text[at] ^ char(1 << below(8))); break;
      case 1: text[at] = char(below(3) == 0 ? 0xff : engine()); break;
      case 2: text.erase(at, 1 + below(8)); break;
      case 3: text.insert(at, random_bytes(1 + below(8))); break;
      default: text.resize(at);
    }
  }
}

/// Feeds the text in random pieces. Returns the number of parsed requests; the buffer never exceeds the bytes fed.
std::size_t feed(const std::string& text, bool greeting) {
  RequestReader reader;
  std::size_t understood = 0, came = 0;
  const Nonce nonce{};
  try {
    while (came < text.size()) {
      const std::size_t piece = std::min(1 + below(64), text.size() - came);
      reader.add(std::string_view(text).substr(came, piece));
      came += piece;
      if (reader.held() > came) std::abort();
      if (greeting) {
        const auto hello = reader.hello();
        if (hello.empty()) continue;
        greeting = false;
        if (read_hello(hello, {0, 4, "job"}, nonce, "secret").refusal.empty()) ++understood;
      }
      Request request;
      while (reader.next(request)) {
        if (request.key.empty() || request.key.size() > most_key || request.value.size() > most_value) std::abort();
        ++understood;
      }
    }
  } catch (const comm::StoreError&) {}
  return understood;
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t inputs = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 200000;
  std::size_t understood = 0;
  for (std::size_t k = 0; k < inputs; ++k) {
    std::string text;
    const bool greeting = k % 3 == 0;
    if (greeting) text = hello({std::uint32_t(below(6)), 4, "job"}, Nonce{}, Nonce{}, k % 2 == 0 ? "secret" : "other");
    text += k % 7 == 0 ? random_bytes(below(300)) : some_requests();
    if (k % 5 != 0) damage(text);
    understood += feed(text, greeting);
  }

  // Strangers of every kind while two ranks use the store.
  const auto soon = [] { return Clock::now() + std::chrono::seconds(20); };
  Server server("127.0.0.1", 0, {0, 2, "job"}, "0123456789abcdef");
  Client a("127.0.0.1", server.port(), {0, 2, "job"}, "0123456789abcdef", soon());
  Client b("127.0.0.1", server.port(), {1, 2, "job"}, "0123456789abcdef", soon());
  const std::size_t strangers = std::min<std::size_t>(inputs / 100, 10000);
  const Address address = resolve("127.0.0.1", server.port());
  std::vector<Socket> half_open;
  for (std::size_t k = 0; k < strangers; ++k) {
    Socket socket(::socket(AF_INET, SOCK_STREAM, 0));
    if (::connect(socket.get(), address.get(), address.length) != 0) std::abort();
    std::string text =
        k % 3 == 0 ? random_bytes(below(500))
                   : hello({std::uint32_t(below(4)), 2, "job"}, Nonce{}, Nonce{}, k % 3 == 1 ? "wrong" : "0123456789abcdef");
    if (k % 2 == 0) damage(text);
    ssize_t sent = ::send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno != EPIPE && errno != ECONNRESET) std::abort();
    if (k % 100 == 0 && half_open.size() < 16) half_open.push_back(std::move(socket));
    if (k % 50 == 0) {
      a.set("key", std::to_string(k), soon());
      if (b.get("key", soon()) != std::to_string(k)) std::abort();
    }
  }
  if (understood == 0) return 1;
  std::printf("%zu inputs, %zu requests understood, %zu strangers\n", inputs, understood, strangers);
}
