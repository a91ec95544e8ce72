// SPDX-License-Identifier: Apache-2.0
#pragma once
// Named fields and a batch of them: one data rank's share of a global batch for any model, in host memory. A field is a name and
// a scalar type, a constant at namespace scope; a batch keeps [samples, shape...] of each, owned or viewed. Images,
// fields of a simulation and tokens are all batches of fields; a field that a batch does not have is an error of the compiler.
//
//   inline constexpr weft::data::Field<"image", float> image;
//   inline constexpr weft::data::Field<"label", std::int32_t> label;
//   using Images = weft::FieldBatch<image, label>;
//
//   Images batch{.samples = 2};
//   std::ranges::fill(batch[image].resize(2, {1, 28, 28}), 0.5f);   // memory of the batch
//   batch[label].view(labels, {});                                  // the program's memory: no copy
//   batch.check();

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <weft/core/text_argument.hpp>
#include <weft/data/batch_share.hpp>
#include <weft/data/field_options.hpp>
#include <weft/tensor/strided_array.hpp>

namespace weft {
namespace detail {

struct AnyFieldOfBatch {};

}  // namespace detail

namespace data {

/// A field of a batch: a name and the type of its scalars, and maybe the SequenceDim of its samples, or the Cut of each domain
/// axis. Two fields are the same if all are.
template <weft::detail::TextArgument field_name, class T, class... Options>
struct Field : weft::detail::AnyFieldOfBatch {
  static_assert(
      weft::detail::are_field_options<Options...>,
      "weft: a field has a name, a type, and maybe a data::SequenceDim<dim>, or a data::Cut<axis, dim> for each domain axis");
  static_assert(
      weft::detail::cuts_fit<Options...>,
      "weft: data::Cut<axis, dim> is for a domain axis, dx, dy or dz, and a dim of [samples, shape...] behind the first");
  static_assert(!weft::detail::cuts_fit<Options...> || weft::detail::cuts_differ<Options...>,
                "weft: a field's data::Cut options name each axis and each dim once");
  static_assert(std::is_trivially_copyable_v<T> && !std::is_const_v<T>,
                "weft: a field's scalars are plain values: int, float, ...");
  static_assert(!std::is_same_v<T, bool>, "weft: a field's scalars are not bool, which vectors pack: use std::uint8_t for masks");
  static_assert(!field_name.view().empty(), "weft: a field has a name");
  using scalar = T;
  static constexpr std::string_view name = field_name.view();
  static constexpr int sequence_dim = weft::detail::sequence_dim_of<Options...>;  ///< -1: none
  static constexpr unsigned cut_axes = weft::detail::cut_axes_of<Options...>;     ///< the bits of their axes
  template <class A>
  static constexpr int cut_dim = weft::detail::cut_dim_of<A, Options...>;  ///< -1: none
};

}  // namespace data

namespace detail {

/// Whether the types of a batch's fields are different ones; of fields with equal names one alone could be meant.
template <class... F>
consteval bool have_different_names() {
  const std::string_view names[]{F::name...};
  for (std::size_t a = 0; a < sizeof...(F); ++a)
    for (std::size_t b = 0; b < a; ++b)
      if (names[a] == names[b]) return false;
  return true;
}

// Here, so that the compiler prints a field and a batch in its reason for a refusal.
template <class Wanted, class... Fields>
concept BatchHasField = (std::is_same_v<Wanted, Fields> || ...);

/// Refuses a field that a model's batch of F... lacks, once for a batch.
template <class... F>
void refuse_field() {
  static_assert(sizeof...(F) > 99,
                "weft: the batch of this model has no such field: name one of its fields, batch[image], or add this one to the "
                "model's Batch: `using Batch = FieldBatch<image, label>;`, without which its batches are tokens");
}

// The refusals' text, each once for all fields.
[[noreturn]] void refuse_field_length(std::string_view name, std::size_t values, const Shape& shape);
[[noreturn]] void refuse_field_samples(std::string_view name, std::size_t samples, const Shape& shape, std::size_t expected);
[[noreturn]] void refuse_micro_batches(std::size_t samples, std::size_t micro_batches);
[[noreturn]] void refuse_label(std::string_view name, std::string_view label, std::size_t sample, std::size_t classes);
[[noreturn]] void refuse_field_part(std::string_view name, std::size_t first, std::size_t count, std::size_t samples);
[[noreturn]] void refuse_view_to_write(std::string_view name);
std::size_t field_length(std::string_view name, std::size_t samples, const Shape& shape);  // samples * shape, or ShapeError

/// A View's values, [samples, shape...].
template <class T>
struct ViewedField {
  std::size_t samples = 0;
  Shape shape = {};
  std::span<const T> row_major = {};
  StridedArray<const T> strided = {};  ///< of any other layout; then `row_major` is empty
};
template <class T>
ViewedField<T> viewed_field(const StridedArray<const T>& all) {
  ViewedField<T> field{all.shape[0], Shape::of_rank(all.shape.rank() - 1)};
  for (std::size_t dim = 1; dim < all.shape.rank(); ++dim) field.shape[dim - 1] = all.shape[dim];
  if (all.row_major()) field.row_major = {all.data, all.shape.size()};
  else field.strided = all;
  return field;
}
template <KokkosView V>
auto viewed_field(const V& view) {
  static_assert(V::rank() >= 1, "weft: a field's View has [samples, ...] extents, at least one");
  static_assert(
      std::is_same_v<typename V::memory_space, typename V::host_mirror_space::memory_space>,
      "weft: a batch's fields lie in host memory; for device memory give the device, batch[field].view(world.device(), view)");
  return viewed_field(strided_of<const typename V::non_const_value_type>(view));
}

}  // namespace detail

/// The values of one field of a batch, [samples, shape...]: owned, row-major in memory that is used again, or viewed, in the
/// program's memory, which must outlive the batch's use.
template <class F>
class FieldValues {
 public:
  using scalar = typename F::scalar;
  static constexpr std::string_view name = F::name;

