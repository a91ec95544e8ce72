// SPDX-License-Identifier: Apache-2.0
#pragma once
// Batch normalisation with statistics of the whole micro-batch, summed over every axis that shards its samples or images, so a
// layer on several ranks equals one on one rank. Statistics are exact up to rounding (first the mean, then the squares around it,
// in double). Under Reproducible they have the same bits for every sharding of the samples, because the ranks gather each
// sample's sums and add them in the order of the samples. For evaluation, running means of the statistics are kept between steps.
//
//   BatchNorm norm(context / "norm", channels);   // x [samples, channels, height, width], or another number of dims

#include <cstddef>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <weft/autograd/layer.hpp>
#include <weft/autograd/layer_arguments.hpp>
#include <weft/autograd/nested_variable.hpp>
#include <weft/autograd/parameter.hpp>
#include <weft/autograd/primitive.hpp>
#include <weft/context/step_buffers.hpp>
#include <weft/kernels/batch_norm.hpp>
#include <weft/kernels/elementwise.hpp>
#include <weft/operations/convolution.hpp>
#include <weft/operations/differentiable_parts.hpp>
#include <weft/operations/elementwise.hpp>
#include <weft/operations/rules.hpp>
#include <weft/operations/sums_over_space.hpp>
#include <weft/tensor/to.hpp>
#include <weft/tensor/transfer.hpp>

namespace weft {

/// epsilon is added to the variance; momentum is the weight of a step's statistics in the running ones.
struct BatchNormOptions {
  double epsilon = 1e-5, momentum = 0.1;
};

namespace detail {

// One number per channel, over all samples.
struct ChannelStatistics {
  template <class P>
  using of = std::conditional_t<shard_dim<P> == 0 || (shard_dim<P> > 1), Invariant<typename P::axis>,
                                std::conditional_t<shard_dim<P> == 1, Shard<typename P::axis, 0>, P>>;
};
// One number per channel of each sample.
struct Planes {
  template <class P>
  using of = P;
};
// One number per channel, for all samples.
struct AllSamples {
  template <class P>
  using of = std::conditional_t<shard_dim<P> == 0, Invariant<typename P::axis>, P>;
};
template <class X>
using channel_statistics_t = ruled_t<ChannelStatistics, X, double>;
// The same beside samples, as an operand of operations.
struct BesideSamples {
  template <class P>
  using of = std::conditional_t<shard_dim<P> == 0, Replicated<typename P::axis>, typename ChannelStatistics::template of<P>>;
};

// The counts of a forward without saved state, which its backward adds.
struct CountedInBackward : TapeStep {
  CountedInBackward(std::shared_ptr<StepBuffer> to, std::vector<double> numbers)
      : buffer(std::move(to)), counted(std::move(numbers)) {}
  void apply(Tape&) {
    for (std::size_t i = 0; i < counted.size(); ++i) buffer->sum[i] += counted[i];
  }
  std::shared_ptr<StepBuffer> buffer;
  std::vector<double> counted;
};

// True if the parameters are sharded exactly when X's channels are.
template <class X, class W>
inline constexpr bool channels_fit = false;
template <class T, class U, class E, class... PX, class... PW>
inline constexpr bool channels_fit<Tensor<T, E, PX...>, Tensor<U, E, PW...>> = (((shard_dim<PX> == 1) == (shard_dim<PW> == 0)) &&
                                                                                ...);

/// The sums over all samples of numbers [samples, width], [width]; sharded channels stay sharded.
template <class Context, class N>
auto sum_over_samples(const Context& context, const N& numbers) {
  const std::size_t width = numbers.columns();
  if (context.env.separates_terms) {
    const auto all = to_layout_of<ruled_t<AllSamples, N>>(context, numbers);
    channel_statistics_t<N> sums(numbers.device(), {width});
    kernels::column_sums<double>(all.device(), all.rows(), width, all.data(), width, sums.data(), false);
    sum_over_space<N, 2>(context, sums);
    return sums;
  } else {
    ruled_t<ChannelSums, N, double> sums(numbers.device(), {width});
    kernels::column_sums<double>(numbers.device(), numbers.rows(), width, numbers.data(), width, sums.data(), false);
    return to_layout_of<channel_statistics_t<N>>(context, std::move(sums));
  }
}
/// The number of elements of a channel over all samples, of which all ranks have the same number. Rows that a domain axis cuts,
/// such as the nodes of a graph, are counted.
template <class X, class Context>
double elements_of_channel(const Context& context, const X& x, std::size_t channels) {
  double count = count_over_space<X, 2>(context, channels == 0 ? 0 : x.size() / channels);
  Context::for_each_axis([&]<class A>(A axis) {
    if constexpr (shard_dim<placement_t<X, A>> == 0 && is_domain_axis<A>) {
      if (context.size(axis) > 1) context.comm(axis).all_reduce(std::span<double>(&count, 1));
    } else if constexpr (shard_dim<placement_t<X, A>> == 0) count *= double(context.size(axis));
  });
  return count;
}

// Running statistics: value is [means, variances], sum is [means, variances, count], of all channels.
inline void renew_running_statistics(StepBuffer& buffer) {
  const std::size_t channels = buffer.value.size() / 2;
  for (std::size_t i = 0; i < 2 * channels; ++i) {
    const double count = buffer.sum[2 * channels + i % channels];
    if (count != 0) buffer.value[i] += buffer.rate * (buffer.sum[i] / count - buffer.value[i]);
  }
}

}  // namespace detail

/// y = (x - mean) / sqrt(variance + epsilon) * weight + bias, by channel, over samples and pixels (Ioffe and Szegedy 2015); x
/// [samples, channels, ...]. Parameters "weight", "bias" [channels]; buffer "running" [2, channels]: running means and unbiased
/// variances. After each training step, the mean over its micro-batches is added with weight `momentum`; evaluation uses the
/// buffer. An axis may shard samples, or channels if the parameters have its rule: BatchNorm<Shard<tp, 0>>; domain axes may shard
/// the images, in pieces of any extents. Communication over the axes that shard samples or images: two all-reduces of [channels]
/// in forward, and one of a number for images, one of [2, channels] in backward. Each micro-batch has separate statistics, so a
/// result depends on the number of micro-batches, but not on the number of ranks that share one.
template <Placement... Rules>
class BatchNorm : public Primitive<BatchNorm<Rules...>> {
 public:
  /// Refuses other arguments.
  template <class... A>
  requires detail::WrongArguments<detail::LayerArguments<1, std::size_t, BatchNormOptions>, A...>
  explicit BatchNorm(const A&...) : BatchNorm(detail::refused_layer<BatchNorm>()) {
    static_assert(sizeof...(A) > 99,
                  "weft: BatchNorm takes the context with its name and the channels, in the constructor of your Module: "
                  "`BatchNorm<> norm;`, norm(context / \"norm\", channels), and options with their names, {.momentum = 0.1}");
  }
  template <class Context>
  BatchNorm(const Context& context, std::size_t channels, const BatchNormOptions& options = {})
      : weight(context, "weight", {channels}, ones), bias(context, "bias", {channels}, zeros), epsilon_(options.epsilon) {
    running_ = detail::make_step_buffer(context, "running", 2 * channels, 3 * channels, detail::renew_running_statistics,
                                        options.momentum);
    for (std::size_t c = 0; c < channels; ++c) running_->value[channels + c] = 1;
  }

