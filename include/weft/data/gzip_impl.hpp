// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for data/gzip.hpp, by zlib in programs that define WEFT_WITH_ZLIB and link it.

#include <algorithm>
#include <limits>
#include <new>

#ifdef WEFT_WITH_ZLIB
#include <zlib.h>
#endif

#include <weft/core/inline.hpp>
#include <weft/core/input_file.hpp>
#include <weft/data/gzip.hpp>

namespace weft::data::detail {

#ifdef WEFT_WITH_ZLIB
WEFT_INLINE std::vector<std::uint8_t> unzip(std::string_view file, std::span<const std::uint8_t> bytes) {
  const auto fail = [&](std::string_view why) {
    throw_error<UsageError>({"data: cannot read '", file, "': its gzip data are damaged or cut off: ", why});
  };
  struct Stream : z_stream {
    Stream() : z_stream{} {
      if (inflateInit2(this, 15 + 16) != Z_OK) throw std::bad_alloc();  // gzip, of the largest window
    }
    ~Stream() { inflateEnd(this); }
  } stream;
  const std::uint64_t most = weft::detail::half_of_memory();  // a short file may decompress to a thousand times its size
  std::vector<std::uint8_t> out;
  std::size_t at = 0, length = 0;
  for (;;) {
    if (length == out.size()) out.resize(std::max<std::size_t>(2 * length, 65536));
    if (length > most) fail("it holds more than half of this machine's memory");
    constexpr std::size_t at_once = std::numeric_limits<uInt>::max();
    stream.next_in = const_cast<Bytef*>(bytes.data() + at);
    stream.avail_in = uInt(std::min(bytes.size() - at, at_once));
    stream.next_out = out.data() + length;
    stream.avail_out = uInt(std::min(out.size() - length, at_once));
    const int code = inflate(&stream, Z_NO_FLUSH);
    at = std::size_t(stream.next_in - bytes.data());
    length = std::size_t(stream.next_out - out.data());
    if (code == Z_STREAM_END) {
      if (at == bytes.size()) break;
      inflateReset(&stream);  // another member follows
    } else if (code != Z_OK && code != Z_BUF_ERROR) {
      fail(stream.msg != nullptr ? stream.msg : "zlib reports an error");
    } else if (at == bytes.size() && stream.avail_out != 0) {
      fail("it ends early");
    }
  }
  out.resize(length);
  return out;
}
#else
WEFT_COLD WEFT_INLINE std::vector<std::uint8_t> unzip(std::string_view file, std::span<const std::uint8_t>) {
  throw_error<UsageError>({"data: cannot read '", file,
                           "': it is compressed, and this program was built without zlib: gunzip it, or install zlib (Debian: "
                           "zlib1g-dev) and build again (without CMake: -DWEFT_WITH_ZLIB -lz)"});
}
#endif

}  // namespace weft::data::detail
