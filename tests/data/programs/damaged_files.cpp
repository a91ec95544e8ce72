// SPDX-License-Identifier: Apache-2.0
// Readers of files under AddressSanitizer and UBSan: each small file truncated at every length, with every value of every byte of
// its header, and with random damage. A reader refuses such a file in one line, or reads everything that its header declares.
#include <cstdio>
#include <cstdlib>
#include <string>

#include <weft/data/arrays.hpp>
#include <weft/data/gzip.hpp>
#include <weft/data/idx.hpp>
#include <weft/data/npy.hpp>
#include <weft/data/token_windows.hpp>

#include "data/support/formats.hpp"

using namespace weft;
using namespace weft_test;

namespace {

std::uint64_t sum = 0;  // of all that is read, so that nothing is left out
std::size_t inputs = 0, refusals = 0;

inline constexpr data::Field<"anything", double> anything;

template <class T>
void read_array(const data::detail::FileArray& array) {
  if (array.type() != data::detail::element_type_of<T>()) return;
  for (const T& value : array.values<T>()) {
    std::uint8_t raw[sizeof(T)];
    std::memcpy(raw, &value, sizeof raw);
    sum += raw[0];
  }
  if (array.shape().size() > 5) return;
  const data::Arrays dataset(data::array<anything, T>(array));
  sum += dataset.size();
}
void read_array(const data::detail::FileArray& array) {
  read_array<std::uint8_t>(array), read_array<std::int8_t>(array), read_array<std::int16_t>(array),
      read_array<std::int32_t>(array);
  read_array<float>(array), read_array<double>(array), read_array<std::uint64_t>(array), read_array<std::uint16_t>(array);
}

void read_gzip(const Bytes& bytes) {
  for (const std::uint8_t byte : data::detail::unzip("damaged", bytes)) sum += byte;
}
void read_idx(const Bytes& bytes) { read_array(data::Idx::from_bytes("damaged", bytes)); }
void read_npy(const Bytes& bytes) { read_array(data::Npy::from_bytes("damaged", bytes)); }
void read_tokens(const Bytes& bytes) {
  const data::PackedDocuments documents(data::Tokens::from_bytes("damaged", bytes, {.vocabulary = 60000}),
                                        {.sequence = 4, .separator = 2});
  using Fields = data::PackedDocuments::Fields;
  Fields batch;
  Fields::Shapes shapes;
  documents.shapes(shapes);
  batch.resize(1, shapes);
  for (std::size_t i = 0; i < documents.size(); ++i) {
    documents.load(i, batch.sample(0));
    sum += std::uint64_t(batch[data::tokens].values()[3]);
  }
}

using Reader = void(const Bytes&);

void read(Reader* reader, const Bytes& bytes) {
  ++inputs;
  try {
    reader(bytes);
  } catch (const Error& error) {
    ++refusals;
    const std::string text = error.what();
    if (text.find('\n') != text.npos || text.size() > 600) std::printf("not one line: %s\n", text.c_str()), std::exit(1);
  }
}

void damage(Reader* reader, const Bytes& whole, std::size_t header, std::size_t random) {
  for (std::size_t length = 0; length <= whole.size(); ++length)
    read(reader, Bytes(whole.begin(), whole.begin() + std::ptrdiff_t(length)));
  for (std::size_t at = 0; at < header && at < whole.size(); ++at)
    for (int value = 0; value < 256; ++value) {
      Bytes other = whole;
      other[at] = std::uint8_t(value);
      read(reader, other);
    }
  std::uint64_t state = whole.size();
  const auto draw = [&](std::size_t below) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return std::size_t(state >> 33) % below;
  };
  for (std::size_t i = 0; i < random; ++i) {
    Bytes other = whole;
    for (std::size_t bytes = 1 + draw(4); bytes-- > 0;)
      other[draw(draw(2) == 0 ? other.size() : std::min(header, other.size()))] = std::uint8_t(draw(256));
    if (draw(4) == 0) other.resize(1 + draw(other.size()));
    read(reader, other);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t random = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 2'000;
  for (const Bytes& file : {gzip_dynamic, gzip_fixed, gzip_stored, gzip_empty}) damage(read_gzip, file, file.size(), random);
  damage(read_idx, idx_file<std::uint8_t>(8, {2, 3}, {1, 2, 3, 4, 5, 6}), 12, random);
  damage(read_idx, idx_file<double>(0x0E, {2, 1, 3}, {1, 2, 3, 4, 5, 6}), 16, random);
  for (const std::uint8_t version : {1, 2})
    for (const std::size_t align : {64, 1})
      damage(read_npy, npy_file<float>(npy_dictionary("<f4", "(2, 3)"), {1, 2, 3, 4, 5, 6}, version, align), 80, random);
  damage(read_npy, npy_file<double>(npy_dictionary("<f8", "(1, 2, 3)"), {1, 2, 3, 4, 5, 6}), 80, random);
  const std::vector<std::uint16_t> tokens{1, 2, 3, 4, 5, 2, 7, 8, 9};
  damage(read_tokens, token_file(tokens), 18, random);
  damage(read_tokens, token_file(tokens, 20240520, 1), 16, random);
  damage(read_tokens, token_file(std::vector<std::uint32_t>(tokens.begin(), tokens.end()), 20240801, 7), 16, random);
  std::printf("%zu inputs, %zu refused (%llu)\n", inputs, refusals, static_cast<unsigned long long>(sum));
  return refusals > inputs / 4 && refusals < inputs ? 0 : 1;  // otherwise the damage is not as intended
}
