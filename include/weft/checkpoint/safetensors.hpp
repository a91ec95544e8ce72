// SPDX-License-Identifier: Apache-2.0
#pragma once
// The safetensors format, read and written: eight bytes with the length of the header, the JSON header with name, type, shape and
// position of each tensor, and the tensors' bytes. Reading follows the rules of the reference implementation and stated limits:
// every length is checked before memory is allocated for it.
//
//   const auto file = checkpoint::Safetensors::open("model.safetensors");
//   for (const checkpoint::StoredTensor& tensor : file.tensors()) std::cout << tensor.name << '\n';
//   file.read(*file.find("wte.weight"), bytes);

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include <weft/checkpoint/data_types.hpp>
#include <weft/checkpoint/error.hpp>
#include <weft/checkpoint/file_system.hpp>
#include <weft/checkpoint/json.hpp>

namespace weft::checkpoint {

/// A tensor of a file. Elements are row-major and little-endian.
struct StoredTensor {
  std::string name;
  StoredType type = StoredType::f32;
  std::vector<std::size_t> shape;    ///< empty: a scalar
  std::uint64_t begin = 0, end = 0;  ///< bytes after the header

  std::uint64_t bytes() const { return end - begin; }
};

/// The parsed header.
struct SafetensorsHeader {
  std::vector<StoredTensor> tensors;            ///< in the order of their bytes
  std::map<std::string, std::string> metadata;  ///< the header's "__metadata__"
};

namespace detail {

/// The bytes of a shape, or null on overflow. As in the reference implementation the factors are multiplied in order, so a zero
/// prevents a later overflow but not an earlier one.
inline std::optional<std::uint64_t> bytes_of(const std::vector<std::size_t>& shape, StoredType type) {
  constexpr std::uint64_t largest = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t elements = 1;
  for (const std::size_t extent : shape) {
    if (extent != 0 && elements > largest / extent) return std::nullopt;
    elements *= extent;
  }
  if (elements > largest / size_of(type)) return std::nullopt;
  return elements * size_of(type);
}

class HeaderReader final : public JsonReader {
 public:
  HeaderReader(const std::string& file, SafetensorsHeader& header) : JsonReader(file, 8), header_(header) {}

  bool start_object(std::size_t) override {
    enter();
    switch (at_) {
      case At::top: at_ = At::names; return true;
      case At::metadata_begins: at_ = At::metadata; return true;
      case At::tensor_begins: at_ = At::fields; return true;
      default: return unexpected("an object");
    }
  }
  bool key(std::string& name) override {
    switch (at_) {
      case At::names:
        if (name.size() > longest_name) fail({"a tensor's name has ", name.size(), " bytes, more than ", longest_name}, name);
        if (!names_.insert(name).second) fail({"the header has this key twice"}, name);
        if (name == "__metadata__") {
          at_ = At::metadata_begins;
        } else {
          at_ = At::tensor_begins;
          header_.tensors.push_back({name, {}, {}, 0, 0});
          seen_ = offsets_ = 0;
        }
        return true;
      case At::metadata:
        if (name.size() > longest_name) fail({"a key of __metadata__ has ", name.size(), " bytes, more than ", longest_name});
        text_ = &header_.metadata[name];
        if (!metadata_.insert(name).second) fail({"__metadata__ has the key ", shown(name), " twice"});
        at_ = At::metadata_text;
        return true;
      case At::fields: {
        const unsigned which = name == "dtype" ? 1 : name == "shape" ? 2 : name == "data_offsets" ? 4 : 0;
        if (which == 0) fail({"has a field ", shown(name), ", which is none of dtype, shape and data_offsets"}, tensor().name);
        if ((seen_ & which) != 0) fail({"has its field ", name, " twice"}, tensor().name);
        seen_ |= which;
        at_ = which == 1 ? At::type : which == 2 ? At::shape_begins : At::offsets_begin;
        return true;
      }
      default: return unexpected("a key");
    }
  }
  bool string(std::string& value) override {
    if (at_ == At::metadata_text) {
      *text_ = std::move(value);
      at_ = At::metadata;
      return true;
    }
    if (at_ != At::type) return unexpected("a text");
    const auto type = stored_type(value);
    if (!type) fail({"its dtype is ", shown(value), ", which weft does not support"}, tensor().name);
    tensor().type = *type;
    at_ = At::fields;
    return true;
  }
  bool start_array(std::size_t) override {
    enter();
    if (at_ == At::shape_begins) at_ = At::shape;
    else if (at_ == At::offsets_begin) at_ = At::offsets;
    else return unexpected("an array");
    return true;
  }
  bool number_unsigned(std::uint64_t value) override {
    if (at_ == At::shape) {
      if (tensor().shape.size() == most_dims) fail({"has more than ", most_dims, " dims"}, tensor().name);
      tensor().shape.push_back(value);
    } else if (at_ == At::offsets) {
      if (offsets_ == 2) fail({"has more than two data_offsets"}, tensor().name);
      (offsets_++ == 0 ? tensor().begin : tensor().end) = value;
    } else {
      return unexpected("a number");
    }
    return true;
  }
  bool end_array() override {
    leave();
    if (at_ == At::offsets && offsets_ != 2) fail({"has one data_offset, or none, in place of two"}, tensor().name);
    at_ = At::fields;
    return true;
  }
  bool end_object() override {
    leave();
    if (at_ == At::fields && seen_ != 7) fail({"lacks one of dtype, shape and data_offsets"}, tensor().name);
    at_ = at_ == At::names ? At::end : At::names;
    return true;
  }

