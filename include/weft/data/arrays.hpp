// SPDX-License-Identifier: Apache-2.0
#pragma once
// A dataset of arrays, one per field: files (Npy, Idx), and vectors, spans and Kokkos Views of the program, without a copy. An
// element becomes a field's scalar by value * scale + shift. A rank reads its piece of a file with whole fields.
//
//   const data::Arrays train(
//       data::array<image, std::uint8_t>(data::Idx::open(images), {.shape = Shape{1, 28, 28}, .scale = 1 / 255.0}),
//       data::array<label, std::uint8_t>(data::Idx::open(labels), {.classes = 10}));
//   data::Loader loader(mesh, train, {.global_batch = 64});

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <weft/core/data_identity.hpp>
#include <weft/core/hash.hpp>
#include <weft/data/fields.hpp>
#include <weft/data/file_bytes.hpp>
#include <weft/mesh/axis.hpp>
#include <weft/tensor/strided_array.hpp>

namespace weft::data {

/// Options of array: the shape of a sample, a factor, the number of classes.
struct ArrayOptions {
  std::optional<Shape> shape = {};  ///< of a sample; replaces the array's shape if it has as many elements
  double scale = 1, shift = 0;
  std::size_t classes = 0;  ///< throw unless all elements are in [0, classes); 0: not checked
};

namespace detail {

/// out[i] = values[i] * scale + shift, computed in double.
template <class T, class Scalar>
void convert_elements(std::span<const T> values, std::span<Scalar> out, double scale, double shift) {
  using Float = std::conditional_t<std::is_arithmetic_v<Scalar>, double, float>;  // of which float16 and bfloat16 are made
  if (scale == 1 && shift == 0)
    std::transform(values.begin(), values.end(), out.begin(), [](T value) { return static_cast<Scalar>(value); });
  else
    std::transform(values.begin(), values.end(), out.begin(),
                   [&](T value) { return static_cast<Scalar>(static_cast<Float>(static_cast<double>(value) * scale + shift)); });
}

}  // namespace detail

/// One field's values of all samples, [samples, shape...]: a view, and the owner of its memory.
template <class F, class T>
struct Array {
  using field = F;

  std::span<const T> values;
  Shape shape;
  std::size_t samples = 0;
  double scale = 1, shift = 0;
  std::shared_ptr<const void> owner = nullptr;
  std::string file = {};                           ///< empty for memory of the program
  Shape whole = {};                                ///< of a sample of `values`, of which `shape` is a piece
  weft::detail::StridedArray<const T> piece = {};  ///< that piece of the first sample; null: `values` has the samples themselves
  std::optional<DataIdentity> of_pieces = {};      ///< of the files of all ranks, if each has a piece