  template <class Context, class X>
  auto forward(const Context& context, const X& x) const {
    require_placed<X>();
    using S = detail::channel_statistics_t<X>;
    const Extents e = extents(x);
    S mean, rstd;
    double share = 0;
    std::vector<double> counted;
    if (context.env.training) {
      const double elements = elements_in_training(context, x, e.channels);
      share = 1 / elements;
      const detail::ruled_t<detail::Planes, X, double> planes(x.device(), {e.samples, e.channels});
      kernels::plane_sums(x.device(), e.samples * e.channels, e.pixels, x.data(), planes.data());
      mean = scale(detail::sum_over_samples(context, planes), share);
      kernels::plane_squares(x.device(), e.samples, e.channels, e.pixels, x.data(), mean.data(), planes.data());
      rstd = scale(detail::sum_over_samples(context, planes), share);
      counted = count<X>(context, e.channels, copy_to_host(mean), copy_to_host(rstd), elements);
      if (detail::counts_at_once(context)) add_counted(counted);
    } else {
      mean = running_statistic<S, X>(context, x.device(), 0);
      rstd = running_statistic<S, X>(context, x.device(), 1);
    }
    kernels::reciprocal_roots(x.device(), e.channels, 1, epsilon_, rstd.data());
    X y(x.device(), x.shape());
    kernels::batch_norm_forward(x.device(), e.samples, e.channels, e.pixels, x.data(), mean.data(), rstd.data(),
                                weight.for_operand(x).data(), bias.for_operand(x).data(), y.data());
    return Result{std::move(y), Saved<X, S>{x, std::move(mean), std::move(rstd), share, std::move(counted)}};
  }
  template <class Context, class Saved, class G>
  auto backward_input(const Context& context, Saved saved, const G& g) {
    const auto& x = saved.x;
    require_gradient_of<decltype(saved.x), G>();
    const Extents e = extents(x);
    const detail::ruled_t<detail::Planes, G, double> planes(x.device(), {e.samples, 2 * e.channels});
    kernels::plane_gradient_sums(x.device(), e.samples, e.channels, e.pixels, x.data(), saved.mean.data(), saved.rstd.data(),
                                 g.data(), planes.data());
    const auto sums = detail::sum_over_samples(context, planes);  // [2 * channels]: of bias and weight
    G dx(x.device(), x.shape());
    kernels::batch_norm_backward(x.device(), e.samples, e.channels, e.pixels, x.data(), saved.mean.data(), saved.rstd.data(),
                                 weight.for_operand(x).data(), g.data(), sums.data(), saved.share, dx.data());
    add_counted(saved.counted);
    using Sum = detail::ruled_t<detail::ChannelSums, G, double>;
    return InputGradient{std::move(dx), std::pair{part_of<Sum>(context, sums, 1), part_of<Sum>(context, sums, 0)}};
  }
  template <class Context, class D>
  void backward_weight(const Context& context, D deferred) {
    using A = accumulate_t<typename Context::scalar>;
    weight.accumulate(context, cast<A>(deferred.first));
    bias.accumulate(context, cast<A>(deferred.second));
  }

