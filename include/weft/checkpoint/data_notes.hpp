// SPDX-License-Identifier: Apache-2.0
#pragma once
// The identity of a run's data in a checkpoint: the notes of its index that hold it, and the comparison with the data of the run
// that loads it. The file's name is stored for messages but not compared: a moved file is the same data.
//
//   if (const std::string other = checkpoint::data_difference(index, loader.identity()); !other.empty()) ...

#include <map>
#include <string>

#include <weft/checkpoint/error.hpp>
#include <weft/checkpoint/index.hpp>
#include <weft/core/data_identity.hpp>

namespace weft::checkpoint {

namespace detail {

inline constexpr const char* data_setting_note = "data.setting.";

inline void put_data(std::map<std::string, std::string>& notes, const DataIdentity& data) {
  notes["data.name"] = data.files_text();
  notes["data.bytes"] = std::to_string(data.bytes);
  notes["data.digest"] = data.digest_text();
  for (const auto& [name, value] : data.settings) notes[data_setting_note + name] = value;
}

inline std::string note_of(const Index& index, const std::string& name) {
  const auto at = index.notes.find(name);
  return at == index.notes.end() ? std::string() : at->second;
}

/// "a.txt (9 bytes, digest 0123456789abcdef)", of the checkpoint's run.
inline std::string stored_data(const Index& index) {
  return shown(note_of(index, "data.name")) + " (" + shown(note_of(index, "data.bytes")) + " bytes, digest " +
         shown(note_of(index, "data.digest")) + ")";
}

}  // namespace detail

/// The difference between a checkpoint's data and `data`, as the end of a message: "is of a run on a.txt (9 bytes, digest
/// 0123456789abcdef), and this one has b.txt (...)". Empty if there is none. A checkpoint without the identity of its data
/// differs. Settings that only one side has are not compared, since another version of weft may have written them.
inline std::string data_difference(const Index& index, const DataIdentity& data) {
  const std::string digest = detail::note_of(index, "data.digest");
  if (digest.empty()) return "does not name the data of its run (SaveOptions::data), and this one has " + data.text();
  if (digest != data.digest_text() || detail::note_of(index, "data.bytes") != std::to_string(data.bytes))
    return "is of a run on " + detail::stored_data(index) + ", and this one has " + data.text();
  for (const auto& [name, value] : data.settings)
    if (const std::string stored = detail::note_of(index, detail::data_setting_note + name); !stored.empty() && stored != value)
      return "is of a run whose data has " + name + " " + detail::shown(stored) + ", and this one has " + value;
  return "";
}

}  // namespace weft::checkpoint
