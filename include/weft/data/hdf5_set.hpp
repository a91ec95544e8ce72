// SPDX-License-Identifier: Apache-2.0
#pragma once
// HDF5 files and their sets (datasets), [samples, ...] of plain numbers, read a sample at a time: of a set larger than memory a
// rank reads only its samples, and only its piece of each.
//
//   const data::Hdf5 file = data::Hdf5::open("run.h5");
//   const data::Hdf5Set u = file["flow/u"];        // [samples, channels, x, y]
//   u.piece(2, 64, 32).read(sample, values);       // [channels, 32, y]
//
// Calls of several threads follow each other. An HDF5 library that is not thread-safe (libhdf5_openmpi of Debian) requires also
// that the program makes no HDF5 call of its own meanwhile: LoaderOptions::ahead = 0 loads in the thread of the rank.

#include <hdf5.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <weft/core/data_identity.hpp>
#include <weft/core/text.hpp>
#include <weft/data/file_bytes.hpp>
#include <weft/tensor/shape.hpp>

namespace weft::data {

namespace detail {

/// One HDF5 call at a time, without HDF5's prints to standard error.
class Hdf5Call {
 public:
  Hdf5Call() {
    H5Eget_auto2(H5E_DEFAULT, &print_, &argument_);
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  }
  Hdf5Call(const Hdf5Call&) = delete;
  Hdf5Call& operator=(const Hdf5Call&) = delete;
  ~Hdf5Call() { H5Eset_auto2(H5E_DEFAULT, print_, argument_); }

  /// The innermost reason of the last failed call.
  std::string reason() const {
    std::string text;
    H5Ewalk2(
        H5E_DEFAULT, H5E_WALK_UPWARD,
        [](unsigned, const H5E_error2_t* error, void* out) {
          std::string& first = *static_cast<std::string*>(out);
          if (first.empty() && error->desc != nullptr) first = weft::detail::shown(error->desc, 200);
          return herr_t(0);
        },
        &text);
    return text.empty() ? "the HDF5 library gives no reason" : text;
  }

 private:
  static std::recursive_mutex& mutex() {
    static std::recursive_mutex one;
    return one;
  }

  std::lock_guard<std::recursive_mutex> lock_{mutex()};
  H5E_auto2_t print_ = nullptr;
  void* argument_ = nullptr;
};

/// An identifier of HDF5, closed once.
class Hdf5Id {
 public:
  Hdf5Id() = default;
  Hdf5Id(hid_t id, herr_t (*close)(hid_t)) : id_(id), close_(close) {}
  Hdf5Id(Hdf5Id&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
  Hdf5Id& operator=(Hdf5Id&& other) noexcept {
    std::swap(id_, other.id_);
    std::swap(close_, other.close_);
    return *this;
  }
  ~Hdf5Id() {
    if (id_ < 0) return;
    const Hdf5Call call;
    close_(id_);
  }
  operator hid_t() const { return id_; }

 private:
  hid_t id_ = -1;
  herr_t (*close_)(hid_t) = nullptr;
};

/// The type of the elements of a set, in memory in this computer's byte order; kind 0 if it is not of plain numbers.
inline ElementType hdf5_element_type(hid_t file_type, hid_t memory_type) {
  const std::size_t size = H5Tget_size(file_type);
  const bool whole = size <= 8 && (size & (size - 1)) == 0;
  switch (H5Tget_class(file_type)) {
    case H5T_INTEGER:
      if (!whole || H5Tget_precision(file_type) != 8 * size) return {};
      return {H5Tget_sign(file_type) == H5T_SGN_NONE ? 'u' : 'i', size};
    case H5T_ENUM:  // h5py's bool is an enumeration of int8 with two members
      return size == 1 && H5Tget_nmembers(file_type) == 2 ? ElementType{'b', 1} : ElementType{};
    case H5T_FLOAT: {
      if (H5Tequal(memory_type, H5T_NATIVE_FLOAT) > 0 || H5Tequal(memory_type, H5T_NATIVE_DOUBLE) > 0) return {'f', size};
      std::size_t sign = 0, exponent = 0, exponent_bits = 0, fraction = 0, fraction_bits = 0;
      if (size != 2 || H5Tget_fields(file_type, &sign, &exponent, &exponent_bits, &fraction, &fraction_bits) < 0) return {};
      const bool half =
          sign == 15 && exponent == 10 && exponent_bits == 5 && fraction_bits == 10 && H5Tget_ebias(file_type) == 15;
      return half ? ElementType{'f', 2} : ElementType{};
    }
    default: return {};
  }
}

inline std::string extents_text(const std::vector<std::size_t>& extents) {
  std::string text = "[";
  for (std::size_t i = 0; i < extents.size(); ++i) weft::detail::append_to(text, {i ? ", " : "", extents[i]});
  return text += ']';
}

}  // namespace detail

class Hdf5;

/// A set of an HDF5 file, or a piece of its samples. Copies share the open file.
class Hdf5Set {
 public:
  static constexpr std::size_t most_dims = Shape::max_rank + 1;

