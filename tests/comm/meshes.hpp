// SPDX-License-Identifier: Apache-2.0
#pragma once
// Two meshes in one process, connected by socket pairs, and a man in the middle that changes the bytes of one direction.

#include <sys/socket.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <weft/comm/tcp/full_mesh.hpp>

namespace weft_test {

using namespace weft::comm;

inline constexpr store::Digest link_key{1, 2, 3};

inline std::array<store::Socket, 2> socket_pair() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) throw weft::Error("no socket pair");
  return {store::Socket(ends[0]), store::Socket(ends[1])};
}

/// The mesh of rank `rank` of two, over one socket.
inline std::unique_ptr<tcp::Mesh> mesh_over(int rank, store::Socket socket) {
  std::vector<store::Link> links(2);
  links[std::size_t(1 - rank)] = {std::move(socket), link_key};
  return std::make_unique<tcp::Mesh>(rank, std::move(links));
}

inline void wait_until(tcp::Buffer& buffer, std::size_t sends, std::size_t receives) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (buffer.sends() < sends) buffer.wait_for_sends(sends, std::chrono::milliseconds(1));
  while (buffer.receives() < receives) {
    if (std::chrono::steady_clock::now() > end) throw weft::Error("a message does not come");
    buffer.wait_for_receives(receives, std::chrono::milliseconds(1));
  }
}

/// A single disturbance of one direction of the connection.
enum class Disturbance { before, in_head, inside, after, cut, replayed, flipped, huge, miscounted, other_kind, garbage };
inline constexpr int disturbances = 11;

/// Forwards whole frames, disturbs one, and forwards everything that follows.
inline void forward(const store::Socket& from, const store::Socket& to, int frame_number, Disturbance how, unsigned seed) {
  std::mt19937 random(seed);
  const auto read = [&](std::string& bytes, std::size_t count) {
    for (char block[65536]; count != 0;) {
      const ssize_t got = ::recv(from.get(), block, std::min(sizeof block, count), 0);
      if (got <= 0) return false;
      bytes.append(block, std::size_t(got));
      count -= std::size_t(got);
    }
    return true;
  };
  const auto write = [&](const std::string& bytes) {
    for (std::size_t sent = 0; sent < bytes.size();) {
      const ssize_t more = ::send(to.get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (more <= 0) return false;
      sent += std::size_t(more);
    }
    return true;
  };
  for (int number = 0;; ++number) {
    std::string frame;
    if (!read(frame, tcp::FrameSeal::head_bytes)) break;
    std::uint32_t kind;
    std::uint64_t length;
    std::memcpy(&kind, frame.data() + 4, sizeof kind);
    std::memcpy(&length, frame.data() + 24, sizeof length);
    if (number < frame_number || number > frame_number) {
      if (number > frame_number || kind != 2) {
        if (!write(frame)) break;
        frame.clear();
      }
    }
    if (number <= frame_number && kind == 2 && !read(frame, length + tcp::FrameSeal::code_bytes)) break;
    if (number == frame_number) {
      const std::size_t head = tcp::FrameSeal::head_bytes;
      std::string other(1 + random() % 100, '\0');
      for (char& byte : other) byte = char(random());
      switch (how) {
        case Disturbance::before: frame = other + frame; break;
        case Disturbance::in_head: frame.insert(1 + random() % (head - 1), other); break;
        case Disturbance::inside: frame.insert(1 + random() % (frame.size() - 1), other); break;
        case Disturbance::after: frame += other; break;
        case Disturbance::cut:
          write(frame.substr(0, random() % frame.size()));
          ::shutdown(to.get(), SHUT_RDWR);
          ::shutdown(from.get(), SHUT_RDWR);
          return;
        case Disturbance::replayed: frame += frame; break;
        case Disturbance::flipped: frame[random() % head] ^= char(1 << random() % 8); break;
        case Disturbance::huge: std::memset(frame.data() + 24, 0xff, 8); break;
        case Disturbance::miscounted: ++frame[8]; break;
        case Disturbance::other_kind: frame[4] = char(3 - frame[4]); break;
        case Disturbance::garbage: frame.assign(65536, '\xff'); break;
      }
    }
    if (!frame.empty() && !write(frame)) break;
    if (number > frame_number) {  // frame boundaries are lost
      for (std::string rest; rest.clear(), read(rest, 1);)
        if (!write(rest)) break;
      break;
    }
  }
  ::shutdown(to.get(), SHUT_RDWR);
  ::shutdown(from.get(), SHUT_RDWR);
}

/// Exchanges messages until the connection ends; returns its error. Every received message must have the right bytes.
inline std::string exchange_until_broken(tcp::Mesh& mesh, unsigned seed, bool* invalid = nullptr) {
  std::mt19937 same(seed);  // on both ranks
  const int rank = mesh.rank(), peer = 1 - rank;
  try {
    for (std::uint64_t round = 0;; ++round) {
      const std::size_t bytes = same() % 3 == 0 ? same() % 200000 : same() % 300;
      std::vector<char> mine(bytes, char(round + unsigned(rank))), theirs(bytes + same() % 100, 'x');
      auto buffer = mesh.buffer(theirs.data(), theirs.size());
      auto out = mesh.buffer(mine.data(), bytes);
      buffer->recv(peer, round % 5, 0, theirs.size());
      out->send(peer, round % 5, 0, bytes);
      wait_until(*out, 1, 0);
      wait_until(*buffer, 0, 1);
      for (std::size_t i = 0; i < theirs.size(); ++i)
        if (theirs[i] != (i < bytes ? char(round + unsigned(peer)) : 'x')) return "a message has other bytes";
    }
  } catch (const tcp::Broken& error) {
    if (invalid != nullptr) *invalid = error.invalid();
    return error.what();
  } catch (const std::exception& error) {
    return error.what();
  }
}

/// The errors of both ranks if rank 0's bytes are changed on their way.
struct Told {
  std::string texts[2];
  bool invalid = false;  ///< rank 1 found bytes that are no frame
};
inline Told disturbed(Disturbance how, unsigned seed) {
  auto [a, near] = socket_pair();
  auto [far, b] = socket_pair();
  auto zero = mesh_over(0, std::move(a)), one = mesh_over(1, std::move(b));
  std::thread to_one([&, &near = near, &far = far] { forward(near, far, int(seed % 7), how, seed); });
  std::thread to_zero([&near = near, &far = far] {
    for (char block[65536];;) {
      const ssize_t got = ::recv(far.get(), block, sizeof block, 0);
      if (got <= 0 || ::send(near.get(), block, std::size_t(got), MSG_NOSIGNAL) != got) break;
    }
    ::shutdown(near.get(), SHUT_RDWR);
    ::shutdown(far.get(), SHUT_RDWR);
  });
  Told told;
  std::thread first([&] { told.texts[0] = exchange_until_broken(*zero, seed); });
  told.texts[1] = exchange_until_broken(*one, seed, &told.invalid);
  one.reset();
  first.join();
  zero.reset();
  to_one.join();
  to_zero.join();
  return told;
}

/// Empty if that disturbance ended as it should.
inline std::string fault_of(Disturbance how, unsigned seed) {
  const Told told = disturbed(how, seed);
  const bool named = told.texts[0].find("rank 1") != std::string::npos && told.texts[1].find("rank 0") != std::string::npos;
  if (named && told.invalid == (how != Disturbance::cut)) return {};
  return "disturbance " + std::to_string(int(how)) + ", seed " + std::to_string(seed) + ": " + told.texts[0] + "; " +
         told.texts[1];
}

}  // namespace weft_test
