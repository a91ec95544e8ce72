// SPDX-License-Identifier: Apache-2.0
// covers: weft/comm/store/sha256.hpp
// The published test vectors of SHA-256 (FIPS 180-4 and NIST's examples) and of HMAC-SHA-256 (RFC 4231), messages of every length
// around the block's, and the comparison of digests.
#include <weft/comm/store/sha256.hpp>

#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>

#include <doctest/doctest.h>

namespace {

using namespace weft::comm::store;

std::string hexadecimal(const Digest& digest) {
  std::string text;
  for (const unsigned char byte : digest) {
    char two[3];
    std::snprintf(two, sizeof two, "%02x", byte);
    text += two;
  }
  return text;
}

TEST_CASE("SHA-256 gives FIPS 180-4's answers") {
  CHECK(hexadecimal(sha256("")) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(hexadecimal(sha256("abc")) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(hexadecimal(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")) ==
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  CHECK(
      hexadecimal(sha256(
          "abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu")) ==
      "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1");
  CHECK(hexadecimal(sha256(std::string(1000000, 'a'))) == "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST_CASE("SHA-256 pads every length from 0 to 130 as another implementation does, in one piece or many") {
  // The hash of all their hashes, by Python's hashlib.
  Sha256 all;
  for (std::size_t length = 0; length <= 130; ++length) {
    std::string message(length, '\0');
    for (std::size_t i = 0; i < length; ++i) message[i] = char((7 * i + length) % 256);
    const Digest digest = sha256(message);
    Sha256 by_bytes;
    for (const char& byte : message) by_bytes.update(std::string_view(&byte, 1));
    CHECK(by_bytes.digest() == digest);
    all.update(std::string_view(reinterpret_cast<const char*>(digest.data()), digest.size()));
  }
  CHECK(hexadecimal(all.digest()) == "969b9f993f9c27e8424a46288c5b7999eee502a7befa92cad6cfef1034d76c51");
}

TEST_CASE("HMAC-SHA-256 gives RFC 4231's answers") {
  std::string counting;
  for (char byte = 1; byte <= 25; ++byte) counting += byte;
  CHECK(hexadecimal(hmac_sha256(std::string(20, '\x0b'), "Hi There")) ==
        "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  CHECK(hexadecimal(hmac_sha256("Jefe", "what do ya want for nothing?")) ==
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  CHECK(hexadecimal(hmac_sha256(std::string(20, '\xaa'), std::string(50, '\xdd'))) ==
        "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
  CHECK(hexadecimal(hmac_sha256(counting, std::string(50, '\xcd'))) ==
        "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b");
  CHECK(hexadecimal(hmac_sha256(std::string(20, '\x0c'), "Test With Truncation")).substr(0, 32) ==
        "a3b6167473100ee06e0c796c2955552b");
  CHECK(hexadecimal(hmac_sha256(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First")) ==
        "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
  CHECK(hexadecimal(hmac_sha256(std::string(131, '\xaa'),
                                "This is a test using a larger than block-size key and a larger than block-size data. The key "
                                "needs to be hashed before being used by the HMAC algorithm.")) ==
        "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2");
}

TEST_CASE("a key of 64 bytes is taken as it is, one of 65 is hashed first") {
  const std::string block(64, 'k'), longer(65, 'k');
  const Digest hashed = sha256(longer);
  CHECK(hmac_sha256(longer, "message") ==
        hmac_sha256(std::string_view(reinterpret_cast<const char*>(hashed.data()), hashed.size()), "message"));
  const Digest of_block = sha256(block);
  CHECK_FALSE(hmac_sha256(block, "message") ==
              hmac_sha256(std::string_view(reinterpret_cast<const char*>(of_block.data()), of_block.size()), "message"));
}

TEST_CASE("digests are equal only if every bit is") {
  const Digest digest = sha256("abc");
  CHECK(equal_in_constant_time(digest, digest));
  for (std::size_t bit = 0; bit < 256; ++bit) {
    Digest other = digest;
    other[bit / 8] = static_cast<unsigned char>(other[bit / 8] ^ 1u << bit % 8);
    CHECK_FALSE(equal_in_constant_time(digest, other));
  }
}

}  // namespace
