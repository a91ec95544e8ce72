// SPDX-License-Identifier: Apache-2.0
#pragma once
// The named fields of a micro-batch as placed tensors on the device, which stack units and Modules read as batch[image]. A field
// is copied at its first use, so a pipeline's last stage copies labels but no images.
//
//   auto forward(const auto& context, const auto& batch) const { return project.forward(context, batch[image]); }
//
// Floating-point fields are converted to the model's scalar, int32 and int64 stay as they are, other integers become int32.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <weft/autograd/variable.hpp>
#include <weft/context/input_placement.hpp>
#include <weft/data/batch.hpp>
#include <weft/data/fields.hpp>
#include <weft/pipeline/batch_inputs.hpp>
#include <weft/pipeline/sequence_field.hpp>
#include <weft/tensor/strided_copy.hpp>
#include <weft/tensor/transfer.hpp>

namespace weft {

namespace detail {

/// The scalar in which a field's values reach the layers of a model.
template <class T, class S>
using device_scalar_t = std::conditional_t<std::is_floating_point_v<T>, S,
                                           std::conditional_t<std::is_same_v<T, std::int64_t>, std::int64_t, std::int32_t>>;

/// X with the cuts of a field over domain axes.
template <class X, class F>
struct CutField;
template <class T, class E, class... P, class F>
struct CutField<Tensor<T, E, P...>, F> {
  template <class Q>
  static constexpr int dim = F::template cut_dim<typename Q::axis>;
  using type = Tensor<T, E, std::conditional_t<(dim<P> > 0), Shard<typename P::axis, dim<P>>, P>...>;
};

/// A field on the device, [samples of the micro-batch, shape...].
template <class Context, class F>
using field_tensor_t =
    typename CutField<sequence_tensor_t<input_t<device_scalar_t<typename F::scalar, typename Context::scalar>, Context>, F>,
                      F>::type;

inline Shape with_samples(std::size_t samples, const Shape& sample, std::string_view name) {
  if (sample.rank() == Shape::max_rank)
    throw_error<ShapeError>({"field ", name, ": a sample of ", sample.text(), " has ", sample.rank(),
                             " dims, and with the samples a tensor has at most ", Shape::max_rank,
                             ": give the batch a flatter shape"});
  Shape all = Shape::of_rank(sample.rank() + 1);
  all[0] = samples;
  for (std::size_t dim = 0; dim < sample.rank(); ++dim) all[dim + 1] = sample[dim];
  return all;
}

/// The values of `samples` samples on the device, in the scalar of X.
template <class X, class T>
X field_to_device(typename X::device_type& device, std::span<const T> values, std::size_t samples, const Shape& sample,
                  std::string_view name) {
  using S = typename X::value_type;
  X x(device, with_samples(samples, sample, name));
  if constexpr (std::is_same_v<S, T>) {
    copy_from_host(x, values);
  } else {
    std::vector<S> converted(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      if constexpr (std::is_floating_point_v<T> && !std::is_floating_point_v<S>) converted[i] = S(float(values[i]));
      else converted[i] = S(values[i]);
    }
    copy_from_host(x, std::span<const S>(converted));
  }
  return x;
}

/// The fields F of samples on the device, each copied when it is first used. Copies share their tensors.
template <class Context, class... F>
class FieldInputs {
 public:
  /// A field's values on the host: those of the selected samples, contiguous.
  template <class One>
  struct Source {
    std::span<const typename One::scalar> values;  // [samples, shape...]
    Shape shape;
    bool absent = false;                                    // the batch has no values for the field
    StridedArray<const typename One::scalar> strided = {};  // in place of `values`, a View
    bool lies = false;                                      // the View may be taken where it lies
  };
  using Sources = std::tuple<Source<F>...>;

  FieldInputs() = default;
  /// `part`: this rank's positions in fields that are whole here. `owner`: keeps the values; null if the caller's batch does.
  FieldInputs(typename Context::device_type& device, std::size_t samples, Sources sources, const SequencePart& part = {},
              std::shared_ptr<const void> owner = nullptr)
      : state_(std::make_shared<State>(State{&device, samples, std::move(sources), {}, part, std::move(owner)})) {}
  /// Fields without values, until put() gives them tensors.
  explicit FieldInputs(typename Context::device_type& device) : FieldInputs(device, 0, {Source<F>{{}, {}, true}...}) {}
  /// Takes tensors of the first fields; the others have none. Copies of this object have them, too.
  template <class... X>
  void put(std::size_t samples, X&&... first) {
    state_->samples = samples;
    state_->tensors = {};
    put_at(std::index_sequence_for<X...>(), std::forward<X>(first)...);
  }

