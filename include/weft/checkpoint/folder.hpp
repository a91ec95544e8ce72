// SPDX-License-Identifier: Apache-2.0
#pragma once
// A folder of checkpoints: step-00000010/ and its neighbours, each complete or not there, and `latest`, a hint. A checkpoint is
// written under another name and renamed when all of it is on the disk; one that is removed is renamed first.
//
//   for (const checkpoint::Entry& entry : checkpoint::list("run")) std::cout << entry.step << ' ' << entry.path << '\n';

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <random>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <weft/checkpoint/error.hpp>
#include <weft/checkpoint/file_system.hpp>
#include <weft/checkpoint/index.hpp>

namespace weft::checkpoint {

/// A checkpoint in a folder; it has an index, which may still be damaged.
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
/// False if nothing has this name. Throws Error if that cannot be known, as in a folder without permission: a run that took such
/// a folder for an empty one would start anew.
inline bool is_there(const std::string& path) {
  struct stat status = {};
  if (::lstat(path.c_str(), &status) == 0) return true;
  if (errno != ENOENT) refuse_call({path}, "cannot be looked at", errno);
  return false;
}
inline bool is_folder(const std::string& path) {
  struct stat status = {};
  return ::lstat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}
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

/// Makes a folder that is not there, and what it lies in. Throws Error.
inline void make_folders(FileSystem& system, const std::string& folder) {
  if (is_folder(folder)) return;
  std::string name = folder;
  while (name.size() > 1 && name.back() == '/') name.pop_back();
  const std::string parent = std::filesystem::path(name).lexically_normal().parent_path().string();
  if (!parent.empty() && parent != name && !is_there(parent)) make_folders(system, parent);
  if (system.make_folder(name.c_str(), 0700) != 0 && errno != EEXIST) refuse_call({folder}, "cannot be made", errno);
  sync_folder(system, parent.empty() ? "." : parent);
}

/// Removes a folder of plain files that no reader takes for a checkpoint; what cannot be removed stays. The first errno; 0: gone.
inline int remove_leftover(FileSystem& system, const std::string& path) {
  std::vector<std::string> names;
  int first = read_names(path, names);
  for (const std::string& name : names)
    if (system.remove_file(in_folder(path, name).c_str()) != 0 && first == 0) first = errno;
  if (system.remove_folder(path.c_str()) != 0 && first == 0) first = errno;
  return first;
}

/// Leftovers of saves and removals that were ended in their middle.
inline bool is_leftover(std::string_view name) {
  const std::size_t dot = name.find(".tmp-");
  std::uint64_t step = 0;
  return dot != name.npos && (step_of(name.substr(0, dot), step) || name.substr(0, dot) == "latest");
}

}  // namespace detail

/// The checkpoints in a folder, oldest first. None: the folder is not there, or holds none. Throws Error if it cannot be read.
inline std::vector<Entry> list(const std::string& folder) {
  std::vector<Entry> entries;
  for (const std::string& name : detail::names_in(folder)) {
    std::uint64_t step = 0;
    const std::string path = detail::in_folder(folder, name);
    if (detail::step_of(name, step) && detail::is_folder(path) && detail::is_there(detail::in_folder(path, detail::index_name)))
      entries.push_back({step, path});
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.step < b.step; });
  return entries;
}

/// The checkpoint to load: `folder` itself if it is one, else the one that its `latest` names, else its newest. Throws Error if
/// there is none.
inline std::string find(const std::string& folder, FileSystem& system = FileSystem::system()) {
  if (detail::is_there(detail::in_folder(folder, detail::index_name))) return folder;
  const std::vector<Entry> entries = list(folder);
  if (entries.empty())
    detail::refuse({folder}, {detail::is_folder(folder) ? "holds no checkpoint (step-NNNNNNNN/index.json)" : "is no folder"});
  std::string hint;
  try {
    hint = detail::text_of(system, detail::in_folder(folder, "latest"));
  } catch (const Error&) {  // a hint that cannot be read is none
  }
  while (!hint.empty() && hint.back() == '\n') hint.pop_back();
  for (const Entry& entry : entries)
    if (entry.path == detail::in_folder(folder, hint)) return entry.path;
  return entries.back().path;
}

