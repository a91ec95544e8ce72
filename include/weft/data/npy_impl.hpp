// SPDX-License-Identifier: Apache-2.0
#pragma once
// The header of .npy files. Definitions for data/npy.hpp.

#include <bit>
#include <limits>
#include <string_view>

#include <weft/core/inline.hpp>
#include <weft/data/npy.hpp>

namespace weft::data {
namespace detail {

/// The header of a .npy file: a Python literal, {'descr': '<f4', 'fortran_order': False, 'shape': (60000, 28, 28), }. Its three
/// keys may occur in any order.
class NpyDict {
 public:
  NpyDict(std::string_view file, std::string_view text) : file_(file), text_(text) {}

  std::string_view descr;
  bool fortran_order = false;
  std::vector<std::size_t> shape;

  void read() {
    unsigned seen = 0;
    expect('{');
    while (!take('}')) {
      const std::string_view key = quoted();
      expect(':');
      const unsigned which = key == "descr" ? 1 : key == "fortran_order" ? 2 : key == "shape" ? 4 : 0;
      if (which == 0 || (seen & which) != 0)
        fail("it has a key that is not one of 'descr', 'fortran_order' and 'shape', or one twice");
      seen |= which;
      if (which == 1) read_descr();
      if (which == 2) read_order();
      if (which == 4) read_shape();
      if (!take(',')) {
        expect('}');
        break;
      }
    }
    if (seen != 7) fail("it lacks one of the keys 'descr', 'fortran_order' and 'shape'");
    while (at_ < text_.size())
      if (const char c = text_[at_++]; c != ' ' && c != '\n') fail("something follows its dictionary");
  }

 private:
  [[noreturn]] void fail(std::string_view what) const {
    refuse_file(file_, {"its .npy header cannot be read at byte ", at_, ": ", what});
  }

  bool take(char c) {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!take(c)) fail(weft::detail::joined({"a ", std::string_view(&c, 1), " is missing"}));
  }
  std::string_view quoted() {
    const char quote = take('\'') ? '\'' : '"';
    if (quote == '"') expect('"');
    const std::size_t begin = at_, end = text_.find(quote, begin);
    if (end == text_.npos) fail("a text has no end");
    at_ = end + 1;
    return text_.substr(begin, end - begin);
  }
  void read_descr() {
    if (take('['))
      refuse_file(file_,
                  {"its elements are records of several fields (a structured dtype): save each field as a separate array"});
    descr = quoted();
  }
  void read_order() {
    take(' ');  // spaces before the word
    for (const std::string_view word : {"True", "False"})
      if (text_.substr(at_).starts_with(word)) {
        fortran_order = word == "True";
        at_ += word.size();
        return;
      }
    fail("fortran_order is neither True nor False");
  }
  void read_shape() {
    expect('(');
    while (!take(')')) {
      constexpr std::size_t most = std::numeric_limits<std::size_t>::max();
      std::size_t extent = 0, digits = 0;
      for (take(' '); at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_, ++digits) {
        const auto digit = static_cast<std::size_t>(text_[at_] - '0');
        if (extent > (most - digit) / 10) fail("an extent is more than can be counted");
        extent = extent * 10 + digit;
      }
      if (digits == 0) fail("an extent is no number");
      take('L');  // Python 2 wrote 3L
      shape.push_back(extent);
      if (!take(',')) {
        expect(')');
        break;
      }
    }
  }

  std::string_view file_, text_;
  std::size_t at_ = 0;
};

}  // namespace detail

WEFT_INLINE Npy Npy::open(const std::string& file) { return Npy(detail::FileBytes::open(file)); }

WEFT_INLINE Npy::Header Npy::read(const detail::FileBytes& bytes) {
  const std::span<const std::uint8_t> all = bytes.bytes();
  const std::string& file = bytes.file();
  const auto fail = [&](weft::detail::Words reason) { detail::refuse_file(file, reason); };
  static constexpr std::uint8_t magic[6]{0x93, 'N', 'U', 'M', 'P', 'Y'};
  for (std::size_t i = 0; i < sizeof magic && i < all.size(); ++i)
    if (all[i] != magic[i]) fail({"it is no .npy file: its first six bytes are not \\x93NUMPY"});
  if (all.size() < 10) fail({"it is cut off: the header of a .npy file has at least 10 bytes, the file ", all.size()});
  const unsigned version = all[6];
  if (version < 1 || version > 3)
    fail({"it is a .npy file of version ", version, ".", unsigned(all[7]), "; versions 1 to 3 are known"});
  const std::size_t of_length = version == 1 ? 2 : 4;
  if (all.size() < 8 + of_length)
    fail({"it is cut off: its header has at least ", 8 + of_length, " bytes, the file ", all.size()});
  std::size_t length = 0;
  for (std::size_t i = 0; i < of_length; ++i) length |= std::size_t(all[8 + i]) << 8 * i;
  Header header;
  header.bytes = 8 + of_length + length;
  if (header.bytes > all.size()) fail({"it is cut off: its header has ", header.bytes, " bytes, the file ", all.size()});
  detail::NpyDict dict(file, {reinterpret_cast<const char*>(all.data()) + 8 + of_length, length});
  dict.read();

  const std::string_view type = dict.descr;
  const std::string shown = weft::detail::shown(type, 40);
  if (type.find('O') != type.npos)
    fail({"its elements are Python objects (dtype '", shown, "'), which are pickled and could run anything: save numbers"});
  if (dict.fortran_order) fail({"it is in Fortran order: save it in C order, np.save(file, np.ascontiguousarray(array))"});
  const bool one_byte = type == "|b1" || type == "|u1" || type == "|i1";
  const std::size_t size = type.size() == 3 && type[2] >= '1' && type[2] <= '8' ? static_cast<std::size_t>(type[2] - '0') : 0;
  const char kind = type.size() == 3 ? type[1] : '\0', here = std::endian::native == std::endian::little ? '<' : '>';
  const bool known =
      kind == 'f' ? size == 2 || size == 4 || size == 8 : (kind == 'i' || kind == 'u') && std::has_single_bit(size);
  if (!one_byte && known && size > 1 && type[0] == (here == '<' ? '>' : '<'))
    fail({"its elements ('", shown, "') are in the other order of bytes: save array.astype(array.dtype.newbyteorder('='))"});
  if (!one_byte && !(known && (type[0] == here || (size == 1 && type[0] == '<'))))
    fail(
        {"its elements are of dtype '", shown, "': float16, float32, float64, whole numbers of 8 to 64 bits and bool are known"});
  header.type = {kind, size};
  if (kind == 'b') header.type = {'b', 1};
  header.shape = std::move(dict.shape);
  return header;
}

}  // namespace weft::data