  /// The same in operations on Variables, inside of grad (operations/grad.hpp), of images that no domain axis cuts. In training
  /// each call counts for the running statistics. Throws UsageError in a reproducible run.
  auto formula(const auto& x) const {
    const auto& values = detail::bottom_of(x);
    using X = std::remove_cvref_t<decltype(values)>;
    require_placed<X>();
    constexpr bool whole = !detail::cut_in_space<X>;
    static_assert(whole,
                  "weft: grad(f, x): BatchNorm of images that a domain axis cuts has no second derivative: gather them first, "
                  "to<Invariant<axis>>(x)");
    if constexpr (!whole) {
      return detail::AlreadyRefused();
    } else {
      using T = typename X::value_type;
      using Whole = detail::ruled_t<detail::ChannelStatistics, X, T>;
      using S = detail::ruled_t<detail::BesideSamples, X, T>;
      const auto& context = x.context();
      const bool training = context.env.training;
      if (training && context.env.separates_terms)
        throw_error<UsageError>(
            {"BatchNorm inside of grad: a reproducible run (numerics.reproducible) adds its statistics sample by "
             "sample, and a derivative of them does not"});
      const Extents e = extents(values);
      const double elements = training ? elements_in_training(context, values, e.channels) : 1;
      Shape shape{e.samples, e.channels, e.pixels};
      shape.set_sharding(0, values.shape().sharding(0)).set_sharding(1, values.shape().sharding(1));
      const auto planes = detail::viewed<X>(x, shape);
      const auto statistic = [&](const auto& of, std::size_t which) {
        if (!training) return detail::constant_at(of, running_statistic<S, X>(context, values.device(), which));
        return detail::placed_as<S>(detail::placed_as<Whole>(scale(sum<0>(sum<2>(of)), 1 / elements)));
      };
      const auto mean = statistic(planes, 0);
      const auto centred = planes - unflatten<0>(mean, 1);
      const auto variance = statistic(square(centred), 1);
      if (training) {
        auto counted = count<X>(context, e.channels, copy_to_host(cast<double>(detail::bottom_of(mean))),
                                copy_to_host(cast<double>(detail::bottom_of(variance))), elements);
        if (detail::counts_at_once(context)) add_counted(counted);
        else detail::ground_of(x).tape().template record<detail::CountedInBackward>(running_, std::move(counted));
      }
      const auto gained = centred / unflatten<0>(sqrt(variance + epsilon_), 1) * unflatten<0>(beside(planes, weight), 1);
      return detail::viewed<X>(gained + unflatten<0>(beside(gained, bias), 1), values.shape());
    }
  }

  // Replaces backward if it will not be called.
  template <class Saved>
  void count_at_once(Saved& saved) const {
    add_counted(saved.counted);
  }

  /// The running means and variances of all channels, [2, channels]: equal on every rank.
  const std::vector<double>& running() const { return running_->value; }

  Parameter<Rules...> weight, bias;