  /// The field of the micro-batch, [samples, shape...].
  template <class Wanted>
  const auto& operator[](Wanted) const {
    if constexpr (BatchHasField<Wanted, F...>) {
      auto& tensor = std::get<Held<Wanted>>(state_->tensors).tensor;
      if (!tensor) {
        const auto& source = std::get<Source<Wanted>>(state_->sources);
        if (source.absent) refuse_absent_field(Wanted::name);
        using X = field_tensor_t<Context, Wanted>;
        if (source.strided.data != nullptr) {
          if (source.lies) {
            tensor = tensor_of<X>(*state_->device, source.strided);
          } else {
            tensor = X(*state_->device, with_samples(state_->samples, source.shape, Wanted::name));
            copy_from_strided(*state_->device, source.strided, tensor.data());
          }
          return std::as_const(tensor);
        }
        const auto copy = [&](auto values, const Shape& shape) {
          tensor =
              field_to_device<field_tensor_t<Context, Wanted>>(*state_->device, values, state_->samples, shape, Wanted::name);
        };
        if (Wanted::sequence_dim < 1 || state_->part.ranks == 1) {
          copy(source.values, source.shape);
        } else {
          const auto mine = part_of_sequences(source.values, source.shape, Wanted::sequence_dim, state_->part);
          Shape shape = source.shape;
          shape[std::size_t(Wanted::sequence_dim) - 1] /= state_->part.ranks;
          copy(std::span<const typename Wanted::scalar>(mine), shape);
        }
      }
      return std::as_const(tensor);
    } else {
      refuse_field<F...>();
      static const AlreadyRefused refused;
      return refused;
    }
  }
  /// The samples of the micro-batch on this rank.
  std::size_t samples() const { return state_->samples; }

  static constexpr std::size_t count = sizeof...(F);
  template <std::size_t i>
  using tensor_t = field_tensor_t<Context, std::tuple_element_t<i, std::tuple<F...>>>;
  template <std::size_t i>
  const tensor_t<i>& at() const {
    return (*this)[std::tuple_element_t<i, std::tuple<F...>>()];
  }

 private:
  template <class One>
  struct Held {
    field_tensor_t<Context, One> tensor;
  };
  struct State {
    typename Context::device_type* device;
    std::size_t samples;
    Sources sources;
    std::tuple<Held<F>...> tensors;
    SequencePart part;
    std::shared_ptr<const void> owner;
  };
  template <std::size_t... I, class... X>
  void put_at(std::index_sequence<I...>, X&&... first) {
    ((std::get<I>(state_->tensors).tensor = std::forward<X>(first)), ...);
  }
  std::shared_ptr<State> state_;
};

/// The inputs of a batch have no gradient; see ModelCall for inputs that have one.
template <class Context, class... F>
struct GradientOf<FieldInputs<Context, F...>> {
  using type = Nothing;
};

}  // namespace detail

/// The fields of a batch in a Module's forward: batch[image] is a Variable without a gradient.
template <class Context, class Of, class... F>
class Variable<Context, detail::FieldInputs<Of, F...>> : operations::OnTape {
 public:
  using context_type = Context;
  using tensor_type = detail::FieldInputs<Of, F...>;

  Variable(tensor_type fields, detail::Tape& tape) : fields_(std::move(fields)), tape_(&tape) {}
  template <class Wanted>
  auto operator[](Wanted field) const {
    using X = std::remove_cvref_t<decltype(fields_[field])>;
    if constexpr (std::is_same_v<X, detail::AlreadyRefused>) return X();
    else return Variable<Context, X>(fields_[field], *tape_);
  }
  /// The samples of the micro-batch on this rank.
  std::size_t samples() const { return fields_.samples(); }
  const tensor_type& value() const { return fields_; }
  const Context& context() const { return tape_->context().as<Context>(); }
  detail::Tape& tape() const { return *tape_; }

 private:
  tensor_type fields_;
  detail::Tape* tape_;
};

namespace detail {

/// The inputs of a model on a FieldBatch: the first unit and the last one take all fields.
template <class Context, auto... of>
class FieldBatchInputs {
 public:
  using batch_type = FieldBatch<of...>;
  static constexpr bool has_tokens = false;
  using device_type = typename Context::device_type;
  using Fields = FieldInputs<Context, std::remove_cvref_t<decltype(of)>...>;
  using First = Fields;
  using Last = Fields;

  FieldBatchInputs(const Context& context, const batch_type& batch)
      : device_(&context.device()), batch_(&batch), part_(sequence_part(context)) {
    batch.for_each([&](auto field, const auto& values) {
      if (field.sequence_dim > 0 && !is_absent(batch, values))
        require_positions(field.name, values.shape(), field.sequence_dim, part_.ranks);
    });
  }
  First first(std::size_t micro) const {
    const BatchShare share = share_of(*batch_);
    return part(share.samples_before(micro), share.micro_batch(micro).sequences);
  }
  Last last(std::size_t micro) const { return first(micro); }

