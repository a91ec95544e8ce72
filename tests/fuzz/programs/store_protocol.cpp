// SPDX-License-Identifier: Apache-2.0
// The store's parser with any bytes, in any pieces: its buffer never exceeds its input, accepted requests are within the limits,
// and the writer produces the same bytes again. As a frame, the same bytes are refused, or incomplete.
#include <weft/comm/store/sealed.hpp>

#include "fuzz/support/fuzz.hpp"

using namespace weft::comm::store;

namespace {

const Identity server{0, 4, "job"};
constexpr std::string_view secret = "0123456789abcdef";

}  // namespace

void weft_test::target(Input input) {
  Sealed sealed(sha256("key"), Sealed::Side::store);
  try {
    sealed.add(Input(input).rest());
    expect(!sealed.open());  // a peer without the key writes no frame
  } catch (const InvalidFrame& error) {
    expect_message(error.what());
  }
  RequestReader reader;
  bool greeting = input.take() % 2 != 0;
  std::size_t came = 0;
  try {
    while (!input.empty()) {
      const std::string_view piece = input.take_bytes(1 + input.take() % 97);
      reader.add(piece);
      came += piece.size();
      expect(reader.held() <= came);
      if (greeting) {
        const std::string_view hello = reader.hello();
        if (hello.empty()) continue;
        greeting = false;
        const Greeting found = read_hello(hello, server, Nonce{}, secret);
        expect(found.genuine || !found.refusal.empty());  // no stranger is accepted
        if (!found.refusal.empty()) expect_message(found.refusal);
      }
      Request request;
      while (reader.next(request)) {
        expect(!request.key.empty() && request.key.size() <= most_key && request.value.size() <= most_value);
        const std::string again = weft::comm::store::request(request.op, request.number, request.key, request.value);
        RequestReader second;
        second.add(again);
        Request same;
        expect(second.next(same) && same.op == request.op && same.number == request.number && same.key == request.key &&
               same.value == request.value && second.held() == 0);
      }
    }
  } catch (const weft::comm::StoreError& error) {
    expect_message(error.what());
  }
}

std::vector<std::string> weft_test::seeds() {
  const auto in_pieces = [](char first, const std::string& bytes) {
    std::string text(1, first);
    for (std::size_t at = 0; at < bytes.size(); at += 97) (text += char(96)) += bytes.substr(at, 97);
    return text;
  };
  const std::string requests = request(Op::set, 1, "address/1", "127.0.0.1:2000") + request(Op::get, 2, "address/2", {}) +
                               request(Op::has, 3, "met", {}) + request(Op::met, 4, "met", {});
  return {in_pieces(0, requests), in_pieces(1, hello({2, 4, "job"}, Nonce{}, Nonce{}, secret) + requests),
          in_pieces(1, hello({9, 4, "job"}, Nonce{}, Nonce{}, secret)),
          in_pieces(1, hello({1, 4, "another"}, Nonce{}, Nonce{}, "another secret")),
          in_pieces(1, hello({1, 5, "job"}, Nonce{}, Nonce{}, secret))};
}
