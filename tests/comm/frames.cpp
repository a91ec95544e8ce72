// SPDX-License-Identifier: Apache-2.0
// Frames and their connections: every bit of a head matters, messages arrive whole and in order, released memory is not accessed
// again, and bytes that are not a frame of the peer give an error that names it.
// covers: weft/comm/store/frame.hpp weft/comm/store/sealed.hpp weft/comm/tcp/connection.hpp weft/comm/tcp/full_mesh.hpp
#include <doctest/doctest.h>

#include <weft/comm/store/frame.hpp>
#include <weft/comm/store/sealed.hpp>
#include <weft/comm/tcp/connection.hpp>
#include <weft/comm/tcp/full_mesh.hpp>

#include "comm/meshes.hpp"

namespace {

using namespace weft_test;
using tcp::Frame;
using tcp::FrameKind;
using tcp::FrameSeal;

/// The sealed bytes of a frame with its data.
std::string sealed(FrameSeal& seal, const Frame& frame, const std::string& data) {
  FrameSeal::Code code;
  const auto head = seal.seal(frame, code);
  std::string text(head.data(), head.size());
  if (frame.kind == FrameKind::data) (text += data).append(FrameSeal::tail_of(code), FrameSeal::code_bytes);
  return text;
}

TEST_CASE("messages with the store arrive whole and in order, and one foreign byte is found") {
  using store::Sealed;
  const store::Digest key = store::sha256("key");
  Sealed rank(key, Sealed::Side::rank);
  std::string bytes;
  const std::string first = store::request(store::Op::set, 1, "key", std::string(5000, 'v'));
  const std::string second = store::request(store::Op::beat, 0, "beat", {});
  rank.seal(first, bytes);
  const std::size_t end = bytes.size();
  rank.seal(second, bytes);

  const auto read = [&](const std::string& received, std::size_t piece, Sealed::Side side = Sealed::Side::store) {
    Sealed reader(key, side);
    std::vector<std::string> messages;
    for (std::size_t at = 0; at < received.size(); at += piece) {
      reader.add(std::string_view(received).substr(at, piece));
      while (auto text = reader.open()) messages.push_back(*std::move(text));
    }
    return messages;
  };
  for (const std::size_t piece : {std::size_t(1), std::size_t(7), std::size_t(4096), bytes.size()})
    CHECK(read(bytes, piece) == std::vector{first, second});
  CHECK(read(bytes.substr(0, bytes.size() - 1), 100) == std::vector{first});
  // A byte before, inside of and after a message, one that is missing, a message twice, and one that this side sent itself.
  for (const std::size_t at : {std::size_t(0), std::size_t(1), FrameSeal::head_bytes + 9, end - 1, end}) {
    CHECK_THROWS_AS(read(std::string(bytes).insert(at, "\x05"), 100), store::InvalidFrame);
    CHECK_THROWS_AS(read(std::string(bytes).erase(at, 1), 100), store::InvalidFrame);
  }
  CHECK_THROWS_WITH_AS(read(bytes.substr(0, end) + bytes.substr(0, end), 100), "frame 1 is numbered 0", store::InvalidFrame);
  CHECK_THROWS_WITH_AS(read(bytes, 100, Sealed::Side::rank), "frame 0 has a wrong authentication code", store::InvalidFrame);
  CHECK_THROWS_WITH_AS(read("x", 1), "frame 0 does not begin as a frame", store::InvalidFrame);

  FrameSeal seal(store::letters(store::hmac_sha256(store::letters(key), "messages of a rank")));
  CHECK_THROWS_AS(read(sealed(seal, {FrameKind::data, 0, Sealed::most + 1}, ""), 100), store::InvalidFrame);
}

TEST_CASE("the head of a frame is taken once, in order, with the right key, and with no bit changed") {
  FrameSeal out("key");
  FrameSeal::Code code, found;
  const auto first = out.seal({FrameKind::data, 7, 100}, code), second = out.seal({FrameKind::ready, 8, 200}, code);
  {
    FrameSeal in("key");
    const Frame frame = in.open(first.data(), found);
    CHECK((frame.kind == FrameKind::data && frame.slot == 7 && frame.length == 100));
    CHECK_THROWS_WITH_AS(in.open(first.data(), found), "frame 1 is numbered 0", tcp::InvalidFrame);
    CHECK(in.open(second.data(), found).slot == 8);
    CHECK_NOTHROW(in.close(FrameSeal::tail_of(code), found));
    std::string tail(FrameSeal::tail_of(code), FrameSeal::code_bytes);
    tail[15] ^= 1;
    CHECK_THROWS_WITH_AS(in.close(tail.data(), found), "frame 1 ends with wrong bytes: some were inserted or are missing",
                         tcp::InvalidFrame);
  }
  CHECK_THROWS_WITH_AS(FrameSeal("key").open(second.data(), found), "frame 0 is numbered 1", tcp::InvalidFrame);
  CHECK_THROWS_WITH_AS(FrameSeal("another key").open(first.data(), found), "frame 0 has a wrong authentication code",
                       tcp::InvalidFrame);
  for (std::size_t bit = 0; bit < 8 * FrameSeal::head_bytes; ++bit) {
    auto other = first;
    other[bit / 8] ^= char(1 << bit % 8);
    CHECK_THROWS_WITH_AS(FrameSeal("key").open(other.data(), found),
                         bit < 32 ? "frame 0 does not begin as a frame" : "frame 0 has a wrong authentication code",
                         tcp::InvalidFrame);
  }
  const auto unknown = FrameSeal("key").seal({FrameKind(3), 0, 0}, code);
  CHECK_THROWS_WITH_AS(FrameSeal("key").open(unknown.data(), found), "frame 0 is of the unknown kind 3", tcp::InvalidFrame);
}

TEST_CASE("messages of all lengths arrive whole, those of one slot in order") {
  auto [a, b] = socket_pair();
  auto zero = mesh_over(0, std::move(a)), one = mesh_over(1, std::move(b));
  const std::size_t lengths[] = {0, 1, 47, 48, 4096, 16384, 65536, 1048576, 5000001};
  for (const bool receives_first : {true, false}) {
    std::vector<std::vector<char>> sent, arrived;
    std::vector<std::unique_ptr<tcp::Buffer>> out, in;
    for (const std::size_t length : lengths) {
      sent.emplace_back(length, char('a' + sent.size()));
      arrived.emplace_back(length + 3, 'x');
      out.push_back(zero->buffer(sent.back().data(), length));
      in.push_back(one->buffer(arrived.back().data(), length + 3));
    }
    for (int turn = 0; turn < 2; ++turn)
      for (std::size_t k = 0; k < sent.size(); ++k) {
        if ((turn == 0) == receives_first) in[k]->recv(0, 5, 0, sent[k].size() + 3);
        else out[k]->send(1, 5, 0, sent[k].size());
      }
    for (std::size_t k = 0; k < sent.size(); ++k) {
      wait_until(*out[k], 1, 0);
      wait_until(*in[k], 0, 1);
      CHECK(std::equal(sent[k].begin(), sent[k].end(), arrived[k].begin()));
      CHECK(std::string(arrived[k].end() - 3, arrived[k].end()) == "xxx");
    }
  }
}

TEST_CASE("memory that is given up is touched no more, and the connection goes on") {
  auto [a, b] = socket_pair();
  auto zero = mesh_over(0, std::move(a)), one = mesh_over(1, std::move(b));
  constexpr std::size_t bytes = 8 << 20;
  char word = 'w', heard = 'x';
  for (int round = 0; round < 20; ++round) {
    std::vector<char> memory(bytes, 'a'), room(bytes, 'b');
    auto in = one->buffer(room.data(), bytes), out = zero->buffer(memory.data(), bytes);
    const auto slot = std::uint64_t(10 + round);  // the room that an earlier round has announced is still there
    in->recv(0, slot, 0, bytes);
    if (round % 4 != 3) out->send(1, slot, 0, bytes);
    if (round % 2 == 0) std::this_thread::sleep_for(std::chrono::microseconds(100 * round));
    if (round % 4 == 2)  // the first bytes are there: the peer expects the rest
      while (*static_cast<volatile char*>(room.data()) != 'a') std::this_thread::yield();
    out.reset();
    std::fill(memory.begin(), memory.end(), 'z');
    if (round % 4 == 2) {
      wait_until(*in, 0, 1);
      CHECK(std::count(room.begin(), room.end(), 'a') == std::ptrdiff_t(bytes));
    }
    if (round % 4 == 3) {  // a message in the slot that waits
      out = zero->buffer(&word, 1);
      in.reset();
      out->send(1, slot, 0, 1);
      wait_until(*out, 1, 0);
    }
    in.reset();
    std::fill(room.begin(), room.end(), 'c');
    auto ask = one->buffer(&heard, 1), say = zero->buffer(&word, 1);
    ask->recv(0, 2, 0, 1);
    say->send(1, 2, 0, 1);
    wait_until(*ask, 0, 1);
    CHECK(heard == 'w');
    out.reset();
    CHECK(std::count(room.begin(), room.end(), 'c') == std::ptrdiff_t(bytes));
  }
}

TEST_CASE("bytes that are no frame of the peer's end in an error that names it, on both ranks") {
  for (unsigned seed = 0; seed < 22 * disturbances; ++seed) {
    const std::string fault = fault_of(Disturbance(seed % disturbances), seed);
    CHECK_MESSAGE(fault.empty(), fault);
  }
}

TEST_CASE("a peer with the key whose frames do not fit is named") {
  const auto told = [](const std::string& data, const std::vector<Frame>& frames, std::size_t sends) {
    auto [a, b] = socket_pair();
    auto mesh = mesh_over(0, std::move(a));
    std::vector<char> memory(8, 'x');
    auto in = mesh->buffer(memory.data(), memory.size()), out = mesh->buffer(memory.data(), memory.size());
    in->recv(1, 3, 0, 8);
    if (sends != 0) out->send(1, 4, 0, sends);
    const store::Digest key = store::hmac_sha256(store::letters(link_key), "frames from rank 1");
    FrameSeal seal(store::letters(key));
    for (const Frame& frame : frames) {
      const std::string bytes = sealed(seal, frame, data);
      (void)!::send(b.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    }
    std::string text = "no error";
    try {
      wait_until(sends != 0 ? *out : *in, sends != 0, sends == 0);
    } catch (const std::exception& error) {
      text = error.what();
    }
    return text == "no error" ? std::string(memory.begin(), memory.end()) : text;
  };
  CHECK(told("12345", {{FrameKind::data, 3, 5}}, 0) == "12345xxx");
  CHECK(told("", {{FrameKind::data, 3, 9}}, 0) ==
        "bytes from rank 1 are no valid frame: it sends a message of 9 bytes where there is room for 8");
  CHECK(told("", {{FrameKind::data, 3, ~std::uint64_t(0)}}, 0).find("where there is room for 8") != std::string::npos);
  CHECK(told("1", {{FrameKind::data, 2, 1}}, 0) ==
        "bytes from rank 1 are no valid frame: it sends a message for which there is no room");
  CHECK(told("1", {{FrameKind::data, 3, 1}, {FrameKind::data, 3, 1}}, 0) == "1xxxxxxx");  // whole before the second one
  CHECK(told("", {{FrameKind::ready, 4, 7}}, 8) ==
        "bytes from rank 1 are no valid frame: it has room for less than the message that this rank sends");
}

TEST_CASE("a peer that closes between frames differs from one that closes inside of a frame") {
  for (const std::size_t sent : {std::size_t(0), std::size_t(10), FrameSeal::head_bytes, FrameSeal::head_bytes + 3}) {
    auto [a, b] = socket_pair();
    auto mesh = mesh_over(0, std::move(a));
    char memory[8];
    auto in = mesh->buffer(memory, sizeof memory);
    in->recv(1, 3, 0, sizeof memory);
    const store::Digest key = store::hmac_sha256(store::letters(link_key), "frames from rank 1");
    FrameSeal seal(store::letters(key));
    const std::string bytes = sealed(seal, {FrameKind::data, 3, 8}, "12345678");
    (void)!::send(b.get(), bytes.data(), sent, MSG_NOSIGNAL);
    ::shutdown(b.get(), SHUT_WR);
    CHECK_THROWS_WITH_AS(wait_until(*in, 0, 1),
                         sent == 0 ? "rank 1 closed its connection" : "rank 1 closed its connection inside of a frame",
                         tcp::Broken);
    CHECK_THROWS_AS(in->recv(1, 3, 0, 1), tcp::Broken);
  }
}

TEST_CASE("fewer bytes than a head are refused at once if they do not begin as one") {
  for (const std::string bytes : {std::string("x"), std::string("ty"), std::string(47, '\0')}) {
    auto [a, b] = socket_pair();
    auto mesh = mesh_over(0, std::move(a));
    char memory[8];
    auto in = mesh->buffer(memory, sizeof memory);
    in->recv(1, 3, 0, sizeof memory);
    (void)!::send(b.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    CHECK_THROWS_WITH_AS(wait_until(*in, 0, 1), "bytes from rank 1 are no valid frame: frame 0 does not begin as a frame",
                         tcp::Broken);
  }
}

TEST_CASE("bytes that the peer sent before it closed are received") {
  for (int round = 0; round < 50; ++round) {
    auto [a, b] = socket_pair();
    auto zero = mesh_over(0, std::move(a)), one = mesh_over(1, std::move(b));
    char word = 'w', heard = 'x';
    auto in = zero->buffer(&heard, 1), out = one->buffer(&word, 1);
    in->recv(1, 1, 0, 1);
    out->send(0, 1, 0, 1);
    wait_until(*out, 1, 0);
    out.reset();
    one.reset();
    CHECK_NOTHROW(wait_until(*in, 0, 1));
    CHECK(heard == 'w');
  }
}

}  // namespace