  const std::string& file() const { return state_->file; }
  const std::string& name() const { return state_->name; }
  /// The extents of the whole set; the first one is the number of samples.
  const std::vector<std::size_t>& whole_shape() const { return state_->extents; }
  /// The extents of this piece, with all samples.
  const std::vector<std::size_t>& shape() const { return counts_; }
  detail::ElementType type() const { return state_->type; }
  /// Whether piece() has cut this dim.
  bool is_cut(std::size_t dim) const { return (cut_ >> dim & 1) != 0; }

  /// `count` places of a dim of the samples from `first` on, counted in the whole set: a rank's piece of a field. Throws
  /// ShapeError if they are none or not in the set.
  Hdf5Set piece(std::size_t dim, std::size_t first, std::size_t count) const {
    if (dim == 0 || dim >= counts_.size())
      throw_error<ShapeError>({"data: ", place(), " has the shape ", detail::extents_text(whole_shape()), ": no piece of dim ",
                               dim, ", samples are dim 0"});
    if (const std::size_t extent = whole_shape()[dim]; count == 0 || first > extent || count > extent - first)
      throw_error<ShapeError>(
          {"data: ", place(), " has the extent ", extent, " in dim ", dim, ": it has no ", count, " places from ", first, " on"});
    Hdf5Set some = *this;
    some.firsts_[dim] = first;
    some.counts_[dim] = count;
    some.cut_ |= 1u << dim;
    return some;
  }
  /// The piece of sample `index`, row-major: the product of shape() behind the first extent. Throws UsageError if the set's type
  /// is not T, or if it cannot be read.
  template <class T>
  void read(std::size_t index, std::span<T> out) const {
    require(detail::element_type_of<T>());
    std::array<hsize_t, most_dims> first{index}, count{1};
    std::size_t size = 1;
    for (std::size_t dim = 1; dim < counts_.size(); ++dim) {
      first[dim] = firsts_[dim];
      size *= std::size_t(count[dim] = counts_[dim]);
    }
    if (index >= counts_[0] || size != out.size())
      throw_error<ShapeError>({"data: ", place(), ": sample ", index, " of ", counts_[0], " with ", size,
                               " elements was read into room for ", out.size()});
    read_box(first, count, out.data());
  }
  /// Throws UsageError unless the set's type is `wanted`; bools are read as bytes of 0 and 1.
  void require(detail::ElementType wanted) const {
    if (type() == detail::ElementType{'b', 1} && wanted == detail::ElementType{'u', 1}) return;
    if (wanted != type()) refuse({"its elements are ", type().text(), ", ", wanted.text(), " was asked for"});
  }
  /// The identity of the whole set, the same for all its pieces: its extents and type, and 4 KiB of at most 1,024 evenly spaced
  /// lines along its last dim. A change elsewhere that keeps the extents is not detected.
  DataIdentity identity() const {
    const std::vector<std::size_t>& extents = whole_shape();
    const std::size_t last = extents.size() - 1, bytes = type().bytes;
    std::size_t lines = 1;
    for (std::size_t dim = 0; dim < last; ++dim) lines *= extents[dim];
    const std::size_t some = std::min<std::size_t>(lines, 1024);
    const std::size_t width = last == 0 ? extents[0] : std::min<std::size_t>(extents[last], 4096 / bytes);
    std::vector<std::uint8_t> values(some * width * bytes);
    for (std::size_t i = 0; i < some; ++i) {
      std::size_t line = some == 1 ? 0 : (lines - 1) / (some - 1) * i + (lines - 1) % (some - 1) * i / (some - 1);
      std::array<hsize_t, most_dims> first{}, count{};
      count.fill(1);
      count[last] = width;
      for (std::size_t dim = last; dim-- > 0; line /= extents[dim]) first[dim] = line % extents[dim];
      read_box(first, count, values.data() + i * width * bytes);
    }
    DataIdentity identity(file(), values.data(), values.size());
    identity.bytes = lines * extents[last] * bytes;
    identity.set(name() + ".extents", detail::extents_text(extents));
    identity.set(name() + ".type", type().text());
    return identity;
  }

