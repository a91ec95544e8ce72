// SPDX-License-Identifier: Apache-2.0
#pragma once
// The commit of a checkpoint by rank 0: a temporary folder for the ranks' files, the index, the rename that makes the checkpoint
// visible, and the removal of older checkpoints.
//
//   detail::Commit commit(system, "run", 10, detail::nonce());
//   commit.publish(index);
//   commit.keep({.newest = 3});

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <weft/checkpoint/file_system.hpp>
#include <weft/checkpoint/folder.hpp>
#include <weft/checkpoint/folder_lock.hpp>
#include <weft/checkpoint/index.hpp>

namespace weft::checkpoint {

/// A checkpoint that was saved with a validation loss.
struct BestEntry {
  Entry entry;
  double validation_loss = 0;
};

namespace detail {

inline constexpr const char* loss_note = "validation_loss";

/// The validation loss with which a checkpoint was saved; nothing if there is none, or the index cannot be read.
inline std::optional<double> validation_loss_of(const std::string& path, FileSystem& system) {
  try {
    const Index index = read_index(path, system);
    const auto at = index.notes.find(loss_note);
    if (at == index.notes.end()) return std::nullopt;
    double loss = 0;
    const char* const end = at->second.data() + at->second.size();
    const auto [read, error] = std::from_chars(at->second.data(), end, loss);
    if (error == std::errc() && read == end && std::isfinite(loss)) return loss;
  } catch (const Error&) {}
  return std::nullopt;
}
/// The `entries` that were saved with a validation loss, the lowest first; of equal ones the older.
inline std::vector<BestEntry> by_loss(const std::vector<Entry>& entries, FileSystem& system) {
  std::vector<BestEntry> scored;
  for (const Entry& entry : entries)
    if (const auto loss = validation_loss_of(entry.path, system)) scored.push_back({entry, *loss});
  std::stable_sort(scored.begin(), scored.end(),
                   [](const BestEntry& a, const BestEntry& b) { return a.validation_loss < b.validation_loss; });
  return scored;
}

/// The checkpoints to keep: the newest, and those with the lowest validation losses. newest == 0: all.
struct Stays {
  std::size_t newest = 0, best = 0;
};

class Commit {
 public:
  /// Makes the temporary folder. Throws Error if another process, or another save of this one, writes into `folder`, or if an
  /// existing name would collide with the save. Nothing is removed in that case.
  Commit(FileSystem& system, std::string folder, std::uint64_t step, const std::string& nonce)
      : system_(&system), folder_(std::move(folder)), step_(step), nonce_(nonce), saving_(FolderLock::take(system, folder_)) {
    require_names();
    remove_leftovers(*system_, folder_);
    if (make_folder(*system_, place(folder_, step_, nonce_)) != 0)
      refuse_call({place(folder_, step_, nonce_)}, "cannot be made", errno);
  }
  static std::string place(const std::string& folder, std::uint64_t step, const std::string& nonce) {
    return in_folder(folder, name_of_step(step) + ".tmp-" + nonce);
  }
  const std::shared_ptr<FolderLock>& lock() const { return saving_.lock(); }

  /// Makes the checkpoint visible. All ranks' files must be on the disk.
  void publish(const Index& index) {
    const std::string here = place(folder_, step_, nonce_), there = in_folder(folder_, name_of_step(step_));
    const std::string text = index_text(index);
    if (text.size() > largest_header)
      refuse({in_folder(here, index_name)}, {"would have ", text.size(), " bytes, more than ", largest_header});
    write(in_folder(here, index_name), text);
    sync_folder(*system_, here);
    require_place();  // checked again, since hours may have passed
    if (is_there(there)) {
      if (uninterrupted([&] { return system_->exchange(here.c_str(), there.c_str()); }) != 0)
        refuse_call({there}, "is there already and cannot be exchanged for the new one", errno);
      sync_folder(*system_, folder_);
      remove_leftover(*system_, here);
    } else {
      if (rename(*system_, here, there) != 0) refuse_call({there}, "cannot be named so", errno);
      sync_folder(*system_, folder_);
    }
    committed_ = true;
    const std::string latest = in_folder(folder_, "latest"), next = latest + ".tmp-" + nonce_;
    write(next, name_of_step(step_) + "\n");
    if (rename(*system_, next, latest) != 0) refuse_call({latest}, "cannot be replaced", errno);
    sync_folder(*system_, folder_);
  }
  /// Removes older checkpoints that are not to be kept. Links, and folders that contain foreign files, stay.
  void keep(const Stays& kept) {
    if (kept.newest == 0) return;
    std::vector<Entry> entries = list(folder_);
    std::erase_if(entries, [&](const Entry& entry) { return entry.step > step_; });
    if (entries.size() <= kept.newest) return;
    std::set<std::string> best;
    if (kept.best != 0)
      for (const BestEntry& one : by_loss(entries, *system_))
        if (best.size() < kept.best) best.insert(one.entry.path);
    for (std::size_t i = 0; entries.size() > i + kept.newest; ++i) {  // nvcc parses newest < as a template
      const std::string& path = entries[i].path;
      if (best.contains(path) || found_at(path) != Found::folder || !foreign_file(path).empty()) continue;
      const std::string old = path + ".tmp-" + nonce_;
      const int failed = rename(*system_, path, old) != 0 ? errno : remove_leftover(*system_, old);
      if (failed != 0)
        refuse_call({path}, "cannot be removed, which is older than those to keep; the new checkpoint is complete", failed);
    }
  }
  ~Commit() {
    if (!committed_) remove_leftover(*system_, place(folder_, step_, nonce_));
  }
  Commit(const Commit&) = delete;
  Commit& operator=(const Commit&) = delete;

 private:
  /// Throws Error for names that this save, or a later reader, would mistake for its own.
  void require_names() const {
    for (const Entry& entry : steps_in(folder_).others)
      if (entry.path != in_folder(folder_, name_of_step(step_)) || found_at(entry.path) != Found::folder) refuse_step(entry.path);
    require_place();
    const std::string latest = in_folder(folder_, "latest");
    if (const Found found = found_at(latest); found == Found::folder || found == Found::other)
      refuse({latest}, {"is no plain file: a save would write over it; move it away"});
  }
  void require_place() const {
    const std::string there = in_folder(folder_, name_of_step(step_));
    const Found found = found_at(there);
    if (found == Found::nothing) return;
    if (found == Found::link)
      refuse({there},
             {"is a link, and a save does not write over the folder to which it points: remove the link, or save another step"});
    if (found != Found::folder) refuse_step(there);
    if (const std::string name = foreign_file(there); !name.empty())
      refuse({there}, {"holds ", shown(name), ", which no save has written, and would be replaced: move it away"});
  }
  void write(const std::string& path, const std::string& text) {
    File file = File::make(*system_, path);
    file.write(text.data(), text.size());
    file.finish();
  }

  FileSystem* system_;
  std::string folder_;
  std::uint64_t step_;
  std::string nonce_;
  Saving saving_;
  bool committed_ = false;
};

}  // namespace detail

/// The checkpoint with the lowest validation loss (SaveOptions::validation_loss); empty if none was saved with one. Throws Error
/// if the folder cannot be read.
inline std::optional<BestEntry> best(const std::string& folder, FileSystem& system = FileSystem::system()) {
  const std::vector<BestEntry> scored = detail::by_loss(list(folder), system);
  return scored.empty() ? std::nullopt : std::optional(scored.front());
}

}  // namespace weft::checkpoint