 private:
  enum class At {
    top,
    names,
    metadata_begins,
    metadata,
    metadata_text,
    tensor_begins,
    fields,
    type,
    shape_begins,
    shape,
    offsets_begin,
    offsets,
    end
  };
  StoredTensor& tensor() { return header_.tensors.back(); }

  SafetensorsHeader& header_;
  std::unordered_set<std::string> names_, metadata_;
  std::string* text_ = nullptr;
  At at_ = At::top;
  unsigned seen_ = 0, offsets_ = 0;
};

}  // namespace detail

/// Parses a header: `text` is its JSON, followed by `data_bytes` bytes of tensors. Throws Error unless the tensors cover these
/// exactly: in order, without overlaps and gaps, each as long as its shape and type require.
inline SafetensorsHeader parse_safetensors_header(const std::string& file, std::string_view text, std::uint64_t data_bytes) {
  using detail::refuse;
  if (text.empty() || text.front() != '{') refuse({file, {}, 8}, {"its header does not begin with {"});
  SafetensorsHeader header;
  detail::HeaderReader reader(file, header);
  detail::parse_json(reader, text);
  std::sort(header.tensors.begin(), header.tensors.end(),
            [](const StoredTensor& a, const StoredTensor& b) { return std::pair(a.begin, a.end) < std::pair(b.begin, b.end); });
  std::uint64_t at = 0;
  for (const StoredTensor& tensor : header.tensors) {
    if (tensor.begin != at || tensor.end < tensor.begin)
      refuse({file, tensor.name}, {"its bytes are said to be ", tensor.begin, " to ", tensor.end, ", and the one before ends at ",
                                   at, ": there are no holes and no overlaps"});
    const auto bytes = detail::bytes_of(tensor.shape, tensor.type);
    if (!bytes) refuse({file, tensor.name}, {"its shape has more elements than a number holds"});
    if (*bytes != tensor.bytes())
      refuse({file, tensor.name},
             {"its shape and dtype ", name_of(tensor.type), " make ", *bytes, " bytes, its data_offsets ", tensor.bytes()});
    at = tensor.end;
  }
  if (at != data_bytes) refuse({file}, {"its header describes ", at, " bytes of tensors, and ", data_bytes, " follow it"});
  return header;
}

/// A file in the safetensors format. Throws Error.
class Safetensors {
 public:
  struct Options {
    bool follow_links = true;  ///< Hugging Face's cache consists of links
    FileSystem* system = &FileSystem::system();
  };
  static Safetensors open(const std::string& path, const Options& options) {
    return Safetensors(detail::File::open(*options.system, path, options.follow_links));
  }
  static Safetensors open(const std::string& path) { return open(path, Options()); }

  const std::vector<StoredTensor>& tensors() const { return header_.tensors; }
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }
  const StoredTensor* find(std::string_view name) const {
    const auto at = by_name_.find(name);
    return at == by_name_.end() ? nullptr : &header_.tensors[at->second];
  }
  /// Position of the tensors' bytes in the file.
  std::uint64_t data_begin() const { return data_begin_; }