 private:
  friend Hdf5;
  struct State {
    std::string file, name;
    std::shared_ptr<const detail::Hdf5Id> opened_file;
    detail::Hdf5Id set, memory_type;
    detail::ElementType type;
    std::vector<std::size_t> extents;
  };

  explicit Hdf5Set(std::shared_ptr<const State> state) : state_(std::move(state)), counts_(state_->extents) {}

  std::string place() const { return "set '" + name() + "' of '" + file() + "'"; }
  [[noreturn]] void refuse(weft::detail::Words reason) const {
    detail::refuse_file(file(), {"set '", name(), "': ", weft::detail::joined(reason)});
  }
  void read_box(const std::array<hsize_t, most_dims>& first, const std::array<hsize_t, most_dims>& count, void* out) const {
    const detail::Hdf5Call call;
    const detail::Hdf5Id in_file(H5Dget_space(state_->set), H5Sclose),
        in_memory(H5Screate_simple(int(counts_.size()), count.data(), nullptr), H5Sclose);
    if (in_file < 0 || in_memory < 0 ||
        H5Sselect_hyperslab(in_file, H5S_SELECT_SET, first.data(), nullptr, count.data(), nullptr) < 0 ||
        H5Dread(state_->set, state_->memory_type, in_memory, in_file, H5P_DEFAULT, out) < 0)
      refuse({"sample ", std::size_t(first[0]), " cannot be read: ", call.reason()});
  }

  std::shared_ptr<const State> state_;
  std::array<std::size_t, most_dims> firsts_{};
  std::vector<std::size_t> counts_;
  unsigned cut_ = 0;
};

/// An open HDF5 file.
class Hdf5 {
 public:
  /// Opens a file to read it. `access` is a file access property list, such as one of H5Pset_fapl_mpio: then all ranks of its
  /// communicator open the file together, close it together, and read without waiting for each other; a loader's thread calls MPI
  /// then, which needs MPI_THREAD_MULTIPLE, or LoaderOptions::ahead = 0. Throws UsageError, with the file's name, if it cannot be
  /// opened.
  static Hdf5 open(const std::string& file, hid_t access = H5P_DEFAULT) {
    const detail::Hdf5Call call;
    detail::Hdf5Id id(H5Fopen(file.c_str(), H5F_ACC_RDONLY, access), H5Fclose);
    if (id < 0) detail::refuse_file(file, {"it is no HDF5 file that can be read: ", call.reason()});
    return Hdf5(file, std::make_shared<const detail::Hdf5Id>(std::move(id)));
  }

