// SPDX-License-Identifier: Apache-2.0
#pragma once
// The index of a checkpoint, index.json: the file and position of each logical tensor, with lengths and checksums, and the
// numbers of the training state that are not tensors. Its last field is the checksum of all bytes before it; a reader uses
// nothing unless that matches.
//
//   const checkpoint::Index index = checkpoint::parse_index("run/step-00000010/index.json", text);

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <weft/checkpoint/blocks.hpp>
#include <weft/checkpoint/checksum.hpp>
#include <weft/checkpoint/config_numbers.hpp>
#include <weft/checkpoint/data_types.hpp>
#include <weft/checkpoint/error.hpp>
#include <weft/checkpoint/file_system.hpp>
#include <weft/checkpoint/json.hpp>
#include <weft/checkpoint/safetensors.hpp>

namespace weft::checkpoint {

/// A part of a logical tensor in a file: the elements of `block`, contiguous from byte `offset` on.
struct StoredPiece {
  std::size_t file = 0;  ///< index into Index::files
  detail::Strided block;
  std::uint64_t offset = 0;
  std::vector<std::uint64_t> checksums;  ///< one per Index::chunk_bytes bytes
};

/// A whole tensor, as one rank without sharding would hold it.
struct LogicalTensor {
  std::string name;
  std::string kind;  ///< "parameter", "optimizer" or "buffer"
  StoredType type = StoredType::f32;
  StoredType of = StoredType::f32;  ///< a parameter's type in the model, if the stored elements are its master copy
  std::vector<std::size_t> shape;
  std::vector<StoredPiece> pieces;
};

struct StoredFile {
  std::string name;  ///< file name in the index's folder
  std::uint64_t bytes = 0;
  std::uint64_t header_bytes = 0, header_checksum = 0;  ///< of the bytes before the tensors
  std::uint64_t checksum = 0;                           ///< of the whole file, as printed by `xxhsum -H3`
};

struct StoredLossScale {
  double value = 1;
  std::uint64_t good_steps = 0;
};

struct Index {
  static constexpr std::uint64_t newest_version = 1;

  std::uint64_t version = newest_version;
  std::uint64_t step = 0;   ///< the number passed to save
  std::uint64_t world = 1;  ///< number of ranks that wrote it
  std::uint64_t seed = 0;
  std::uint64_t chunk_bytes = 1u << 20;
  std::optional<std::uint64_t> optimizer_steps;
  std::optional<std::uint64_t> next_step;  ///< the next batch's number for batches without Batch::step; none: `step`
  std::optional<StoredLossScale> loss_scale;
  std::map<std::string, std::uint64_t> begun;  ///< optimizer steps before a parameter's state was created, if any
  /// The program's notes. Also the model's "config.NAME" (detail::config_numbers), "files.NAME" (State::files), "layout.AXIS" and
  /// "layout.zero", and the data's "data.name", "data.bytes", "data.digest" and "data.setting.NAME" (DataIdentity).
  std::map<std::string, std::string> notes;
  std::vector<StoredFile> files;
  std::vector<LogicalTensor> tensors;  ///< by name
};

namespace detail {

class IndexReader final : public JsonReader {
 public:
  IndexReader(const std::string& file, Index& index) : JsonReader(file, 0), index_(index) {}