  /// The shape of one sample: {1, 28, 28}, {} for a scalar.
  const Shape& shape() const { return shape_; }
  std::size_t samples() const { return samples_; }
  /// All values, [samples, shape...], row-major. Each call copies a View of another layout; one thread at a time calls it then.
  std::span<const scalar> values() const { return part(0, samples_); }
  /// The values of sample i, [shape...].
  std::span<const scalar> sample(std::size_t i) const { return part(i, 1); }
  /// The values of `count` samples, [count, shape...]: a micro-batch's. Throws ShapeError if there are not so many.
  std::span<const scalar> part(std::size_t first, std::size_t count) const {
    if (first > samples_ || count > samples_ - first) detail::refuse_field_part(name, first, count, samples_);
    if (const auto strided = strided_part(first, count); strided.data != nullptr) {
      owned_.resize(samples_ * sample_size_);
      copy_row_major(strided, owned_.data() + first * sample_size_);
    }
    const std::span<const scalar> all = viewed_ && strided_.data == nullptr ? view_ : std::span<const scalar>(owned_);
    return all.subspan(first * sample_size_, count * sample_size_);
  }
  /// f(values) of all values, [samples, shape...], row-major. Several threads may call it: a copy of a View is that call's.
  template <class Function>
  auto read(Function&& f) const {
    if (strided_.data == nullptr) return f(values());
    std::vector<scalar> copy(samples_ * sample_size_);
    copy_row_major(strided_part(0, samples_), copy.data());
    return f(std::span<const scalar>(copy));
  }
  /// The device whose kernels read the values where they lie; null: they are host memory.
  const void* device() const { return device_; }
  /// The same values where they lie, if they are a View that is not row-major or is given with its device; else null.
  detail::StridedArray<const scalar> strided_part(std::size_t first, std::size_t count) const {
    detail::StridedArray<const scalar> some = strided_;
    if (some.data == nullptr) return some;
    some.data += first * some.strides[0];
    some.shape[0] = count;
    return some;
  }
  /// All values, to be written. Throws UsageError if they are viewed: that memory is the program's.
  std::span<scalar> writable() {
    if (viewed_) detail::refuse_view_to_write(name);
    return owned_;
  }
  bool owned() const { return !viewed_; }

