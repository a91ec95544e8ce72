// SPDX-License-Identifier: Apache-2.0
#pragma once
// A folder of checkpoints: step-00000010/ and its neighbours, each complete or absent, and `latest`, a hint. A checkpoint is
// written under a temporary name and renamed once all of it is on the disk. A removed checkpoint is renamed first.
//
//   for (const checkpoint::Entry& entry : checkpoint::list("run")) std::cout << entry.step << ' ' << entry.path << '\n';

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <weft/checkpoint/error.hpp>
#include <weft/checkpoint/file_system.hpp>
#include <weft/checkpoint/index.hpp>

namespace weft::checkpoint {

/// A checkpoint in a folder. It has an index, which may still be damaged.
struct Entry {
  std::uint64_t step = 0;
  std::string path;
};

namespace detail {

inline constexpr const char* index_name = "index.json";

inline std::string in_folder(const std::string& folder, std::string_view name) {
  std::string path = folder.empty() ? "." : folder;
  if (path.back() != '/') path += '/';
  return path += name;
}
inline std::string name_of_step(std::uint64_t step) {
  std::string digits = std::to_string(step);
  if (digits.size() < 8) digits.insert(0, 8 - digits.size(), '0');
  return "step-" + digits;
}
/// False for every other name.
inline bool step_of(std::string_view name, std::uint64_t& step) {
  if (!name.starts_with("step-")) return false;
  name.remove_prefix(5);
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), step);
  return error == std::errc() && end == name.data() + name.size();
}
/// False if the name does not exist. Throws Error if that cannot be determined, for example without permission: a run that
/// treated such a folder as empty would start from the beginning.
inline bool is_there(const std::string& path) { return found_at(path) != Found::nothing; }
inline std::string rank_file(int rank) {
  std::string digits = std::to_string(rank);
  if (digits.size() < 5) digits.insert(0, 5 - digits.size(), '0');
  return "rank-" + digits + ".safetensors";
}
inline std::string nonce() {
  std::random_device device;
  return hex(std::uint64_t(device()) << 32 | device());
}

/// The whole text of a file of at most largest_header bytes.
inline std::string text_of(FileSystem& system, const std::string& path) {
  const File file = File::open(system, path);
  if (file.length() > largest_header) refuse({path}, {"has ", file.length(), " bytes, more than ", largest_header});
  std::string text(file.length(), '\0');
  file.read(text.data(), text.size(), 0);
  return text;
}

/// True if a save writes a file of this name into a checkpoint.
inline bool is_of_checkpoint(std::string_view name) {
  if (name == index_name) return true;
  if (!name.starts_with("rank-") || !name.ends_with(".safetensors")) return false;
  name.remove_prefix(5);
  name.remove_suffix(12);
  return !name.empty() && name.find_first_not_of("0123456789") == name.npos;
}
/// The first file of a folder that was not written by a save; empty if there is none.
inline std::string foreign_file(const std::string& path) {
  for (std::string& name : names_in(path))
    if (!is_of_checkpoint(name)) return std::move(name);
  return {};
}

/// Removes an unfinished checkpoint's folder, with the files that a save has written. Foreign files stay, and the folder with
/// them; a link is not followed. Returns the first errno; 0: the folder is gone, or holds only foreign files.
inline int remove_leftover(FileSystem& system, const std::string& path) {
  const int folder = uninterrupted([&] { return system.open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0); });
  if (folder < 0) return errno;
  std::vector<std::string> names;
  int first = read_names(::fdopendir(::dup(folder)), names);
  bool foreign = false;
  for (const std::string& name : names) {
    foreign = foreign || !is_of_checkpoint(name);
    if (!is_of_checkpoint(name)) continue;
    if (uninterrupted([&] { return system.remove_file(folder, name.c_str()); }) != 0 && first == 0) first = errno;
  }
  system.close(folder);
  if (!foreign && remove_folder(system, path) != 0 && first == 0) first = errno;
  return first;
}

/// Leftovers of interrupted saves and removals: the name of a checkpoint or `latest`, and a nonce.
inline bool is_leftover(std::string_view name) {
  const std::size_t dot = name.find(".tmp-");
  std::uint64_t step = 0;
  return dot != name.npos && from_hex(name.substr(dot + 5), step) &&
         (step_of(name.substr(0, dot), step) || name.substr(0, dot) == "latest");
}
inline void remove_leftovers(FileSystem& system, const std::string& folder) {
  for (const std::string& name : names_in(folder)) {
    if (!is_leftover(name)) continue;
    const std::string path = in_folder(folder, name);
    const Found found = found_at(path);
    if (found == Found::folder) remove_leftover(system, path);
    if (found == Found::file) remove_file(system, path);
  }
}

