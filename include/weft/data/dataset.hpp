// SPDX-License-Identifier: Apache-2.0
#pragma once
// The concept of a dataset: samples accessed by index, whose fields are typed. data/loader.hpp has an example.

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>

#include <weft/core/data_identity.hpp>
#include <weft/data/fields.hpp>

namespace weft::data {

/// Samples accessed by index. `Fields` is a FieldBatch; load() writes one sample, whose spans initially hold zeros or an earlier
/// batch's values. load() is const and is called concurrently by the threads of several ranks. A dataset with fields that are not
/// scalars also has `shapes(Fields::Shapes&)`. load() may throw. It must not call Kokkos' parallel patterns, since it runs
/// concurrently with a training step. For samples that change from epoch to epoch, such as random crops, it has a third
/// parameter, the epoch: `load(std::size_t index, Fields::Sample& sample, std::uint64_t epoch)`.
template <class D>
concept Dataset = requires(const D& dataset, std::size_t index, typename D::Fields::Sample& sample) {
  { dataset.size() } -> std::convertible_to<std::size_t>;
}
&&(
    requires(const D& dataset, std::size_t index, typename D::Fields::Sample& sample) { dataset.load(index, sample); } ||
    requires(const D& dataset, std::size_t index, typename D::Fields::Sample& sample, std::uint64_t epoch) {
      dataset.load(index, sample, epoch);
    });

namespace detail {

template <class D>
concept NamesFields = requires {
  typename D::Fields::Sample;
  typename D::Fields::Shapes;
};
/// Sample `index` of an epoch, also of a dataset whose samples are the same in every epoch.
template <class D, class Sample>
void load_sample(const D& dataset, std::size_t index, Sample& sample, std::uint64_t epoch) {
  if constexpr (requires { dataset.load(index, sample, epoch); }) dataset.load(index, sample, epoch);
  else dataset.load(index, sample);
}
/// The shapes of a dataset's fields; those of a dataset of scalars are {}.
template <class D>
typename D::Fields::Shapes shapes_of(const D& dataset) {
  typename D::Fields::Shapes shapes;
  if constexpr (requires { dataset.shapes(shapes); }) dataset.shapes(shapes);
  return shapes;
}
/// The identity of a dataset; of one without, its number of samples.
template <class D>
DataIdentity identity_of(const D& dataset) {
  if constexpr (requires { dataset.identity(); }) return dataset.identity();
  DataIdentity identity;
  identity.set("samples", std::to_string(dataset.size()));
  return identity;
}

/// D's fields. If D names none, one field replaces them, so that the compiler reports only that.
template <class D>
struct FieldsOf {
  using type = FieldBatch<Field<"none", float>{}>;
};
template <NamesFields D>
struct FieldsOf<D> {
  using type = typename D::Fields;
};

}  // namespace detail

}  // namespace weft::data
