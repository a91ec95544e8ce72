// SPDX-License-Identifier: Apache-2.0
#pragma once
// A folder of pictures in one sub-folder for each class, as torchvision's ImageFolder: classes are numbered in the order of their
// names, and pictures are in the sub-folder at any depth. Datasets for training and for evaluation decode them for
// data::Loader.
//
//   const ImageFolder folder("imagenet/train", "--train");
//   for (auto&& batch : data::Loader(mesh, TrainingImages{folder, {.size = 224}, seed}, {.global_batch = 256, .threads = 4})) ...

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <weft/core/data_identity.hpp>
#include <weft/core/error.hpp>
#include <weft/core/text.hpp>
#include <weft/data/loader.hpp>

#include "picture.hpp"
#include "resnet.hpp"
#include "transforms.hpp"

namespace imagenet {

class ImageFolder {
 public:
  /// Lists the pictures below `folder`. `option` begins an error's text. Throws UsageError for a folder that cannot be read, has
  /// no class folders, or a class without pictures, and for a picture in another format than JPEG and PNG.
  ImageFolder(std::string folder, std::string option) : folder_(std::move(folder)), option_(std::move(option)) {
    namespace fs = std::filesystem;
    std::error_code error;
    if (!fs::is_directory(folder_, error))
      refuse(folder_, "there is no such folder", "name a folder with one sub-folder for each class");
    for (const auto& entry : entries(folder_))
      if (entry.is_directory(error)) classes_.push_back(entry.path().filename().string());
    if (classes_.empty())
      refuse(folder_, "it has no sub-folders", "put the pictures of each class into a sub-folder of its name");
    std::sort(classes_.begin(), classes_.end());
    for (std::size_t number = 0; number < classes_.size(); ++number) {
      const std::size_t before = pictures_.size();
      list(classes_[number], std::int32_t(number), 0);
      if (pictures_.size() == before)
        refuse(folder_ + "/" + classes_[number], "this class has no picture",
               "add .jpg, .jpeg or .png files, or remove the folder");
    }
  }

  std::size_t size() const { return pictures_.size(); }
  const std::vector<std::string>& classes() const { return classes_; }
  const std::string& folder() const { return folder_; }
  std::string file(std::size_t i) const { return folder_ + "/" + pictures_[i].name; }
  std::int32_t label(std::size_t i) const { return pictures_[i].label; }

  /// The digest of the names, not of the pictures' bytes, which would all be read.
  DataIdentity identity() const {
    std::string names;
    for (const Entry& picture : pictures_) names += picture.name + '\n';
    DataIdentity identity(folder_, names.data(), names.size());
    identity.files = pictures_.size();
    return identity;
  }

  /// Throws UsageError unless the classes of both folders are equal.
  static void require_same_classes(const ImageFolder& a, const ImageFolder& b) {
    for (const auto& [one, other] : {std::pair(&a, &b), std::pair(&b, &a)})
      for (const std::string& name : one->classes_)
        if (!std::binary_search(other->classes_.begin(), other->classes_.end(), name))
          throw_error<UsageError>({"imagenet: ", one->option_, " ", weft::detail::shown(one->folder_, 300), " has the class '",
                                   weft::detail::shown(name), "', and ", other->option_, " ",
                                   weft::detail::shown(other->folder_, 300), " has not (", one->classes_.size(), " and ",
                                   other->classes_.size(),
                                   " classes): both need the same sub-folders, since their order numbers the classes"});
  }

 private:
  struct Entry {
    std::string name;  // relative to the folder
    std::int32_t label;
  };