/// The names step-N in a folder, sorted by step: complete checkpoints, and the others.
struct Steps {
  std::vector<Entry> complete, others;
};
inline Steps steps_in(const std::string& folder) {
  Steps steps;
  for (const std::string& name : names_in(folder)) {
    std::uint64_t step = 0;
    const std::string path = in_folder(folder, name);
    if (!step_of(name, step)) continue;
    (leads_to_folder(path) && is_there(in_folder(path, index_name)) ? steps.complete : steps.others).push_back({step, path});
  }
  for (std::vector<Entry>* entries : {&steps.complete, &steps.others})
    std::sort(entries->begin(), entries->end(), [](const Entry& a, const Entry& b) { return a.step < b.step; });
  return steps;
}

/// Throws Error for a name step-N that is no checkpoint. Returns if another process has just removed it.
inline void refuse_step(const std::string& path) {
  switch (found_at(path)) {
    case Found::nothing: return;
    case Found::folder:
      refuse({path}, {"is no whole checkpoint: it has no ", index_name, "; complete the copy, or move it away"});
    case Found::link:
      refuse({path}, {"is a link that leads to no checkpoint: bring back the folder to which it points, or remove the link"});
    default: refuse({path}, {"has the name of a checkpoint and is no folder: move it away"});
  }
}

/// The checkpoint to read: the one that `latest` names, otherwise the newest. Links to checkpoints are followed. Throws Error if
/// a newer name is no checkpoint: a run that continued from an older one, or from the beginning, would later replace it.
inline std::optional<Entry> newest(const std::string& folder, FileSystem& system) {
  const Steps steps = steps_in(folder);
  std::string hint;
  try {
    hint = text_of(system, in_folder(folder, "latest"));
  } catch (const Error&) {  // an unreadable hint is ignored
  }
  while (!hint.empty() && hint.back() == '\n') hint.pop_back();
  for (const Entry& entry : steps.complete)
    if (entry.path == in_folder(folder, hint)) return entry;
  if (!steps.others.empty() && (steps.complete.empty() || steps.others.back().step > steps.complete.back().step))
    refuse_step(steps.others.back().path);
  return steps.complete.empty() ? std::nullopt : std::optional(steps.complete.back());
}

}  // namespace detail

/// The checkpoints in a folder, oldest first, including links to checkpoints. Empty if the folder does not exist or holds none.
/// Throws Error if it cannot be read.
inline std::vector<Entry> list(const std::string& folder) { return detail::steps_in(folder).complete; }

/// The checkpoint to load: `folder` itself if it is one, otherwise the one that `latest` names, otherwise the newest in it.
/// Throws Error if there is none.
inline std::string find(const std::string& folder, FileSystem& system = FileSystem::system()) {
  if (detail::is_there(detail::in_folder(folder, detail::index_name))) return folder;
  if (const std::optional<Entry> entry = detail::newest(folder, system)) return entry->path;
  detail::refuse({folder}, {detail::leads_to_folder(folder) ? "holds no checkpoint (step-NNNNNNNN/index.json)" : "is no folder"});
}

/// True if there is a checkpoint to load. Throws Error if that cannot be determined.
inline bool exists(const std::string& folder) {
  return detail::is_there(detail::in_folder(folder, detail::index_name)) ||
         detail::newest(folder, FileSystem::system()).has_value();
}

/// Calls f with the path of the checkpoint to load. If f throws Error because a running program has meanwhile replaced the
/// checkpoint (SaveOptions::keep), calls f again with the newest one.
template <class F>
auto with_newest(const std::string& folder, F&& f, FileSystem& system = FileSystem::system()) {
  for (int left = 8;; --left) {
    const std::string path = find(folder, system);
    try {
      return f(path);
    } catch (const Error&) {
      if (left == 0 || find(folder, system) == path) throw;
    }
  }
}

/// The index of the checkpoint at `path`. Throws Error if it is damaged.
inline Index read_index(const std::string& path, FileSystem& system = FileSystem::system()) {
  const std::string file = detail::in_folder(path, detail::index_name);
  return parse_index(file, detail::text_of(system, file));
}

}  // namespace weft::checkpoint