  bool start_object(std::size_t) override {
    enter();
    const bool fits = depth() == 1 || (depth() == 2 && (in("begun") || in("notes") || in("tensors"))) ||
                      (depth() == 3 && (in("files") || in("tensors"))) || (depth() == 5 && in("tensors") && field_ == "pieces");
    if (!fits) return unexpected("an object");
    if (depth() == 3 && in("files")) index_.files.emplace_back(), seen_ = 0;
    if (depth() == 3 && in("tensors")) {
      index_.tensors.emplace_back().name = name_;
      seen_ = 0;
    }
    if (depth() == 5) {
      tensor().pieces.emplace_back();
      piece_seen_ = 0;
    }
    return true;
  }
  bool end_object() override {
    if (depth() == 3 && in("files") && seen_ != 31) fail({"a file lacks one of its fields"});
    if (depth() == 3 && in("tensors") && seen_ != 31) fail({"lacks one of its fields"}, tensor().name);
    if (depth() == 5 && piece_seen_ != 127) fail({"a piece lacks one of its fields"}, tensor().name);
    if (depth() == 1 && (top_seen_ & needed) != needed) fail({"it lacks one of its fields"});
    leave();
    return true;
  }
  bool start_array(std::size_t) override {
    enter();
    const bool fits = (depth() == 2 && (in("files") || in("loss_scale"))) ||
                      (depth() == 4 && in("tensors") && (field_ == "shape" || field_ == "pieces")) ||
                      (depth() == 6 && piece_field_ == "xxh3");
    if (!fits) return unexpected("an array");
    if (in("loss_scale")) index_.loss_scale.emplace(), scale_numbers_ = 0;
    return true;
  }
  bool end_array() override {
    if (in("loss_scale") && scale_numbers_ != 2) fail({"loss_scale is not two numbers"});
    leave();
    return true;
  }
  bool key(std::string& name) override {
    if (name.size() > longest_name) fail({"a key has ", name.size(), " bytes, more than ", longest_name});
    if (depth() == 1) {
      section_ = name;
      static constexpr std::string_view known[] = {
          "weft_checkpoint", "step",       "world", "seed",  "chunk_bytes", "files", "tensors", "checksum",
          "optimizer_steps", "loss_scale", "begun", "notes", "next_step"};
      once(top_seen_, bit_of(known, name), name);
    } else if (depth() == 2) {
      if (!names_.insert(section_ + '\0' + name).second) fail({"the key ", shown(name), " comes twice"});
      name_ = name;
    } else if (depth() == 3) {
      static constexpr std::string_view of_file[] = {"name", "bytes", "header_bytes", "header_xxh3", "xxh3"},
                                        of_tensor[] = {"kind", "type", "of", "shape", "pieces"};
      once(seen_, in("files") ? bit_of(of_file, name) : bit_of(of_tensor, name), name);
      field_ = name;
    } else {
      static constexpr std::string_view of_piece[] = {"file", "first", "run", "runs", "stride", "offset", "xxh3"};
      once(piece_seen_, bit_of(of_piece, name), name);
      piece_field_ = name;
    }
    return true;
  }
  bool number_unsigned(std::uint64_t value) override {
    if (depth() == 1) {
      if (in("weft_checkpoint")) {
        index_.version = value;
        if (value == 0 || value > Index::newest_version)
          fail({"is of version ", value, ", and this weft reads 1 to ", Index::newest_version, ": use a newer weft"});
      } else if (in("step")) index_.step = value;
      else if (in("world")) index_.world = value;
      else if (in("seed")) index_.seed = value;
      else if (in("chunk_bytes")) index_.chunk_bytes = value;
      else if (in("optimizer_steps")) index_.optimizer_steps = value;
      else if (in("next_step")) index_.next_step = value;
      else return unexpected("a number");
    } else if (depth() == 2 && in("loss_scale")) {
      if (scale_numbers_++ == 0) index_.loss_scale->value = double(value);
      else index_.loss_scale->good_steps = value;
    } else if (depth() == 2 && in("begun")) {
      index_.begun[name_] = value;
    } else if (depth() == 3 && in("files")) {
      if (field_ == "bytes") index_.files.back().bytes = value;
      else if (field_ == "header_bytes") index_.files.back().header_bytes = value;
      else return unexpected("a number");
    } else if (depth() == 4 && in("tensors") && field_ == "shape") {
      if (tensor().shape.size() == most_dims) fail({"has more than ", most_dims, " dims"}, tensor().name);
      tensor().shape.push_back(value);
    } else if (depth() == 5) {
      StoredPiece& piece = tensor().pieces.back();
      if (piece_field_ == "file") piece.file = value;
      else if (piece_field_ == "first") piece.block.first = value;
      else if (piece_field_ == "run") piece.block.run = value;
      else if (piece_field_ == "runs") piece.block.runs = value;
      else if (piece_field_ == "stride") piece.block.stride = value;
      else if (piece_field_ == "offset") piece.offset = value;
      else return unexpected("a number");
    } else {
      return unexpected("a number");
    }
    return true;
  }
  bool number_float(double value, const std::string& text) override {
    if (depth() != 2 || !in("loss_scale") || scale_numbers_++ != 0 || !std::isfinite(value))
      return JsonReader::number_float(value, text);
    index_.loss_scale->value = value;
    return true;
  }
  bool string(std::string& value) override {
    if (depth() == 1 && in("checksum")) return true;  // already verified
    if (depth() == 2 && in("notes")) {
      index_.notes[name_] = value;
    } else if (depth() == 3 && in("files")) {
      StoredFile& file = index_.files.back();
      if (field_ == "name") file.name = value;
      else if (field_ == "header_xxh3") file.header_checksum = checksum(value);
      else if (field_ == "xxh3") file.checksum = checksum(value);
      else return unexpected("a text");
    } else if (depth() == 3 && in("tensors")) {
      if (field_ == "kind") {
        tensor().kind = value;
      } else if (field_ == "type" || field_ == "of") {
        const auto type = stored_type(value);
        if (!type) fail({"its type is ", shown(value), ", which weft does not support"}, tensor().name);
        (field_ == "of" ? tensor().of : tensor().type) = *type;
      } else {
        return unexpected("a text");
      }
    } else if (depth() == 6) {
      tensor().pieces.back().checksums.push_back(checksum(value));
    } else {
      return unexpected("a text");
    }
    return true;
  }

