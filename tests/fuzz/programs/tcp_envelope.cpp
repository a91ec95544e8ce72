// SPDX-License-Identifier: Apache-2.0
// The envelope of a message over TCP, any bytes, for a rank that expects any kind of call: it matches only that call, from any
// function of weft, and any other is described in a message.
#include <weft/comm/operation.hpp>
#include <weft/comm/tcp/envelope.hpp>

#include "fuzz/support/fuzz.hpp"

using namespace weft;
using namespace weft::comm;

namespace {

Call some_call(weft_test::Input& input) {
  Call call;
  call.operation = Operation(input.take() % operation_count);
  call.type = DataType(input.take() % 12);
  call.reduction = Reduction(input.take() % 4);
  call.root = int(input.take() % 4);
  call.tag = input.take<std::uint16_t>();
  call.count = input.take<std::uint16_t>();
  return call;
}

}  // namespace

void weft_test::target(Input input) {
  const Call call = some_call(input);
  const tcp::Head expected{signature(call), call.count, call.bytes(), 0, {}};
  char message[sizeof(tcp::Head)] = {};
  const std::string_view bytes = input.take_bytes(sizeof message);
  std::memcpy(message, bytes.data(), bytes.size());
  const tcp::Head found = tcp::read_head(message);
  const bool fits = tcp::fits(found, expected);
  tcp::Head anywhere = found;
  anywhere.signature &= ~function_bits;
  expect(fits == (std::memcmp(&anywhere, &expected, 24) == 0));
  expect_message(describe(found.signature, found.count));
  expect(!name_of(DataType(found.signature >> 8 & 0xff)).empty());
  if (fits) expect(describe(found.signature, found.count) == describe(signature(call), call.count));
}

std::vector<std::string> weft_test::seeds() {
  std::vector<std::string> texts;
  for (unsigned op = 0; op < operation_count; ++op) {
    std::string text{char(op), char(op % 12), char(op % 4), char(op % 2), 3, 0, 16, 0};
    Input input(text);
    const Call call = some_call(input);
    const tcp::Head head{signature(call), call.count, call.bytes(), op};
    texts.push_back(text + std::string(reinterpret_cast<const char*>(&head), sizeof head));
  }
  return texts;
}