  [[noreturn]] void refuse(const std::string& place, std::string_view reason, std::string_view remedy) const {
    throw_error<UsageError>({"imagenet: ", option_, ": '", weft::detail::shown(place, 300), "': ", reason, "; ", remedy});
  }
  std::vector<std::filesystem::directory_entry> entries(const std::string& place) const {
    std::vector<std::filesystem::directory_entry> all;
    std::error_code error;
    for (std::filesystem::directory_iterator at(place, error), end; !error && at != end; at.increment(error)) all.push_back(*at);
    if (error) refuse(place, error.message(), "make it readable");
    return all;
  }
  // torchvision's order: folders by their path, then the files of each by name.
  void list(const std::string& place, std::int32_t label, int depth) {
    std::vector<std::string> folders{place};
    walk(place, depth, folders);
    std::sort(folders.begin(), folders.end());
    for (const std::string& folder : folders) {
      std::vector<std::string> names;
      for (const auto& entry : entries(folder_ + "/" + folder)) {
        std::error_code error;
        const std::string name = entry.path().filename().string();
        if (is_picture(folder, name) && !entry.is_directory(error)) names.push_back(name);
      }
      std::sort(names.begin(), names.end());
      for (const std::string& name : names) pictures_.push_back({folder + "/" + name, label});
    }
  }
  void walk(const std::string& place, int depth, std::vector<std::string>& folders) {
    if (depth > 64) refuse(folder_ + "/" + place, "folders are nested more than 64 deep", "remove links that lead back");
    for (const auto& entry : entries(folder_ + "/" + place)) {
      std::error_code error;
      if (!entry.is_directory(error)) continue;
      folders.push_back(place + "/" + entry.path().filename().string());
      walk(std::string(folders.back()), depth + 1, folders);
    }
  }
  bool is_picture(const std::string& folder, const std::string& name) const {
    std::string end = std::filesystem::path(name).extension().string();
    std::transform(end.begin(), end.end(), end.begin(), [](unsigned char c) { return char(std::tolower(c)); });
    if (end == ".jpg" || end == ".jpeg" || end == ".png") return true;
    for (const char* other : {".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp"})  // torchvision reads them
      if (end == other)
        refuse(folder_ + "/" + folder + "/" + name, "pictures are JPEG or PNG", "convert it, or move it out of the folder");
    return false;
  }

  std::string folder_, option_;
  std::vector<std::string> classes_;
  std::vector<Entry> pictures_;
};

/// The part that both datasets share: pictures of one size, read from a folder.
struct Pictures {
  using Fields = Images;
  std::shared_ptr<const ImageFolder> folder;
  TransformOptions transform;
  DecodeOptions decode;
  int rank = 0;  ///< for errors, since its disk may differ from others'

  void shapes(Fields::Shapes& shapes) const { shapes[image] = {3, transform.size, transform.size}; }
  Picture read(std::size_t index) const {
    try {
      return read_picture(folder->file(index), decode);
    } catch (const UsageError& error) {
      std::string_view text = error.what();
      if (text.starts_with("weft: ")) text.remove_prefix(6);
      throw_error<UsageError>({"rank ", rank, " ", text});
    }
  }
};

/// Randomly cropped, flipped and coloured pictures.
struct TrainingImages : Pictures {
  std::uint64_t seed = 1;

  std::size_t size() const { return folder->size(); }
  void load(std::size_t index, Fields::Sample& sample, std::uint64_t epoch) const {
    normalise(augmented(read(index), transform, seed, epoch, index), sample[image]);
    sample[label][0] = folder->label(index);
  }
  DataIdentity identity() const {
    DataIdentity identity = folder->identity();
    identity.set("size", double(transform.size));
    identity.set("colour-jitter", transform.colour_jitter);
    identity.set("hue", transform.hue);
    return identity;
  }
};

/// The middle of each picture. The dataset is as long as a multiple of `ranks`, so that they can share it: the samples after the
/// last picture are zeros, which the program does not count.
struct EvaluationImages : Pictures {
  std::size_t ranks = 1;

  std::size_t size() const { return (folder->size() + ranks - 1) / ranks * ranks; }
  void load(std::size_t index, Fields::Sample& sample) const {
    const bool is_there = index < folder->size();
    if (is_there) normalise(centred(read(index), transform), sample[image]);
    else std::fill(sample[image].begin(), sample[image].end(), 0.0f);
    sample[label][0] = is_there ? folder->label(index) : 0;
  }
};

}  // namespace imagenet