 private:
  static constexpr unsigned needed = 255;  // the first eight of the known keys

  bool in(std::string_view section) const { return section_ == section; }
  LogicalTensor& tensor() { return index_.tensors.back(); }
  unsigned bit_of(std::span<const std::string_view> known, const std::string& name) const {
    for (std::size_t i = 0; i < known.size(); ++i)
      if (known[i] == name) return 1u << i;
    fail({"its JSON has a field ", shown(name), ", which this version of weft does not read"});
  }
  void once(unsigned& seen, unsigned bit, const std::string& name) const {
    if ((seen & bit) != 0) fail({"the key ", shown(name), " comes twice"});
    seen |= bit;
  }
  std::uint64_t checksum(const std::string& text) const {
    std::uint64_t value = 0;
    if (!from_hex(text, value)) fail({shown(text), " is no checksum of 16 digits"});
    return value;
  }

  Index& index_;
  std::string section_, name_, field_, piece_field_;
  std::unordered_set<std::string> names_;
  unsigned top_seen_ = 0, seen_ = 0, piece_seen_ = 0, scale_numbers_ = 0;
};

inline constexpr std::uint64_t most_runs = 1u << 24;  // limit for a tensor whose blocks no layout would produce
inline constexpr std::string_view checksum_key = ",\n\"checksum\":\"", checksum_end = "\"}\n";

/// Throws Error unless pieces and files are consistent: every piece is within its file, and each tensor is covered once.
inline void check_index(const std::string& path, const Index& index) {
  const auto fail = [&](const LogicalTensor& tensor, weft::detail::Words what) { refuse({path, tensor.name}, what); };
  if (index.chunk_bytes == 0 || index.chunk_bytes > (1u << 30) || index.chunk_bytes % 8 != 0)
    refuse({path}, {"chunk_bytes is ", index.chunk_bytes, ": a multiple of 8 up to 2^30 is meant"});
  for (const auto& [name, steps] : index.begun)
    if (steps > index.optimizer_steps.value_or(0))
      refuse({path, name}, {"its state is said to begin at step ", steps, " of ", index.optimizer_steps.value_or(0)});
  std::unordered_set<std::string> names;
  for (const StoredFile& file : index.files) {
    if (!plain_name(file.name)) refuse({path}, {"names a file ", shown(file.name), ": only plain names are allowed"});
    if (!names.insert(file.name).second) refuse({path}, {"names the file ", file.name, " twice"});
    if (file.header_bytes > file.bytes) refuse({path}, {"the header of ", file.name, " is longer than the file"});
  }
  for (const LogicalTensor& tensor : index.tensors) {
    const auto bytes = bytes_of(tensor.shape, tensor.type);
    if (!bytes) fail(tensor, {"its shape has more elements than a number holds"});
    const std::uint64_t size = size_of(tensor.type), elements = *bytes / size;
    std::vector<Strided> blocks;
    std::uint64_t sum = 0;
    for (const StoredPiece& piece : tensor.pieces) {
      const Strided& b = piece.block;
      if (piece.file >= index.files.size()) fail(tensor, {"a piece is in file ", piece.file, " of ", index.files.size()});
      const StoredFile& file = index.files[piece.file];
      // Each product is bounded by the number of elements before it is computed.
      const bool inside = b.run > 0 && b.runs > 0 && b.run <= elements && b.runs <= elements / b.run && b.stride >= b.run &&
                          b.first < elements && (b.runs == 1 || b.stride <= (elements - 1 - b.first) / (b.runs - 1)) &&
                          b.run <= elements - b.begin_of(b.runs - 1);
      if (!inside) fail(tensor, {"a piece does not lie inside its ", elements, " elements"});
      const std::uint64_t length = b.elements() * size;
      if (piece.offset < file.header_bytes || piece.offset > file.bytes || length > file.bytes - piece.offset)
        fail(tensor, {"a piece of ", length, " bytes at byte ", piece.offset, " does not lie inside ", file.name, ", which has ",
                      file.bytes});
      if (piece.checksums.size() != (length + index.chunk_bytes - 1) / index.chunk_bytes)
        fail(tensor, {"a piece of ", length, " bytes has ", piece.checksums.size(), " checksums, one for each ",
                      index.chunk_bytes, " bytes is meant"});
      blocks.push_back(b);
      sum = b.elements() > elements - sum ? elements + 1 : sum + b.elements();
      if (sum > elements) fail(tensor, {"its pieces overlap"});
    }
    const Cover covered = sum == elements ? cover(blocks, elements, most_runs) : Cover::wrong;
    if (covered == Cover::too_many_runs) fail(tensor, {"its pieces are of more than ", most_runs, " runs of no one stride"});
    if (covered != Cover::once) fail(tensor, {"its pieces overlap, or leave elements out"});
  }
}

}  // namespace detail

/// The text of index.json.
inline std::string index_text(const Index& index) {
  using weft::detail::append_to;
  const auto quoted = [](const std::string& text) { return detail::json_text(text); };
  std::string out;
  append_to(out, {"{\"weft_checkpoint\":", index.version, ",\n\"step\":", index.step, ",\n\"world\":", index.world,
                  ",\n\"seed\":", index.seed, ",\n\"chunk_bytes\":", index.chunk_bytes});
  if (index.optimizer_steps) append_to(out, {",\n\"optimizer_steps\":", *index.optimizer_steps});
  if (index.next_step) append_to(out, {",\n\"next_step\":", *index.next_step});
  if (index.loss_scale)
    append_to(out, {",\n\"loss_scale\":[", detail::number_text(index.loss_scale->value), ",", index.loss_scale->good_steps, "]"});
  const auto separator = [](std::size_t i) { return i == 0 ? "\n" : ",\n"; };
  std::size_t i = 0;
  out += ",\n\"begun\":{";
  for (const auto& [name, steps] : index.begun) append_to(out, {separator(i++), quoted(name), ":", steps});
  out += "},\n\"notes\":{";
  i = 0;
  for (const auto& [name, note] : index.notes) append_to(out, {separator(i++), quoted(name), ":", quoted(note)});
  out += "},\n\"files\":[";
  i = 0;
  for (const StoredFile& file : index.files)
    append_to(
        out, {separator(i++), "{\"name\":", quoted(file.name), ",\"bytes\":", file.bytes, ",\"header_bytes\":", file.header_bytes,
              ",\"header_xxh3\":\"", detail::hex(file.header_checksum), "\",\"xxh3\":\"", detail::hex(file.checksum), "\"}"});
  out += "],\n\"tensors\":{";
  i = 0;
  for (const LogicalTensor& tensor : index.tensors) {
    append_to(out, {separator(i++), quoted(tensor.name), ":{\"kind\":", quoted(tensor.kind), ",\"type\":\"", name_of(tensor.type),
                    "\",\"of\":\"", name_of(tensor.of), "\",\"shape\":["});
    for (std::size_t dim = 0; dim < tensor.shape.size(); ++dim) append_to(out, {dim ? "," : "", tensor.shape[dim]});
    out += "],\"pieces\":[";
    for (std::size_t p = 0; p < tensor.pieces.size(); ++p) {
      const StoredPiece& piece = tensor.pieces[p];
      append_to(
          out, {p ? "," : "", "{\"file\":", piece.file, ",\"first\":", piece.block.first, ",\"run\":", piece.block.run,
                ",\"runs\":", piece.block.runs, ",\"stride\":", piece.block.stride, ",\"offset\":", piece.offset, ",\"xxh3\":["});
      for (std::size_t c = 0; c < piece.checksums.size(); ++c)
        append_to(out, {c ? "," : "", "\"", detail::hex(piece.checksums[c]), "\""});
      out += "]}";
    }
    out += "]}";
  }
  out += "}";
  const std::string sum = detail::hex(detail::checksum_of(out.data(), out.size()));
  append_to(out, {detail::checksum_key, sum, detail::checksum_end});
  return out;
}

/// Parses an index; `path` is for messages. Throws Error unless its checksum matches and its contents are consistent.
inline Index parse_index(const std::string& path, std::string_view text) {
  using detail::refuse;
  constexpr std::size_t tail = detail::checksum_key.size() + 16 + detail::checksum_end.size();
  std::uint64_t sum = 0;
  if (text.size() < tail || !text.starts_with("{\"weft_checkpoint\":"))
    refuse({path, {}, 0}, {"is no index of a checkpoint (", text.size(), " bytes)"});
  const std::string_view last = text.substr(text.size() - tail), body = text.substr(0, text.size() - tail);
  if (!last.starts_with(detail::checksum_key) || !last.ends_with(detail::checksum_end) ||
      !detail::from_hex(last.substr(detail::checksum_key.size(), 16), sum))
    refuse({path, {}, body.size()}, {"does not end with its checksum: it is cut off or damaged"});
  if (const std::uint64_t found = detail::checksum_of(body.data(), body.size()); found != sum)
    refuse({path}, {"its checksum is ", detail::hex(found), ", and it says ", detail::hex(sum), ": it is damaged"});
  Index index;
  detail::IndexReader reader(path, index);
  detail::parse_json(reader, text);
  detail::check_index(path, index);
  std::sort(index.tensors.begin(), index.tensors.end(),
            [](const LogicalTensor& a, const LogicalTensor& b) { return a.name < b.name; });
  return index;
}

}  // namespace weft::checkpoint
