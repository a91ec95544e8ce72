// SPDX-License-Identifier: Apache-2.0
#pragma once
// Fields of a dataset that are sets of HDF5 files, read sample by sample as the Loader needs them. A field that domain axes cut
// is read as the rank's piece.
//
//   const data::Hdf5 file = data::Hdf5::open("run.h5");
//   const data::Arrays train(data::array<state>(mesh, file["state"]), data::array<next>(mesh, file["next"]));
//   for (auto&& batch : data::Loader(mesh, train, {.global_batch = 64})) model.train_step(batch);

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <weft/data/arrays.hpp>
#include <weft/data/hdf5_set.hpp>
#include <weft/mesh/axis.hpp>

namespace weft::data {

/// One field's values of all samples, [samples, shape...], in a file. T is the type of the set's elements.
template <class F, class T>
struct Hdf5Array {
  using field = F;

  Hdf5Set set;
  Shape shape;
  std::size_t samples = 0;
  double scale = 1, shift = 0;
  std::size_t classes = 0;

  /// Throws UsageError if the set cannot be read, or has a label that is not in [0, classes).
  void load(std::size_t index, std::span<typename F::scalar> out) const {
    if constexpr (std::is_same_v<T, typename F::scalar>) {
      if (scale == 1 && shift == 0) return read(index, out);
    }
    std::vector<T> values(out.size());
    read(index, std::span<T>(values));
    detail::convert_elements(std::span<const T>(values), out, scale, shift);
  }
  /// The identity of the whole set, as Hdf5Set::identity, with scale and shift.
  DataIdentity identity() const {
    const std::string name(F::name);
    DataIdentity identity = set.identity();
    identity.set(name + ".scale", scale);
    identity.set(name + ".shift", shift);
    return identity;
  }

 private:
  void read(std::size_t index, std::span<T> out) const {
    set.read(index, out);
    if constexpr (std::is_integral_v<T>)
      if (classes != 0) detail::check_classes<F>(std::span<const T>(out), classes, out.size(), index);
  }
};

namespace detail {

/// The dim of the set that a sample's dim has in `whole`, [samples, whole...], which is the set's shape but for dims of one
/// place. Throws ShapeError if it is another shape.
inline std::size_t dim_of_set(std::string_view field, const Hdf5Set& set, const Shape& whole, std::size_t dim) {
  const std::vector<std::size_t>& extents = set.whole_shape();
  std::size_t at = 1, found = 0;
  bool same = dim <= whole.rank();
  for (std::size_t d = 0; d < whole.rank(); ++d) {
    if (whole[d] == 1) continue;
    while (at < extents.size() && extents[at] == 1) ++at;
    same = same && at < extents.size() && extents[at] == whole[d];
    if (d + 1 == dim) found = at;
    ++at;
  }
  while (at < extents.size() && extents[at] == 1) ++at;
  if (!same || at != extents.size() || found == 0)
    throw_error<ShapeError>({"data: field ", field, ": its dim ", dim, " of [samples, ...] is cut, and set '", set.name(),
                             "' of '", set.file(), "' with the shape ", extents_text(extents), " has no such dim as samples of ",
                             whole.text()});
  return found;
}

template <class F, class T>
Hdf5Array<F, T> hdf5_array(const Hdf5Set& set, const ArrayOptions& options) {
  static_assert(element_type_of<T>().kind != 0,
                "weft: HDF5 files have no elements of this type: name that of the set, "
                "data::array<field, float>(file[\"set\"])");
  set.require(element_type_of<T>());
  const Shape shape = sample_shape(F::name, set.file(), set.shape()), wanted = options.shape.value_or(shape);
  const std::size_t samples = set.shape()[0];
  if (weft::detail::field_length(F::name, samples, wanted) != weft::detail::field_length(F::name, samples, shape))
    refuse_array_shape(F::name, shape, wanted);
  if (options.classes != 0 && !std::is_integral_v<T>)
    throw_error<UsageError>({"data: field ", F::name, ": classes are of whole numbers, the set's elements are none"});
  return {set, wanted, samples, options.scale, options.shift, options.classes};
}

}  // namespace detail

/// A set, or a piece of it, as the field's values. Its elements must be the field's scalars, or T if T is given. Labels are
/// checked as they are read. Throws UsageError for other elements, ShapeError for an unsuitable shape, and UsageError for a field
/// that domain axes cut unless Hdf5Set::piece has cut each of their dims.
template <auto field, class T = typename std::remove_cvref_t<decltype(field)>::scalar>
auto array(const Hdf5Set& set, const ArrayOptions& options = {}) {
  using F = std::remove_cvref_t<decltype(field)>;
  const int cuts[]{F::template cut_dim<dx>, F::template cut_dim<dy>, F::template cut_dim<dz>};
  for (const int dim : cuts)
    if (dim > 0 && !set.is_cut(std::size_t(dim)))
      throw_error<UsageError>(
          {"data: field ", F::name, ": its dim ", dim, " is cut over a domain axis, and set '", set.name(), "' of '", set.file(),
           "' is whole there: give the mesh, data::array<field>(mesh, set), or cut it, ", "set.piece(", dim, ", first, count)"});
  if (F::cut_axes != 0 && options.shape && *options.shape != detail::sample_shape(F::name, set.file(), set.shape()))
    throw_error<ShapeError>({"data: field ", F::name, ": domain axes cut it, and the piece ", detail::extents_text(set.shape()),
                             " of set '", set.name(), "' of '", set.file(), "' is no samples of ", options.shape->text()});
  return detail::hdf5_array<F, T>(set, options);
}
/// The rank's piece of a set as the field's values: each domain axis of the mesh cuts the dim that the field's data::Cut names,
/// as evenly as possible, longer pieces first. ArrayOptions::shape is that of whole samples, the set's with dims of one place
/// added or left out. Throws as above, and ShapeError for a dim with fewer places than ranks.
template <auto field, class T = typename std::remove_cvref_t<decltype(field)>::scalar, class Mesh>
requires requires(const Mesh& mesh) { mesh.world(); }
auto array(const Mesh& mesh, const Hdf5Set& set, const ArrayOptions& options = {}) {
  using F = std::remove_cvref_t<decltype(field)>;
  const Shape whole = options.shape.value_or(detail::sample_shape(F::name, set.file(), set.whole_shape()));
  ArrayOptions of_piece = options;
  of_piece.shape = whole;
  Hdf5Set mine = set;
  detail::for_each_cut<F>(mesh, [&]<class A>(A, std::size_t dim, std::size_t ranks, std::size_t rank) {
    const std::size_t in_set = detail::dim_of_set(F::name, set, whole, dim), extent = set.whole_shape()[in_set];
    if (extent < ranks)
      throw_error<ShapeError>({"data: field ", F::name, ": set '", set.name(), "' of '", set.file(), "' has the extent ", extent,
                               " in dim ", in_set, ", which ", A::name, "(", ranks, ") cannot cut"});
    const detail::EvenPiece piece(extent, ranks, rank);
    (*of_piece.shape)[dim - 1] = piece.count;
    mine = mine.piece(in_set, piece.first, piece.count);
  });
  return detail::hdf5_array<F, T>(mine, of_piece);
}

}  // namespace weft::data
