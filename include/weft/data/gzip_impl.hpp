// SPDX-License-Identifier: Apache-2.0
#pragma once
// A decoder of deflate streams, and the gzip format around it. Definitions for data/gzip.hpp.

#include <algorithm>
#include <array>
#include <memory>

#include <weft/core/inline.hpp>
#include <weft/core/input_file.hpp>
#include <weft/data/gzip.hpp>

namespace weft::data::detail {

/// Reads the bits of a deflate stream, lowest first, and writes the decompressed bytes.
class Inflate {
 public:
  Inflate(std::string_view file, std::span<const std::uint8_t> in, std::vector<std::uint8_t>& out)
      : file_(file), in_(in), out_(out), first_(out.size()) {}

  /// Decodes one stream to its end; returns the number of bytes read.
  std::size_t run() {
    bool last = false;
    while (!last) {
      last = bits(1) != 0;
      const unsigned kind = bits(2);
      if (kind == 0) {
        stored();
      } else if (kind == 1) {
        fixed();
      } else if (kind == 2) {
        dynamic();
      } else {
        fail("a block of no known kind");
      }
    }
    return at_ - held_ / 8;
  }

 private:
  static constexpr int longest = 15;
  /// Maps the next 15 bits to a symbol: symbol * 16 + length; 0 for bits that begin no symbol.
  using Code = std::array<std::uint16_t, 1 << longest>;

  [[noreturn]] void fail(std::string_view what) const {
    throw_error<UsageError>(
        {"data: cannot read '", file_, "': its gzip data are damaged or cut off at byte ", at_, " of ", in_.size(), ": ", what});
  }

  void fill(int count) {
    while (held_ < count && at_ < in_.size()) {
      buffer_ |= std::uint64_t(in_[at_++]) << held_;
      held_ += 8;
    }
  }
  void drop(int count) {
    if (count > held_) fail("it ends inside of a block");
    buffer_ >>= count;
    held_ -= count;
  }
  unsigned bits(int count) {
    fill(count);
    const unsigned value = static_cast<unsigned>(buffer_ & ((std::uint64_t(1) << count) - 1));
    drop(count);
    return value;
  }
  unsigned symbol(const Code& code) {
    fill(longest);
    const unsigned entry = code[buffer_ & ((1u << longest) - 1)];
    if (entry == 0) fail("bits that are no code");
    drop(static_cast<int>(entry & 15));
    return entry >> 4;
  }

  /// Makes the canonical codes of these lengths. Throws for lengths that need more codes than exist.
  void make(Code& code, std::span<const std::uint8_t> lengths) {
    std::array<unsigned, longest + 2> next{};
    for (const std::uint8_t length : lengths) ++next[length + 1u];
    next[1] = 0;  // symbols without a code
    unsigned first = 0;
    for (int length = 1; length <= longest; ++length) {
      const unsigned count = next[static_cast<std::size_t>(length) + 1];
      first <<= 1;
      next_[static_cast<std::size_t>(length)] = first;
      first += count;
      if (first > 1u << length) fail("more codes than there are");
    }
    code.fill(0);
    for (std::size_t s = 0; s < lengths.size(); ++s) {
      const unsigned length = lengths[s];
      if (length == 0) continue;
      unsigned number = next_[length]++, reversed = 0;
      for (unsigned bit = 0; bit < length; ++bit) reversed |= (number >> bit & 1u) << (length - 1 - bit);
      for (unsigned at = reversed; at < code.size(); at += 1u << length) code[at] = static_cast<std::uint16_t>(s << 4 | length);
    }
  }

  void stored() {
    drop(held_ % 8);
    const unsigned length = bits(16), complement = bits(16);
    if (length != (~complement & 0xffffu)) fail("a stored block with a wrong length");
    at_ -= static_cast<std::size_t>(held_ / 8);
    held_ = 0;
    buffer_ = 0;
    if (length > in_.size() - at_) fail("it ends inside of a block");
    out_.insert(out_.end(), in_.begin() + static_cast<std::ptrdiff_t>(at_),
                in_.begin() + static_cast<std::ptrdiff_t>(at_ + length));
    at_ += length;
  }

  void fixed() {
    std::array<std::uint8_t, 288> lengths;
    for (std::size_t s = 0; s < lengths.size(); ++s) lengths[s] = s < 144 ? 8 : s < 256 ? 9 : s < 280 ? 7 : 8;
    make(literals_, lengths);
    std::array<std::uint8_t, 30> distances;
    distances.fill(5);
    make(distances_, distances);
    block();
  }