/// Whether there is a checkpoint to load. Throws Error if that cannot be known.
inline bool exists(const std::string& folder) {
  return detail::is_there(detail::in_folder(folder, detail::index_name)) || !list(folder).empty();
}

/// The index of the checkpoint at `path`. Throws Error if it is damaged.
inline Index read_index(const std::string& path, FileSystem& system = FileSystem::system()) {
  const std::string file = detail::in_folder(path, detail::index_name);
  return parse_index(file, detail::text_of(system, file));
}

namespace detail {

/// The commit of a checkpoint by rank 0: rules 5 and 6 of what a crash may not harm.
class Commit {
 public:
  /// Makes the folder to write into.
  Commit(FileSystem& system, std::string folder, std::uint64_t step, const std::string& nonce)
      : system_(&system), folder_(std::move(folder)), step_(step), nonce_(nonce) {
    make_folders(*system_, folder_);
    for (const std::string& name : names_in(folder_))
      if (is_leftover(name)) {
        const std::string path = in_folder(folder_, name);
        if (is_folder(path)) remove_leftover(*system_, path);
        else system_->remove_file(path.c_str());
      }
    if (system_->make_folder(place(folder_, step_, nonce_).c_str(), 0700) != 0)
      refuse_call({place(folder_, step_, nonce_)}, "cannot be made", errno);
  }
  static std::string place(const std::string& folder, std::uint64_t step, const std::string& nonce) {
    return in_folder(folder, name_of_step(step) + ".tmp-" + nonce);
  }

  /// All ranks' files are on the disk: makes the checkpoint one.
  void finish(const Index& index) {
    const std::string here = place(folder_, step_, nonce_), there = in_folder(folder_, name_of_step(step_));
    const std::string text = index_text(index);
    if (text.size() > largest_header)
      refuse({in_folder(here, index_name)}, {"would have ", text.size(), " bytes, more than ", largest_header});
    write(in_folder(here, index_name), text);
    sync_folder(*system_, here);
    if (is_there(there)) {
      if (system_->exchange(here.c_str(), there.c_str()) != 0)
        refuse_call({there}, "is there already and cannot be exchanged for the new one", errno);
      sync_folder(*system_, folder_);
      remove_leftover(*system_, here);
    } else {
      if (system_->rename(here.c_str(), there.c_str()) != 0) refuse_call({there}, "cannot be named so", errno);
      sync_folder(*system_, folder_);
    }
    committed_ = true;
    const std::string latest = in_folder(folder_, "latest"), next = latest + ".tmp-" + nonce_;
    write(next, name_of_step(step_) + "\n");
    if (system_->rename(next.c_str(), latest.c_str()) != 0) refuse_call({latest}, "cannot be replaced", errno);
    sync_folder(*system_, folder_);
  }
  /// Removes all but the last `keep` checkpoints up to this one.
  void keep(std::size_t count) {
    if (count == 0) return;
    std::vector<Entry> entries = list(folder_);
    std::erase_if(entries, [&](const Entry& entry) { return entry.step > step_; });
    for (std::size_t i = 0; i + count < entries.size(); ++i) {
      const std::string old = entries[i].path + ".tmp-" + nonce_;
      const int failed = system_->rename(entries[i].path.c_str(), old.c_str()) != 0 ? errno : remove_leftover(*system_, old);
      if (failed != 0)
        refuse_call({entries[i].path}, "cannot be removed, which is older than those to keep; the new checkpoint is complete",
                    failed);
    }
  }
  ~Commit() {
    if (!committed_) remove_leftover(*system_, place(folder_, step_, nonce_));
  }
  Commit(const Commit&) = delete;
  Commit& operator=(const Commit&) = delete;

 private:
  void write(const std::string& path, const std::string& text) {
    File file = File::make(*system_, path);
    file.write(text.data(), text.size());
    file.finish();
  }

  FileSystem* system_;
  std::string folder_;
  std::uint64_t step_;
  std::string nonce_;
  bool committed_ = false;
};

}  // namespace detail

}  // namespace weft::checkpoint
