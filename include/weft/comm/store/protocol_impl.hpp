// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for comm/store/protocol.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <weft/comm/store/protocol.hpp>
#include <weft/core/inline.hpp>

namespace weft::comm::store {

WEFT_INLINE std::uint32_t number_at(std::string_view bytes, std::size_t at) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i) value |= std::uint32_t(static_cast<unsigned char>(bytes[at + i])) << (8 * i);
  return value;
}

WEFT_INLINE std::string hello(const Identity& who, const Nonce& mine, const Nonce& server, std::string_view secret,
                              std::uint32_t to) {
  std::string text(magic);
  put(text, version);
  put(text, who.rank);
  put(text, to);
  put(text, who.world);
  text += letters(sha256(who.job));
  text += letters(mine);
  const std::string signed_text = text + std::string(letters(server));
  return text += letters(hmac_sha256(secret, signed_text));
}

WEFT_INLINE std::string request(Op op, std::uint32_t number, std::string_view key, std::string_view value) {
  if (key.empty() || key.size() > most_key || value.size() > most_value)
    throw_error<UsageError>({"store: a key has 1 to ", most_key, " bytes and a value at most ", most_value, "; these have ",
                             key.size(), " and ", value.size()});
  std::string text(1, char(op));
  put(text, number);
  put(text, std::uint32_t(key.size()));
  put(text, std::uint32_t(value.size()));
  text += key;
  return text += value;
}

WEFT_INLINE std::string_view RequestReader::hello() {
  const std::string_view rest = std::string_view(bytes_).substr(used_);
  if (rest.substr(0, magic.size()) != magic.substr(0, std::min(rest.size(), magic.size())))
    throw StoreError("store: a connection does not speak its protocol");
  if (rest.size() < hello_bytes) return {};
  used_ += hello_bytes;
  return rest.substr(0, hello_bytes);
}

WEFT_INLINE bool RequestReader::next(Request& request) {
  const std::string_view rest = std::string_view(bytes_).substr(used_);
  if (rest.empty()) return false;
  const auto op = static_cast<unsigned char>(rest[0]);
  if (Op(op) < Op::set || Op(op) > Op::leave) throw_error<StoreError>({"store: unknown operation ", int(op)});
  if (rest.size() < request_bytes) return false;
  const std::size_t key = number_at(rest, 5), value = number_at(rest, 9);
  if (key == 0 || key > most_key || value > most_value || (Op(op) != Op::set && value != 0))
    throw_error<StoreError>({"store: a request announces a key of ", key, " and a value of ", value, " bytes"});
  if (rest.size() - request_bytes < key + value) return false;
  request = {Op(op), number_at(rest, 1), rest.substr(request_bytes, key), rest.substr(request_bytes + key, value)};
  used_ += request_bytes + key + value;
  return true;
}

WEFT_INLINE Greeting read_hello(std::string_view bytes, const Identity& server, const Nonce& nonce, std::string_view secret,
                                std::uint32_t to) {
  Greeting greeting;
  const std::size_t end = hello_bytes - 32;
  Digest claimed;
  std::memcpy(claimed.data(), bytes.data() + end, claimed.size());
  const std::string signed_text = std::string(bytes.substr(0, end)) + std::string(letters(nonce));
  greeting.genuine = equal_in_constant_time(claimed, hmac_sha256(secret, signed_text));
  if (!greeting.genuine) {
    greeting.refusal = "another secret (WEFT_SECRET)";
    return greeting;
  }
  greeting.who = {number_at(bytes, 12), number_at(bytes, 20), {}};
  greeting.to = number_at(bytes, 16);
  std::memcpy(greeting.nonce.data(), bytes.data() + 56, greeting.nonce.size());
  const auto& who = greeting.who;
  const bool wanted = greeting.to == to || (to == the_store && greeting.to == the_heartbeat);
  if (number_at(bytes, 8) != version) {
    greeting.refusal = weft::detail::joined(
        {"rank ", who.rank, " speaks version ", number_at(bytes, 8), " of the store's protocol, rank 0 version ", version});
    greeting.ours = true;  // a later attempt would not change it
  } else if (bytes.substr(24, 32) != letters(sha256(server.job))) {
    greeting.refusal = weft::detail::joined({"rank ", who.rank, " belongs to another job, this one is ",
                                             server.job.empty() ? "without a name" : server.job, " (WEFT_JOB)"});
  } else if (!wanted) {
    greeting.refusal = weft::detail::joined({"rank ", who.rank, " wants another rank's port than rank ", server.rank, "'s"});
  } else if (who.world != server.world) {
    greeting.refusal = weft::detail::joined({"ranks disagree about the world: WORLD_SIZE is ", who.world, " on rank ", who.rank,
                                             " and ", server.world, " on rank ", server.rank});
    greeting.ours = true;
  } else if (who.rank >= server.world) {
    greeting.refusal = weft::detail::joined({"rank ", who.rank, " is not in a world of ", server.world});
    greeting.ours = true;
  } else {
    greeting.ours = true;
  }
  return greeting;
}

}  // namespace weft::comm::store