  void load(std::size_t index, std::span<typename F::scalar> out) const {
    if (piece.data != nullptr) {
      auto one = piece;
      one.data += index * whole.size();
      std::vector<T> copy(out.size());
      weft::detail::copy_elements(one, copy.data());
      return detail::convert_elements(std::span<const T>(copy), out, scale, shift);
    }
    detail::convert_elements(values.subspan(index * out.size(), out.size()), out, scale, shift);
  }
  /// The identity of the current elements, with scale and shift.
  DataIdentity identity() const {
    const std::string field(F::name);
    DataIdentity identity =
        of_pieces ? *of_pieces : DataIdentity(file.empty() ? "field " + field : file, values.data(), values.size_bytes());
    identity.set(field + ".shape", (piece.data != nullptr || of_pieces ? whole : shape).text());
    identity.set(field + ".scale", scale);
    identity.set(field + ".shift", shift);
    return identity;
  }
};

namespace detail {

/// Throws ShapeError or UsageError for an array with unsuitable sizes.
[[noreturn]] void refuse_array_shape(std::string_view name, const Shape& of_array, const Shape& wanted);
[[noreturn]] void refuse_cut(std::string_view name, std::string_view file, const Shape& sample, std::size_t dim,
                             std::string_view axis, std::size_t degree);
[[noreturn]] void refuse_piece(std::string_view name, std::string_view file, const Shape& sample, const Shape& piece,
                               const Shape& whole, std::string_view ranks);
[[noreturn]] void refuse_whole_file(std::string_view name, std::string_view file, std::string_view shape);
Shape sample_shape(std::string_view name, std::string_view file, const std::vector<std::size_t>& shape);
[[noreturn]] void refuse_array_samples(std::string_view name, std::size_t samples, std::string_view other, std::size_t expected);

/// Throws UsageError unless all elements are in [0, classes).
template <class F, class T>
void check_classes(std::span<const T> values, std::size_t classes, std::size_t elements_of_sample, std::size_t first_sample = 0) {
  for (std::size_t i = 0; i < values.size(); ++i)
    if (std::cmp_less(values[i], 0) || std::cmp_greater_equal(values[i], classes))
      weft::detail::refuse_label(F::name, std::to_string(values[i]), first_sample + i / elements_of_sample, classes);
}

template <class F, class T>
Array<F, T> checked_array(std::span<const T> values, Shape shape, std::size_t samples, const ArrayOptions& options,
                          std::shared_ptr<const void> owner) {
  const Shape wanted = options.shape.value_or(shape);
  const std::size_t length = weft::detail::field_length(F::name, samples, wanted);
  if (length != values.size()) refuse_array_shape(F::name, shape, wanted);
  if constexpr (std::is_integral_v<T>) {
    if (options.classes != 0) check_classes<F>(values, options.classes, wanted.size());
  } else {
    static_assert(std::is_floating_point_v<T> || requires(T half) { float(half); });
    if (options.classes != 0)
      throw_error<UsageError>({"data: field ", F::name, ": classes are of whole numbers, the array's elements are none"});
  }
  return {values, wanted, samples, options.scale, options.shift, std::move(owner)};
}

/// The rank's piece of `extent` places: pieces are as even as possible, longer ones first.
struct EvenPiece {
  std::size_t first, count;
  EvenPiece(std::size_t extent, std::size_t ranks, std::size_t rank)
      : first(extent / ranks * rank + std::min(rank, extent % ranks)), count(extent / ranks + (rank < extent % ranks ? 1 : 0)) {}
};

/// Calls cut(axis, dim, ranks, rank) for each domain axis of the mesh that cuts a dim of field F, [samples, ...].
template <class F, class Mesh, class Cut>
void for_each_cut(const Mesh& mesh, Cut&& cut) {
  const auto along = [&]<class A>(A axis) {
    if constexpr (F::template cut_dim<A> >= 0 && Mesh::has(A{}))
      cut(axis, std::size_t(F::template cut_dim<A>), std::size_t(mesh.size(axis)), std::size_t(mesh.rank(axis)));
  };
  along(dx{}), along(dy{}), along(dz{});
}
/// The file's samples, and the rank's piece of samples of a shape.
template <auto field, class T, class Mesh>
auto file_and_piece(const Mesh& mesh, const FileArray& file, const ArrayOptions& options, const std::optional<Shape>& whole) {
  using F = std::remove_cvref_t<decltype(field)>;
  const std::span<const T> values = file.values<T>();
  auto made =
      checked_array<F, T>(values, sample_shape(F::name, file.file(), file.shape()), file.shape()[0], options, file.owner());
  made.file = file.file();
  made.whole = whole.value_or(made.shape);
  weft::detail::StridedArray<const T> piece{values.data(), made.whole, weft::detail::row_major_strides(made.whole)};
  std::string ranks;
  for_each_cut<F>(mesh, [&]<class A>(A, std::size_t dim, std::size_t degree, std::size_t rank) {
    if (dim - 1 >= piece.shape.rank() || piece.shape[dim - 1] < degree)
      refuse_cut(F::name, file.file(), piece.shape, dim, A::name, degree);
    const EvenPiece mine(piece.shape[dim - 1], degree, rank);
    piece.data += mine.first * piece.strides[dim - 1];
    piece.shape[dim - 1] = mine.count;
    weft::detail::append_to(ranks, {ranks.empty() ? "" : ", ", "rank ", rank, " of ", A::name, "(", degree, ")"});
  });
  if (whole && !(made.shape == piece.shape)) refuse_piece(F::name, file.file(), made.shape, piece.shape, *whole, ranks);
  return std::pair(std::move(made), piece);
}

}  // namespace detail

/// The shape of a sample of which files of the ranks have a piece each.
struct PieceOf {
  Shape whole;
};

/// The rank's piece of a file with whole samples: each domain axis of the mesh cuts the dim that the field's data::Cut names, as
/// evenly as possible, longer pieces first. Elements and errors as below; ShapeError for a dim with fewer places than ranks.
template <auto field, class T = typename std::remove_cvref_t<decltype(field)>::scalar, class Mesh>
requires requires(const Mesh& mesh) { mesh.world(); }
auto array(const Mesh& mesh, const detail::FileArray& file, const ArrayOptions& options = {}) {
  auto [made, piece] = detail::file_and_piece<field, T>(mesh, file, options, {});
  made.shape = piece.shape;
  if (!piece.row_major() || !(piece.shape == made.whole)) made.piece = piece;
  return made;
}
/// A file with that piece of whole samples; its place among the pieces is not checked. Collective over the axes that cut the
/// field, whose ranks have one identity of all files. Throws ShapeError for a file of another shape than the piece.
template <auto field, class T = typename std::remove_cvref_t<decltype(field)>::scalar, class Mesh>
requires requires(const Mesh& mesh) { mesh.world(); }
auto array(const Mesh& mesh, const detail::FileArray& file, const PieceOf& piece, const ArrayOptions& options = {}) {
  using F = std::remove_cvref_t<decltype(field)>;
  auto made = detail::file_and_piece<field, T>(mesh, file, options, piece.whole).first;
  DataIdentity identity(made.file, made.values.data(), made.values.size_bytes());
  detail::for_each_cut<F>(mesh, [&](auto axis, std::size_t, std::size_t degree, std::size_t) {
    const std::vector<std::uint64_t> own{identity.bytes, identity.digest};
    std::vector<std::uint64_t> all(2 * degree);
    mesh.comm(axis).all_gather(own, all);
    identity.bytes = 0;
    for (std::size_t i = 0; i < all.size(); i += 2) identity.bytes += all[i];
    identity.digest = weft::detail::hash_bytes(all.data(), all.size() * sizeof(std::uint64_t));
  });
  made.of_pieces = std::move(identity);
  return made;
}

/// A file's array as the field's values. Its elements must be the field's scalars, or T if T is given. Throws UsageError for
/// other elements, and for a field that domain axes cut, ShapeError for an unsuitable shape.
template <auto field, class T = typename std::remove_cvref_t<decltype(field)>::scalar>
auto array(const detail::FileArray& file, const ArrayOptions& options = {}) {
  using F = std::remove_cvref_t<decltype(field)>;
  if (F::cut_axes != 0) detail::refuse_whole_file(F::name, file.file(), file.shape_text());
  const std::span<const T> values = file.values<T>();
  auto made = detail::checked_array<F, T>(values, detail::sample_shape(F::name, file.file(), file.shape()), file.shape()[0],
                                          options, file.owner());
  made.file = file.file();
  return made;
}

/// Memory of the program, [samples, shape...], which must outlive the dataset. Throws ShapeError unless it holds whole samples.
template <auto field, class T>
auto array(std::span<const T> values, const Shape& shape, const ArrayOptions& options = {}) {
  using F = std::remove_cvref_t<decltype(field)>;
  FieldValues<Field<"array", T>> checked;
  checked.view(values, shape);
  return detail::checked_array<F, T>(values, shape, checked.samples(), options, nullptr);
}
template <auto field, class T>
auto array(const std::vector<T>& values, const Shape& shape, const ArrayOptions& options = {}) {
  return array<field>(std::span<const T>(values), shape, options);
}
/// A vector that the dataset owns.
template <auto field, class T>
auto array(std::vector<T>&& values, const Shape& shape, const ArrayOptions& options = {}) {
  const auto kept = std::make_shared<const std::vector<T>>(std::move(values));
  auto made = array<field>(std::span<const T>(*kept), shape, options);
  made.owner = kept;
  return made;
}
/// A Kokkos View of host memory, [samples, ...], contiguous and row-major. Later writes to the view are visible to the loader.
/// With `LoaderOptions::ahead` = 0 the rank itself loads, so no other thread reads while the program writes. Throws ShapeError
/// for a View of another layout.
template <auto field, weft::detail::KokkosView V>
auto array(const V& view, const ArrayOptions& options = {}) {
  using F = std::remove_cvref_t<decltype(field)>;
  const auto viewed = weft::detail::viewed_field(view);
  if (viewed.strided.data != nullptr)
    throw_error<ShapeError>({"field ", F::name,
                             ": the View is not contiguous in row-major order, [samples, ...] with the last index fastest: a ",
                             "dataset takes Kokkos::LayoutRight and no part of a larger View; a batch takes every layout"});
  return detail::checked_array<F, typename V::non_const_value_type>(viewed.row_major, viewed.shape, viewed.samples, options,
                                                                    std::make_shared<const V>(view));
}

/// The values of one field of all samples: an Array, or an Hdf5Array.
template <class A>
concept FieldArray = requires(const A& values, std::size_t index, std::span<typename A::field::scalar> out) {
  { values.samples } -> std::convertible_to<std::size_t>;
  { values.shape } -> std::convertible_to<Shape>;
  { values.identity() } -> std::convertible_to<DataIdentity>;
  values.load(index, out);
};

/// A dataset of arrays with the same number of samples.
template <FieldArray... A>
class Arrays {
 public:
  using Fields = FieldBatch<typename A::field{}...>;

  /// Throws ShapeError if the arrays have different numbers of samples.
  explicit Arrays(A... arrays) : arrays_(std::move(arrays)...) {
    const std::size_t samples[]{std::get<A>(arrays_).samples...};
    const std::string_view names[]{A::field::name...};
    for (std::size_t i = 1; i < sizeof...(A); ++i)
      if (samples[i] != samples[0]) detail::refuse_array_samples(names[i], samples[i], names[0], samples[0]);
  }

  std::size_t size() const { return std::get<0>(arrays_).samples; }
  void shapes(typename Fields::Shapes& shapes) const { ((shapes[typename A::field{}] = std::get<A>(arrays_).shape), ...); }
  void load(std::size_t index, typename Fields::Sample& sample) const {
    (std::get<A>(arrays_).load(index, sample[typename A::field{}]), ...);
  }
  /// The identity for SaveOptions::data and LoadOptions::data of checkpoints.
  DataIdentity identity() const {
    DataIdentity all;
    (all.add(std::get<A>(arrays_).identity()), ...);
    return all;
  }

 private:
  std::tuple<A...> arrays_;
};

}  // namespace weft::data

#ifndef WEFT_COMPILED
#include <weft/data/arrays_impl.hpp>
#endif