  /// Room for so many samples of a shape, owned and to be written; old content is kept, the rest is zero. No allocation unless
  /// it is more than ever before. Throws ShapeError if it is more than can be counted.
  std::span<scalar> resize(std::size_t samples, const Shape& shape) {
    owned_.resize(set_sizes(samples, shape));
    viewed_ = false;
    return owned_;
  }
  /// Takes these values, [samples, shape...]. Throws ShapeError if they are not whole samples.
  void assign(std::vector<scalar> values, const Shape& shape) {
    set_sizes(whole_samples(values.size(), shape), shape);
    owned_ = std::move(values);
    viewed_ = false;
  }
  /// The same for samples of the shape so far.
  void assign(std::vector<scalar> values) { assign(std::move(values), Shape(shape_)); }
  /// Looks at these values, [samples, shape...], without a copy. Throws ShapeError if they are not whole samples.
  void view(std::span<const scalar> values, const Shape& shape) {
    set_sizes(whole_samples(values.size(), shape), shape);
    view_ = values;
    viewed_ = true;
  }
  /// Looks at a Kokkos View of host memory, [samples, shape...], of any layout, without a copy. The model reads it in each call.
  template <detail::KokkosView V>
  void view(const V& view) {
    constexpr bool fits = std::is_same_v<typename V::non_const_value_type, scalar>;
    static_assert(fits, "weft: the View's elements are of another type than the field's scalars");
    if constexpr (fits) take(detail::viewed_field(view));
  }
  /// Looks at a View, or Dlpack::array(device), of memory that kernels of the model's device read: of a GPU, or of a host. The
  /// model takes it where it lies if it is row-major and of the model's scalar; else one kernel copies it. Both are work of the
  /// device's execution space instance, in whose order the program may write again after the step. The host's values are copies.
  template <class Exec, class V>
  void view(Device<Exec>& device, const V& view) {
    constexpr bool fits = std::is_same_v<typename V::non_const_value_type, scalar> && V::rank() != 0;
    static_assert(fits, "weft: a field's View has elements of the field's scalar type, and [samples, ...] extents, at least one");
    if constexpr (fits) {
      const auto all = detail::strided_on<const scalar>(device, view);
      this->view(all);
      strided_ = all;
      device_ = &device;
      fetch_ = [](const void* from, const detail::StridedArray<const scalar>& some, scalar* out) {
        detail::fetch_elements(*const_cast<Device<Exec>*>(static_cast<const Device<Exec>*>(from)), some, out);
      };
    }
  }
  /// Looks at the elements of an array of any layout, such as Dlpack::array() returns, [samples, shape...], without a copy.
  void view(const detail::StridedArray<const scalar>& array) {
    if (array.shape.rank() == 0) detail::refuse_field_length(name, 1, Shape());
    take(detail::viewed_field(array));
  }

  /// Throws UsageError unless each value is in [0, classes); a negative one is let through if `masked`, for losses that do not
  /// count it.
  void check_labels(std::size_t classes, bool masked = false) const requires std::integral<scalar> {
    read([&](std::span<const scalar> all) {
      using Number = std::conditional_t<std::is_signed_v<scalar>, std::int64_t, std::uint64_t>;
      for (std::size_t i = 0; i < all.size(); ++i)
        if (!(std::cmp_less(all[i], 0) ? masked : std::cmp_less(all[i], classes)))
          detail::refuse_label(name, detail::joined({Number(all[i])}), i / sample_size_, classes);
    });
  }

 private:
  void copy_row_major(const detail::StridedArray<const scalar>& from, scalar* out) const {
    device_ != nullptr ? fetch_(device_, from, out) : detail::copy_elements(from, out);
  }
  void take(const detail::ViewedField<scalar>& field) {
    set_sizes(field.samples, field.shape);
    view_ = field.row_major;
    strided_ = field.strided;
    viewed_ = true;
  }
  std::size_t set_sizes(std::size_t samples, const Shape& shape) {
    const std::size_t size = detail::field_length(name, samples, shape);
    shape_ = shape;
    samples_ = samples;
    sample_size_ = shape.size();
    strided_ = {};
    device_ = nullptr;
    return size;
  }
  static std::size_t whole_samples(std::size_t values, const Shape& shape) {
    const std::size_t size = detail::field_length(name, 1, shape);
    if (size == 0 || values % size != 0) detail::refuse_field_length(name, values, shape);
    return values / size;
  }

  mutable std::vector<scalar> owned_;  // also the row-major copy of a View of another layout
  std::span<const scalar> view_;
  detail::StridedArray<const scalar> strided_;
  const void* device_ = nullptr;
  void (*fetch_)(const void* device, const detail::StridedArray<const scalar>& from, scalar* out) = nullptr;
  bool viewed_ = false;
  Shape shape_;
  std::size_t samples_ = 0, sample_size_ = 1;
};

namespace detail {

/// The place of Wanted among F...; their number if it is not there.
template <class Wanted, class... F>
consteval std::size_t place_of_field() {
  std::size_t place = 0;
  (void)((std::is_same_v<Wanted, F> || (++place, false)) || ...);
  return place;
}

/// An X<field> for each field, found by the field; one that is not there is refused in one line.
template <template <class> class X, class... F>
struct ByField {
  std::tuple<X<F>...> all = {};

  template <class Wanted>
  auto& operator[](Wanted) {
    return find<Wanted>(all);
  }
  template <class Wanted>
  const auto& operator[](Wanted) const {
    return find<Wanted>(all);
  }