  void dynamic() {
    static constexpr std::uint8_t order[19]{16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15};
    const unsigned literals = bits(5) + 257, distances = bits(5) + 1, codes = bits(4) + 4;
    if (literals > 286 || distances > 30) fail("more symbols than there are");
    std::array<std::uint8_t, 19> of_lengths{};
    for (unsigned i = 0; i < codes; ++i) of_lengths[order[i]] = static_cast<std::uint8_t>(bits(3));
    make(literals_, of_lengths);
    std::array<std::uint8_t, 286 + 30> lengths{};
    for (unsigned at = 0; at < literals + distances;) {
      const unsigned s = symbol(literals_);
      if (s < 16) {
        lengths[at++] = static_cast<std::uint8_t>(s);
        continue;
      }
      if (s == 16 && at == 0) fail("a repeat of nothing");
      const std::uint8_t value = s == 16 ? lengths[at - 1] : std::uint8_t(0);
      const unsigned times = s == 16 ? 3 + bits(2) : s == 17 ? 3 + bits(3) : 11 + bits(7);
      if (times > literals + distances - at) fail("more lengths than symbols");
      std::fill_n(lengths.begin() + at, times, value);
      at += times;
    }
    if (lengths[256] == 0) fail("a block without an end");
    make(literals_, std::span(lengths).first(literals));
    make(distances_, std::span(lengths).subspan(literals, distances));
    block();
  }

  void block() {
    static constexpr std::uint16_t length_base[29]{3,  4,  5,  6,  7,  8,  9,  10, 11,  13,  15,  17,  19,  23, 27,
                                                   31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258};
    static constexpr std::uint8_t length_bits[29]{0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2,
                                                  2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0};
    static constexpr std::uint16_t distance_base[30]{1,    2,    3,    4,    5,    7,    9,    13,    17,    25,
                                                     33,   49,   65,   97,   129,  193,  257,  385,   513,   769,
                                                     1025, 1537, 2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577};
    for (;;) {
      const unsigned s = symbol(literals_);
      if (s < 256) {
        out_.push_back(static_cast<std::uint8_t>(s));
        continue;
      }
      if (s == 256) return;
      if (s > 285) fail("a length that does not exist");
      const std::size_t length = length_base[s - 257] + bits(length_bits[s - 257]);
      const unsigned d = symbol(distances_);
      if (d > 29) fail("a distance that does not exist");
      const std::size_t distance = distance_base[d] + bits(d < 2 ? 0 : static_cast<int>(d / 2 - 1));
      if (out_.size() > most_) fail("it holds more than half of this machine's memory");
      if (distance > out_.size() - first_) fail("a copy of what lies before the beginning");
      const std::size_t from = out_.size() - distance;
      out_.resize(out_.size() + length);
      for (std::size_t i = 0; i < length; ++i) out_[from + distance + i] = out_[from + i];  // source and destination may overlap
    }
  }

  std::string_view file_;
  std::span<const std::uint8_t> in_;
  std::vector<std::uint8_t>& out_;
  const std::uint64_t most_ = weft::detail::half_of_memory();  // a short file may decompress to a thousand times its size
  std::size_t first_, at_ = 0;
  std::uint64_t buffer_ = 0;
  int held_ = 0;  // bits in the buffer
  std::array<unsigned, longest + 1> next_{};
  Code literals_{}, distances_{};
};

/// The cyclic redundancy check of RFC 1952.
WEFT_INLINE std::uint32_t crc32(std::span<const std::uint8_t> bytes) {
  std::array<std::uint32_t, 256> table;
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = value >> 1 ^ (value & 1u ? 0xedb88320u : 0u);
    table[i] = value;
  }
  std::uint32_t sum = ~0u;
  for (const std::uint8_t byte : bytes) sum = table[(sum ^ byte) & 0xffu] ^ sum >> 8;
  return ~sum;
}

WEFT_INLINE std::vector<std::uint8_t> unzip(std::string_view file, std::span<const std::uint8_t> bytes) {
  const auto fail = [&](std::string_view what) {
    throw_error<UsageError>({"data: cannot read '", file, "': its gzip data are damaged or cut off: ", what});
  };
  const auto number = [&](std::size_t at, int count) {
    std::uint32_t value = 0;
    for (int i = 0; i < count; ++i) value |= std::uint32_t(bytes[at + static_cast<std::size_t>(i)]) << 8 * i;
    return value;
  };
  std::vector<std::uint8_t> out;
  for (std::size_t at = 0; at < bytes.size();) {  // one iteration per member
    if (bytes.size() - at < 18) fail("a member has fewer than 18 bytes");
    if (!is_gzip(bytes.subspan(at)) || bytes[at + 2] != 8) fail("a member does not begin with 1f 8b 08");
    const unsigned flags = bytes[at + 3];
    if (flags & 0xe0u) fail("flags that are not known");
    at += 10;
    const auto skip = [&](std::size_t count) {
      if (count > bytes.size() - at) fail("it ends inside of a header");
      at += count;
    };
    if (flags & 4u) {  // extra bytes
      skip(2);
      skip(number(at - 2, 2));
    }
    for (const unsigned text : {8u, 16u})  // the name, and a comment
      if (flags & text) {
        do skip(1);
        while (bytes[at - 1] != 0);
      }
    if (flags & 2u) skip(2);
    const std::size_t begin = out.size();
    at += std::make_unique<Inflate>(file, bytes.subspan(at), out)->run();  // 128 KiB of tables
    if (bytes.size() - at < 8) fail("it ends before its sum");
    const std::span<const std::uint8_t> member = std::span<const std::uint8_t>(out).subspan(begin);
    if (number(at, 4) != crc32(member)) fail("its sum (CRC-32) is another one");
    if (number(at + 4, 4) != static_cast<std::uint32_t>(member.size())) fail("its length is another one");
    at += 8;
  }
  return out;
}

}  // namespace weft::data::detail
