// SPDX-License-Identifier: Apache-2.0
#pragma once
// The protocol between the store and its clients, without sockets, so that it can be fuzzed. All numbers are little-endian.
//
//   server: "weftstor", version, nonce                                  challenge
//   client: "weftstor", version, rank, to, world, job, nonce, HMAC      hello; the HMAC covers it and the server's nonce
//   server: reply 0: an HMAC over its status, hello, nonce and text; the text is the reason of a refusal
//   client: operation, number, key and value lengths, key, value        any number of times, each in a frame (sealed.hpp)
//   server: status, number, length, value                               the same
//
// Every port of a job begins with the first three lines; only the store has the rest. Nonces are new for each connection, so
// that a recorded handshake opens none; `to` names the wanted listener, so that a proof for one listener is none for another.
//
// Every length is checked against its limit before memory is allocated for it, and memory grows only with the received bytes.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include <weft/comm/store/sha256.hpp>
#include <weft/core/error.hpp>

namespace weft::comm {

/// A failure of the store or of a client: no connection, another secret, a rank that did not come.
class StoreError : public Error {
 public:
  explicit StoreError(const std::string& what, int exit_code = 1) : Error(what, exit_code) {}
  /// Without the "weft: " at the beginning of what().
  std::string_view text() const { return std::string_view(what()).substr(6); }
};

namespace store {

inline constexpr std::string_view magic = "weftstor";
inline constexpr std::uint32_t version = 5;
inline constexpr std::size_t most_key = 8192, most_value = std::size_t(8) << 20, most_keys = 65536,
                             most_stored = std::size_t(64) << 20;
inline constexpr std::size_t challenge_bytes = 8 + 4 + 16, hello_bytes = 8 + 4 + 4 + 4 + 4 + 32 + 16 + 32,
                             request_bytes = 1 + 4 + 4 + 4, reply_bytes = 1 + 4 + 4;
using Nonce = std::array<char, 16>;

/// met: the rank needs no other rank for its rendezvous; beat: a heartbeat; leave: its end in good order.
enum class Op : unsigned char { set = 1, get, has, met, beat, leave };
/// later: refused for now, since another job or program may hold the port; a rank tries again until its deadline.
enum class Status : unsigned char { done = 0, refused = 1, later = 2 };
/// The wanted listener if it is not a rank's: rank 0's store, or its part for heartbeats.
inline constexpr std::uint32_t the_store = 0xffffffff, the_heartbeat = 0xfffffffe;

inline void put(std::string& text, std::uint32_t value) {
  for (int shift = 0; shift < 32; shift += 8) text.push_back(char(value >> shift & 0xff));
}
std::uint32_t number_at(std::string_view bytes, std::size_t at);
inline std::string_view letters(const Digest& digest) { return {reinterpret_cast<const char*>(digest.data()), digest.size()}; }
inline std::string_view letters(const Nonce& nonce) { return {nonce.data(), nonce.size()}; }

/// A client's claimed identity.
struct Identity {
  std::uint32_t rank = 0, world = 0;
  std::string job;
};

inline std::string challenge(const Nonce& nonce) {
  std::string text(magic);
  put(text, version);
  return text += letters(nonce);
}

std::string hello(const Identity& who, const Nonce& mine, const Nonce& server, std::string_view secret,
                  std::uint32_t to = the_store);

/// The proof that the answering side of a hello has the secret. `why` is empty, or the reason of a refusal.
inline Digest welcome(Status status, std::string_view hello, const Nonce& server, std::string_view why, std::string_view secret) {
  std::string text = "weft's answer";
  text.push_back(char(status));
  return hmac_sha256(secret, ((text += hello) += letters(server)) += why);
}

/// The key of a connection that this hello has opened: for the frames that follow the handshake.
inline Digest key_of_link(std::string_view hello, const Nonce& server, std::string_view secret) {
  return hmac_sha256(secret, (std::string("weft's frames") += hello) += letters(server));
}

inline std::string reply(Status status, std::uint32_t number, std::string_view value) {
  std::string text(1, char(status));
  put(text, number);
  put(text, std::uint32_t(value.size()));
  return text += value;
}

std::string request(Op op, std::uint32_t number, std::string_view key, std::string_view value);

struct Request {
  Op op = Op::has;
  std::uint32_t number = 0;
  std::string_view key, value;  ///< valid until the next call of the reader
};

/// Splits the bytes of one client into its hello and its requests.
class RequestReader {
 public:
  /// Adds received bytes. The caller reads at most 64 KiB at a time and takes all requests out before it adds more.
  void add(std::string_view bytes) {
    if (used_ != 0) bytes_.erase(0, std::exchange(used_, 0));
    bytes_ += bytes;
  }
  std::size_t held() const { return bytes_.size() - used_; }

  /// The whole hello, or empty while it is incomplete.
  std::string_view hello();

  /// True with a whole request in `request`; false if more bytes are needed. Throws StoreError if the bytes cannot be a request.
  bool next(Request& request);

 private:
  std::string bytes_;
  std::size_t used_ = 0;
};

/// The result of reading a hello: an empty text if it is valid, else the reason why not. If the HMAC is wrong, nothing else in it
/// is believed.
struct Greeting {
  Identity who;  ///< without the job
  std::uint32_t to = the_store;
  Nonce nonce{};
  bool genuine = false;  ///< the caller has the secret
  bool ours = false;     ///< and belongs to this job, which its mistakes end
  std::string refusal;
};
/// A hello to the store or its heartbeat, or to rank `to` if it is given.
Greeting read_hello(std::string_view bytes, const Identity& server, const Nonce& nonce, std::string_view secret,
                    std::uint32_t to = the_store);

}  // namespace store

}  // namespace weft::comm

#ifndef WEFT_COMPILED
#include <weft/comm/store/protocol_impl.hpp>
#endif
