// SPDX-License-Identifier: Apache-2.0
// Contents of gzip files: each kind of block, several members, and detection of every kind of damage.

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include <weft/core/error.hpp>
#include <weft/data/gzip.hpp>

#include "data/support/formats.hpp"
#include "support/message.hpp"

using namespace weft;
using namespace weft_test;

namespace {

std::string unzipped(const Bytes& bytes) {
  const Bytes out = data::detail::unzip("a.gz", bytes);
  return {out.begin(), out.end()};
}

}  // namespace

TEST_CASE("each kind of block") {
  CHECK(data::detail::is_gzip(gzip_dynamic));
  CHECK(!data::detail::is_gzip(Bytes{0x1f}));
  CHECK(unzipped(gzip_dynamic) == gzip_dynamic_text());
  CHECK(unzipped(gzip_fixed) == gzip_fixed_text);
  CHECK(unzipped(gzip_stored) == gzip_stored_text);
  CHECK(unzipped(gzip_empty) == "");
  Bytes both = gzip_fixed;
  both.insert(both.end(), gzip_dynamic.begin(), gzip_dynamic.end());
  CHECK(unzipped(both) == std::string(gzip_fixed_text) + gzip_dynamic_text());
}

TEST_CASE("no file that is cut off, and none with another bit, gives other bytes") {
  for (const Bytes* file : {&gzip_dynamic, &gzip_fixed, &gzip_stored}) {
    const std::string whole = unzipped(*file);
    for (std::size_t length = 1; length < file->size(); ++length) {
      const Bytes cut(file->begin(), file->begin() + std::ptrdiff_t(length));
      CHECK(message<UsageError>([&] {
              unzipped(cut);
            }).starts_with("weft: data: cannot read 'a.gz': its gzip data are damaged or cut off"));
    }
    std::size_t found = 0;
    for (std::size_t at = 0; at < file->size() * 8; ++at) {
      Bytes flipped = *file;
      flipped[at / 8] ^= std::uint8_t(1u << at % 8);
      std::string text = whole;
      const bool refused = !message<UsageError>([&] { text = unzipped(flipped); }).empty();
      CHECK((refused || text == whole));  // else a bit that means nothing: of the time, of the name
      found += refused;
    }
    CHECK(found > (file->size() - 31) * 8);  // a header of 10 bytes, and at most 21 of names
  }
  Bytes sum = gzip_stored;
  sum[sum.size() - 8] ^= 1;
  CHECK(message<UsageError>([&] { unzipped(sum); }) ==
        "weft: data: cannot read 'a.gz': its gzip data are damaged or cut off: incorrect data check");
}
