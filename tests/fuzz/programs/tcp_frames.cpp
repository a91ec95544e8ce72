// SPDX-License-Identifier: Apache-2.0
// Any bytes on the connection to a rank with messages in flight: the connection ends with one line that names the peer, or waits
// for more. No message is received without a frame of the peer; the input may get some.
#include <sys/epoll.h>

#include <weft/comm/tcp/connection.hpp>

#include "fuzz/support/fuzz.hpp"

using namespace weft;
using namespace weft::comm;

namespace {

struct Buffer : tcp::Delivery {};

const store::Digest link_key{7};

}  // namespace

void weft_test::target(Input input) {
  int ends[2];
  expect(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
  const store::Socket peer(ends[0]), epoll(::epoll_create1(EPOLL_CLOEXEC));
  tcp::Signal signal;
  Buffer in, out;
  std::byte room[64] = {}, data[16] = {};
  tcp::Connection connection(0, 1, {store::Socket(ends[1]), link_key}, epoll.get(), signal);
  connection.receive(in, 3, room, 32);
  connection.send(out, 4, data, sizeof data);
  tcp::FrameSeal seal(store::letters(store::hmac_sha256(store::letters(link_key), "frames from rank 1")));
  const std::size_t genuine = input.take() % 4;
  std::string bytes;
  for (std::size_t k = 0; k < genuine; ++k) {  // sealed as the peer would, with any content
    tcp::FrameSeal::Code code;
    const tcp::Frame frame{tcp::FrameKind(input.take() % 4), std::uint64_t(input.take() % 6), input.take() % 48u};
    const auto head = seal.seal(frame, code);
    bytes.append(head.data(), head.size());
    if (frame.kind != tcp::FrameKind::data) continue;
    bytes.append(frame.length, 'd');
    bytes.append(tcp::FrameSeal::tail_of(code), tcp::FrameSeal::code_bytes);
  }
  bytes += input.rest();
  expect(::send(peer.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) >= 0 || bytes.empty());
  ::shutdown(peer.get(), SHUT_WR);
  connection.handle(EPOLLIN);
  connection.handle(EPOLLIN);
  for (std::size_t k = 32; k < sizeof room; ++k) expect(room[k] == std::byte(0));
  try {
    expect(in.receives() <= (genuine != 0));
  } catch (const tcp::Broken& error) {
    expect_message(error.what());
    expect(std::string_view(error.what()).find("rank 1") != std::string_view::npos);
  }
  connection.forget(in);
  connection.forget(out);
}

std::vector<std::string> weft_test::seeds() {
  return {std::string("\x00", 1), std::string("\x01\x02\x03\x20rest", 8), std::string("\x02\x01\x04\x10\x02\x03\x08", 7),
          std::string("\x01\x02\x03\x2f", 4), std::string("\x01\x03\x00\x00", 4)};
}