 private:
  template <class Wanted>
  static auto& find(auto& all) {
    static_assert(BatchHasField<Wanted, F...>,
                  "weft: the batch has no such field: ask for one of those that its FieldBatch names, or add this one to them");
    if constexpr (BatchHasField<Wanted, F...>) {
      return std::get<place_of_field<Wanted, F...>()>(all);
    } else {
      // Its uses cause no second error. An argument that is no field, such as "image" or 0, is taken for the first field.
      static X<std::conditional_t<std::is_base_of_v<AnyFieldOfBatch, Wanted>, Wanted, std::tuple_element_t<0, std::tuple<F...>>>>
          none;
      return none;
    }
  }
};

template <class F>
using FieldShape = Shape;
template <class F>
using FieldSpan = std::span<typename F::scalar>;

}  // namespace detail

/// The fields of a TokenBatch, for models that are no recipe: batch[fields::tokens] is [tokens], cut over cp.
namespace fields {
inline constexpr data::Field<"tokens", std::int32_t, data::SequenceDim<0>> tokens;
inline constexpr data::Field<"targets", std::int32_t, data::SequenceDim<0>> targets;
}  // namespace fields

/// One data rank's share of one step: [samples, shape...] of each field, in host memory, cut into micro-batches of equal size.
template <auto... fields>
struct FieldBatch {
  static_assert((std::is_base_of_v<detail::AnyFieldOfBatch, std::remove_cvref_t<decltype(fields)>> && ...),
                "weft: a FieldBatch is of Fields: FieldBatch<image, label>");
  static_assert(sizeof...(fields) > 0, "weft: a FieldBatch has at least one field");
  static_assert(detail::have_different_names<std::remove_cvref_t<decltype(fields)>...>(),
                "weft: a FieldBatch's fields have different names");

  /// The shape of one sample of each field: shapes[image] = {1, 28, 28}. A scalar's is {}.
  using Shapes = detail::ByField<detail::FieldShape, std::remove_cvref_t<decltype(fields)>...>;
  /// One sample of each field, to be written: sample[image] is a span of [shape...].
  using Sample = detail::ByField<detail::FieldSpan, std::remove_cvref_t<decltype(fields)>...>;

  std::size_t samples = 0;        ///< of this share
  std::size_t micro_batches = 1;  ///< divides `samples`
  std::size_t first_sample = 0;   ///< index in the global batch of this share's first sample
  BatchStep step = {};            ///< for which dropout is drawn; unset: the model counts its steps
  detail::ByField<FieldValues, std::remove_cvref_t<decltype(fields)>...> values = {};  ///< batch[image] is values[image]
  std::uint64_t choice = 0;  ///< a hash of the samples' ids, if a data::Reservoir drew them; ranks with pieces compare it

  /// The values of a field. A field that the batch lacks is an error of the compiler.
  template <class Wanted>
  auto& operator[](Wanted field) {
    return values[field];
  }
  template <class Wanted>
  const auto& operator[](Wanted field) const {
    return values[field];
  }

  /// Room for so many samples of each field, owned and to be written.
  void resize(std::size_t count, const Shapes& shapes) {
    samples = count;
    for_each([&](auto field, auto& of_field) { of_field.resize(count, shapes[field]); });
  }
  /// Sample i of each field, to be written.
  Sample sample(std::size_t i) {
    Sample row;
    for_each([&](auto field, auto& of_field) {
      const std::size_t size = of_field.shape().size();
      row[field] = of_field.writable().subspan(i * size, size);
    });
    return row;
  }
  std::size_t samples_of_micro_batch() const { return samples / micro_batches; }

  /// f(field, batch[field]) for each field.
  template <class Function>
  void for_each(Function&& f) {
    (f(fields, values[fields]), ...);
  }
  template <class Function>
  void for_each(Function&& f) const {
    (f(fields, values[fields]), ...);
  }

  /// Throws ShapeError if a field has not `samples` samples, or if they are not whole micro-batches. A batch of inputs may have
  /// fields without values.
  void check(detail::BatchUse use = detail::BatchUse::all) const {
    for_each([&](auto field, const auto& of_field) {
      if (use == detail::BatchUse::inputs && of_field.samples() == 0) return;
      if (of_field.samples() != samples) detail::refuse_field_samples(field.name, of_field.samples(), of_field.shape(), samples);
    });
    if (micro_batches == 0 || samples % micro_batches != 0) detail::refuse_micro_batches(samples, micro_batches);
  }
};

}  // namespace weft

#ifndef WEFT_COMPILED
#include <weft/data/fields_impl.hpp>
#endif