 private:
  template <class X, class S>
  struct Saved {
    X x;
    S mean, rstd;
    double share;                 // one over the number of elements of a channel; 0 in evaluation
    std::vector<double> counted;  // contribution of this call to the sums of the running statistics
  };
  struct Extents {
    std::size_t samples, channels, pixels;
  };
  template <class X>
  static constexpr void require_placed() {
    require_not_partial<X>();
    static_assert(!detail::cut_otherwise_from<X, 2>,
                  "weft: BatchNorm needs whole images, but an axis cuts their dims, which are from 2 (height and width): cut "
                  "samples or channels, or images over a domain axis (dx, dy, dz)");
    static_assert(
        detail::channels_fit<X, decltype(std::declval<const Parameter<Rules...>&>().for_operand(std::declval<const X&>()))>,
        "weft: BatchNorm: an axis cuts the channels of x and not the parameters, or the reverse: BatchNorm<Shard<tp, 0>> "
        "beside channels that tp cuts, BatchNorm<> beside whole ones");
  }
  template <class Context, class X>
  static double elements_in_training(const Context& context, const X& x, std::size_t channels) {
    if (x.device().batch_invariant())
      throw_error<UsageError>(
          {"BatchNorm: numerics.batch_invariant: in training a sample's numbers depend on the statistics of the batch: leave "
           "batch_invariant out"});
    const double elements = detail::elements_of_channel(context, x, channels);
    if (elements == 0) throw_error<ShapeError>({detail::call_text("BatchNorm", {x}), ": there are no elements"});
    return elements;
  }
  // The running means or variances of this rank's channels of X.
  template <class S, class X, class Context, class Device>
  S running_statistic(const Context& context, Device& device, std::size_t which) const {
    const std::size_t channels = weight.state().local()[0];
    const double* const value =
        running_->value.data() + which * (running_->value.size() / 2) + first_channel<X>(context, channels);
    using T = typename S::value_type;
    S out(device, {channels});
    if constexpr (std::is_same_v<T, double>) copy_from_host(out, std::span<const T>(value, channels));
    else copy_from_host(out, std::span<const T>(std::vector<T>(value, value + channels)));
    return out;
  }
  Extents extents(detail::NamedOperand x) const {
    const Shape& shape = x.shape();
    if (shape.rank() < 2 || shape[1] != weight.state().local()[0])
      throw_error<ShapeError>({detail::call_text("BatchNorm", {x}), ": expected [samples, channels, ...] of ",
                               weight.state().local()[0], " channels"});
    return {shape[0], shape[1], shape[0] * shape[1] == 0 ? 0 : shape.size() / (shape[0] * shape[1])};
  }
  template <class X, class Context>
  static std::size_t first_channel([[maybe_unused]] const Context& context, [[maybe_unused]] std::size_t channels) {
    std::size_t first = 0;
    Context::for_each_axis([&]<class A>(A axis) {
      if constexpr (shard_dim<placement_t<X, A>> == 1) first = context.rank(axis) * channels;
    });
    return first;
  }
  // Among ranks with the same statistics one counts, so the sums over all ranks have the same bits in every layout. Ranks of
  // other pp stages have other layers.
  template <class X, class Context>
  std::vector<double> count(const Context& context, std::size_t channels, const std::vector<double>& mean,
                            const std::vector<double>& variance, double elements) const {
    const std::size_t all = running_->value.size() / 2, first = first_channel<X>(context, channels);
    bool counts = true;
    Context::for_each_axis([&]<class A>(A axis) {
      if constexpr (shard_dim<placement_t<X, A>> != 1 && !std::is_same_v<A, pp>) counts = counts && context.rank(axis) == 0;
    });
    std::vector<double> counted(3 * all);
    for (std::size_t c = 0; c < channels && counts; ++c) {
      counted[first + c] = mean[c];
      counted[all + first + c] = elements > 1 ? variance[c] * (elements / (elements - 1)) : variance[c];
      counted[2 * all + first + c] = 1;
    }
    return counted;
  }
  // One half of the sums as a parameter's gradient: the whole sum on the first of the ranks that would otherwise reduce it.
  template <class Sum, class Context, class S>
  static auto part_of(const Context& context, const S& sums, std::size_t half) {
    const std::size_t channels = sums.size() / 2;
    return to_layout_of<Sum>(context, S(sums.device(), {channels}, sums.buffer(), half * channels));
  }

  void add_counted(const std::vector<double>& counted) const {
    for (std::size_t i = 0; i < counted.size(); ++i) running_->sum[i] += counted[i];
  }

  double epsilon_;
  std::shared_ptr<detail::StepBuffer> running_;
};

template <class Context, class... A>
BatchNorm(const Context&, A&&...) -> BatchNorm<>;

}  // namespace weft