  std::size_t sharers() const { return 1; }
  /// `parts` runs of `count` samples, each `times` times; see TokenInputs::repeated.
  Last repeated(std::size_t micro, std::size_t parts, std::size_t first, std::size_t count, std::size_t times) {
    const std::size_t before = share_of(*batch_).samples_before(micro) + first;
    batch_type& twice = repeated_;
    const auto repeat = [&]<class F>(F field) {
      const auto& from = (*batch_)[field];
      std::vector<typename F::scalar> all;
      for (std::size_t part = 0; part < parts; ++part)
        for (std::size_t time = 0; time < times; ++time) {
          const auto piece = from.part(before + part * count, count);
          all.insert(all.end(), piece.begin(), piece.end());
        }
      twice[field].assign(std::move(all), from.shape());
    };
    twice.samples = parts * times * count;
    (repeat(std::remove_cvref_t<decltype(of)>{}), ...);
    return part_of(twice, 0, parts * times * count);
  }

 private:
  static bool is_absent(const batch_type& batch, const auto& values) { return values.samples() == 0 && batch.samples != 0; }
  Fields part(std::size_t first, std::size_t count) const { return part_of(*batch_, first, count); }
  Fields part_of(const batch_type& batch, std::size_t first, std::size_t count) const {
    const auto source = [&]<class F>(F field) {
      if (is_absent(batch, batch[field])) return typename Fields::template Source<F>{{}, {}, true};
      const void* const lies = batch[field].device();
      if (lies != nullptr && lies != device_) refuse_other_device(F::name);
      if (F::sequence_dim < 1 &&
          (lies != nullptr || on_host<typename Context::execution_space>))  // else a copy on the host is sent
        if (const auto strided = batch[field].strided_part(first, count); strided.data != nullptr)
          return typename Fields::template Source<F>{{}, batch[field].shape(), false, strided, lies != nullptr};
      return typename Fields::template Source<F>{batch[field].part(first, count), batch[field].shape()};
    };
    return Fields(*device_, count, typename Fields::Sources{source(std::remove_cvref_t<decltype(of)>{})...}, part_);
  }

  device_type* device_;
  const batch_type* batch_;
  SequencePart part_;
  batch_type repeated_;  // for the check of the loss
};

/// The inputs on a TokenBatch of a model that is not a recipe: fields::tokens and fields::targets.
template <class Context>
class TokenFieldInputs {
 public:
  using batch_type = TokenBatch;
  static constexpr bool has_tokens = true;
  using device_type = typename Context::device_type;
  using Fields =
      FieldInputs<Context, std::remove_const_t<decltype(fields::tokens)>, std::remove_const_t<decltype(fields::targets)>>;
  using First = Fields;
  using Last = Fields;

  /// The batch must outlive this object, and the fields that it gives.
  TokenFieldInputs(const Context& context, const TokenBatch& batch)
      : device_(&context.device()), part_(part_over_cp(context, batch)), sharers_(sharers_of(*part_)) {}
  First first(std::size_t micro) const {
    const std::size_t first = part_->tokens_before(micro) / sharers_, end = part_->tokens_before(micro + 1) / sharers_;
    const bool absent = part_->targets.empty() && !part_->tokens.empty();
    const auto piece = [&](const std::vector<std::int32_t>& all) { return std::span(all).subspan(first, end - first); };
    return Fields(*device_, end - first,
                  {{piece(part_->tokens), {}}, {absent ? std::span<const std::int32_t>() : piece(part_->targets), {}, absent}},
                  {}, part_);
  }
  Last last(std::size_t micro) const { return first(micro); }
  std::size_t sharers() const { return sharers_; }
  /// As TokenInputs::repeated.
  Last repeated(std::size_t micro, std::size_t parts, std::size_t from, std::size_t count, std::size_t times) {
    const std::size_t before = part_->tokens_before(micro) / sharers_ + from;
    const auto repeat = [&](const std::vector<std::int32_t>& all, std::vector<std::int32_t>& into) {
      into.clear();
      for (std::size_t part = 0; part < parts; ++part)
        for (std::size_t time = 0; time < times; ++time)
          into.insert(into.end(), all.begin() + std::ptrdiff_t(before + part * count),
                      all.begin() + std::ptrdiff_t(before + (part + 1) * count));
    };
    repeat(part_->tokens, tokens_);
    repeat(part_->targets, targets_);
    return Fields(*device_, parts * times * count,
                  {{std::span<const std::int32_t>(tokens_), {}}, {std::span<const std::int32_t>(targets_), {}}});
  }

 private:
  device_type* device_;
  std::shared_ptr<const TokenBatch> part_;
  std::size_t sharers_;
  std::vector<std::int32_t> tokens_, targets_;  // for the check of the loss
};

template <class Context, auto... of, bool recipe>
struct InputsOf<FieldBatch<of...>, Context, recipe> {
  using type = FieldBatchInputs<Context, of...>;
};
template <class Context>
struct InputsOf<TokenBatch, Context, false> {
  using type = TokenFieldInputs<Context>;
};

}  // namespace detail

}  // namespace weft