  /// A set by its path, "u" or "flow/u". Throws UsageError, with the names that are there, if it is missing, or not of float16,
  /// float32, float64, whole numbers or bools with 1 to 7 dims and at least one element.
  Hdf5Set operator[](const std::string& name) const {
    const detail::Hdf5Call call;
    auto state = std::make_shared<Hdf5Set::State>();
    const auto refuse = [&](weft::detail::Words reason) {
      detail::refuse_file(file_, {"set '", weft::detail::shown(name), "': ", weft::detail::joined(reason)});
    };
    state->file = file_;
    state->name = name;
    state->opened_file = id_;
    state->set = detail::Hdf5Id(name.empty() ? -1 : H5Dopen2(*id_, name.c_str(), H5P_DEFAULT), H5Dclose);
    if (state->set < 0) refuse({"it is not there; the file has ", names()});
    const detail::Hdf5Id type(H5Dget_type(state->set), H5Tclose), space(H5Dget_space(state->set), H5Sclose);
    state->memory_type = detail::Hdf5Id(H5Tcopy(type), H5Tclose);
    const H5T_class_t kind = H5Tget_class(type);
    if (kind == H5T_INTEGER || kind == H5T_FLOAT) H5Tset_order(state->memory_type, H5Tget_order(H5T_NATIVE_INT));
    state->type = detail::hdf5_element_type(type, state->memory_type);
    if (state->type.kind == 0)
      refuse({"its elements are ", class_name(kind), " of ", std::size_t(H5Tget_size(type)),
              " bytes: float16, float32, float64, whole numbers of 8 to 64 bits and bool are known"});
    const int dims = H5Sget_simple_extent_ndims(space);
    if (dims < 1 || dims > int(Hdf5Set::most_dims))
      refuse({"it has ", dims, " dims: samples, and up to ", Shape::max_rank, " of a sample, are 1 to ", Hdf5Set::most_dims});
    std::array<hsize_t, Hdf5Set::most_dims> extents{};
    H5Sget_simple_extent_dims(space, extents.data(), nullptr);
    std::uint64_t elements = 1;
    for (int dim = 0; dim < dims; ++dim) {
      const hsize_t extent = extents[std::size_t(dim)];
      state->extents.push_back(std::size_t(extent));
      elements = extent != 0 && elements > (std::uint64_t(1) << 60) / extent ? std::uint64_t(1) << 61 : elements * extent;
    }
    const std::string shape = detail::extents_text(state->extents);
    if (elements == 0) refuse({"its shape ", shape, " has no elements"});
    if (elements > std::uint64_t(1) << 60) refuse({"its shape ", shape, " is more than can be counted"});
    return Hdf5Set(std::move(state));
  }
  const std::string& file() const { return file_; }

 private:
  Hdf5(std::string file, std::shared_ptr<const detail::Hdf5Id> id) : file_(std::move(file)), id_(std::move(id)) {}

  static const char* class_name(H5T_class_t kind) {
    switch (kind) {
      case H5T_INTEGER: return "whole numbers";
      case H5T_FLOAT: return "floating-point numbers";
      case H5T_STRING: return "texts";
      case H5T_COMPOUND: return "records of several fields (compound)";
      case H5T_ENUM: return "an enumeration";
      case H5T_VLEN: return "of variable length";
      default: return "no numbers";
    }
  }
  // The members of the file's root, at most eight.
  std::string names() const {
    H5G_info_t info{};
    if (H5Gget_info(*id_, &info) < 0 || info.nlinks == 0) return "none";
    std::string text;
    for (hsize_t i = 0; i < std::min<hsize_t>(info.nlinks, 8); ++i) {
      std::array<char, 80> name{};
      if (H5Lget_name_by_idx(*id_, ".", H5_INDEX_NAME, H5_ITER_INC, i, name.data(), name.size(), H5P_DEFAULT) < 0) continue;
      weft::detail::append_to(text, {text.empty() ? "'" : ", '", weft::detail::shown(name.data()), "'"});
    }
    if (info.nlinks > 8) weft::detail::append_to(text, {" and ", std::size_t(info.nlinks - 8), " more"});
    return text;
  }

  std::string file_;
  std::shared_ptr<const detail::Hdf5Id> id_;
};

}  // namespace weft::data