  /// Reads bytes of a tensor, from its byte `first` on.
  void read(const StoredTensor& tensor, std::span<std::byte> bytes, std::uint64_t first = 0) const {
    require_inside(tensor, bytes.size(), first);
    file_.read(bytes.data(), bytes.size(), data_begin_ + tensor.begin + first, tensor.name);
  }
  /// Reads `count` bytes of a tensor, from its byte `first` on, into the page cache. Read errors are found here.
  void bring_in(const StoredTensor& tensor, std::uint64_t count, std::uint64_t first = 0) const {
    require_inside(tensor, count, first);
    file_.bring_in(count, data_begin_ + tensor.begin + first, tensor.name);
  }

 private:
  void require_inside(const StoredTensor& tensor, std::uint64_t count, std::uint64_t first) const {
    if (first > tensor.bytes() || count > tensor.bytes() - first)
      detail::refuse({file_.path(), tensor.name},
                     {count, " bytes are asked for from byte ", first, " on, and it has ", tensor.bytes()});
  }
  explicit Safetensors(detail::File file) : file_(std::move(file)) {
    const std::string& path = file_.path();
    if (file_.length() < 8) detail::refuse({path}, {"has ", file_.length(), " bytes, too few for a safetensors file"});
    unsigned char length[8];
    file_.read(length, 8, 0);
    std::uint64_t bytes = 0;
    for (std::size_t i = 8; i-- > 0;) bytes = bytes << 8 | length[i];
    if (bytes > detail::largest_header)
      detail::refuse({path, {}, 0}, {"announces a header of ", bytes, " bytes, more than ", detail::largest_header});
    if (bytes > file_.length() - 8)
      detail::refuse({path, {}, 0}, {"announces a header of ", bytes, " bytes, and ", file_.length() - 8, " follow"});
    data_begin_ = 8 + bytes;
    std::string text(bytes, '\0');
    file_.read(text.data(), bytes, 8);
    header_ = parse_safetensors_header(path, text, file_.length() - data_begin_);
    for (std::size_t i = 0; i < header_.tensors.size(); ++i) by_name_.emplace(header_.tensors[i].name, i);
  }

  detail::File file_;
  SafetensorsHeader header_;
  std::map<std::string_view, std::size_t> by_name_;  // views of the header's names, whose addresses are stable
  std::uint64_t data_begin_ = 0;
};

/// The first bytes of a file: length and header, padded so that the tensors begin at a multiple of 8 bytes. Sets the tensors'
/// `begin` and `end`, for bytes in this order.
inline std::string safetensors_header(std::vector<StoredTensor>& tensors,
                                      const std::map<std::string, std::string>& metadata = {}) {
  std::string text = "{";
  if (!metadata.empty()) {
    text += "\"__metadata__\":{";
    for (const auto& [name, value] : metadata)
      text += (text.back() == '{' ? "" : ",") + detail::json_text(name) + ":" + detail::json_text(value);
    text += "}";
  }
  std::uint64_t at = 0;
  for (StoredTensor& tensor : tensors) {
    const auto bytes = detail::bytes_of(tensor.shape, tensor.type);
    if (!bytes) throw Error("checkpoint: tensor " + detail::shown(tensor.name) + " has more elements than a number holds");
    tensor.begin = at;
    tensor.end = at += *bytes;
    if (text.size() > 1) text += ",";
    weft::detail::append_to(text, {detail::json_text(tensor.name), ":{\"dtype\":\"", name_of(tensor.type), "\",\"shape\":["});
    for (std::size_t dim = 0; dim < tensor.shape.size(); ++dim)
      weft::detail::append_to(text, {dim ? "," : "", tensor.shape[dim]});
    weft::detail::append_to(text, {"],\"data_offsets\":[", tensor.begin, ",", tensor.end, "]}"});
  }
  text += "}";
  text.append((8 - text.size() % 8) % 8, ' ');
  if (text.size() > detail::largest_header)
    weft::throw_error<Error>(
        {"checkpoint: a safetensors header of ", text.size(), " bytes is longer than the format's ", detail::largest_header});
  std::string out(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) out[i] = char(text.size() >> (8 * i) & 255);
  return out + text;
}

}  // namespace weft::checkpoint
