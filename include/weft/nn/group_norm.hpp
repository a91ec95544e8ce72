// SPDX-License-Identifier: Apache-2.0
#pragma once
// Normalisation of each sample by itself: over groups of channels (GroupNorm) or over each channel (InstanceNorm), for images of
// any number of dims. An axis that cuts samples needs no communication in forward; a domain axis that cuts the images sums the
// statistics over its ranks.
//
//   GroupNorm<> norm(context / "norm", 8, channels);   // 8 groups; x [samples, channels, ...]

#include <cstddef>
#include <optional>
#include <type_traits>
#include <utility>

#include <weft/autograd/layer.hpp>
#include <weft/autograd/layer_arguments.hpp>
#include <weft/autograd/nested_variable.hpp>
#include <weft/autograd/parameter.hpp>
#include <weft/autograd/primitive.hpp>
#include <weft/kernels/batch_norm.hpp>
#include <weft/kernels/elementwise.hpp>
#include <weft/kernels/group_norm.hpp>
#include <weft/nn/batch_norm.hpp>
#include <weft/operations/convolution_rules.hpp>
#include <weft/operations/differentiable_parts.hpp>
#include <weft/operations/rules.hpp>
#include <weft/operations/sums_over_space.hpp>
#include <weft/tensor/tensor.hpp>

namespace weft {

/// epsilon is added to the variance; `affine`: whether there are parameters.
struct GroupNormOptions {
  double epsilon = 1e-5;
  bool affine = true;
};
/// The same for InstanceNorm.
struct InstanceNormOptions {
  double epsilon = 1e-5;
  bool affine = false;
};

namespace detail {

template <bool Instance, Placement... Rules>
class SampleNorm : public Primitive<SampleNorm<Instance, Rules...>> {
  static constexpr const char* name = Instance ? "InstanceNorm" : "GroupNorm";
  using Arguments = std::conditional_t<Instance, LayerArguments<1, std::size_t, InstanceNormOptions>,
                                       LayerArguments<2, std::size_t, std::size_t, GroupNormOptions>>;

 public:
  /// Refuses other arguments.
  template <class... A>
  requires WrongArguments<Arguments, A...>
  explicit SampleNorm(const A&...) : SampleNorm(refused_layer<SampleNorm>()) {
    static_assert(Instance || sizeof...(A) > 99,
                  "weft: GroupNorm takes the context with its name, the groups and the channels, in the constructor of your "
                  "Module: `GroupNorm<> norm;`, norm(context / \"norm\", 8, channels), and options with their names, "
                  "{.epsilon = 1e-6}");
    static_assert(!Instance || sizeof...(A) > 99,
                  "weft: InstanceNorm takes the context with its name and the channels, in the constructor of your Module: "
                  "`InstanceNorm<> norm;`, norm(context / \"norm\", channels), and options with their names, {.affine = true}");
  }
  template <class Context>
  requires(!Instance)
      SampleNorm(const Context& context, std::size_t groups, std::size_t channels, const GroupNormOptions& options = {})
      : SampleNorm(context, groups, channels, options.epsilon, options.affine) {}
  template <class Context>
  requires(Instance) SampleNorm(const Context& context, std::size_t channels, const InstanceNormOptions& options = {})
      : SampleNorm(context, channels, channels, options.epsilon, options.affine) {}

  template <class Context, class X>
  auto forward(const Context& context, const X& x) const {
    require_placed<X>();
    using T = typename X::value_type;
    using S = Numbers<X>;
    const kernels::GroupedChannels s = grouped(context, x);
    auto& device = x.device();
    S mean(device, {s.rows()}), rstd(device, {s.rows()});
    const double elements = count_over_space<X, 2>(context, s.elements()), share = elements == 0 ? 0 : 1 / elements;
    kernels::plane_sums(device, s.rows(), s.elements(), x.data(), mean.data());
    sum_over_space<X, 2>(context, mean);
    mean = scale(mean, share);
    kernels::plane_squares(device, 1, s.rows(), s.elements(), x.data(), mean.data(), rstd.data());
    sum_over_space<X, 2>(context, rstd);
    kernels::reciprocal_roots(device, s.rows(), share, epsilon_, rstd.data());
    X y(device, x.shape());
    const auto gain = of_channels(weight, x), shift = of_channels(bias, x);
    kernels::group_norm_forward<T>(device, s, x.data(), mean.data(), rstd.data(), gain.data(), shift.data(), y.data());
    return Result{std::move(y), Saved<X, S>{x, std::move(mean), std::move(rstd), share}};
  }
  template <class Context, class Saved, class G>
  auto backward_input(const Context& context, Saved saved, const G& g) {
    const auto& x = saved.x;
    require_gradient_of<decltype(saved.x), G>();
    using T = typename G::value_type;
    using S = Numbers<G>;
    const kernels::GroupedChannels s = grouped(context, x);
    auto& device = x.device();
    const S mean(device, {s.planes()}), rstd(device, {s.planes()}), sums(device, {2 * s.planes()}), terms(device, {2 * s.rows()});
    kernels::spread_to_channels(device, s, saved.mean.data(), mean.data());
    kernels::spread_to_channels(device, s, saved.rstd.data(), rstd.data());
    kernels::plane_gradient_sums(device, 1, s.planes(), s.pixels, x.data(), mean.data(), rstd.data(), g.data(), sums.data());
    const auto gain = of_channels(weight, x);
    kernels::group_norm_terms<T>(device, s, saved.share, sums.data(), gain.data(), terms.data());
    sum_over_space<G, 2>(context, terms);
    G dx(device, x.shape());
    kernels::group_norm_backward<T>(device, s, x.data(), saved.mean.data(), saved.rstd.data(), gain.data(), g.data(),
                                    terms.data(), dx.data());
    return InputGradient{std::move(dx), std::pair{over_samples<G>(s, sums, 1), over_samples<G>(s, sums, 0)}};
  }
  template <class Context, class D>
  void backward_weight(const Context& context, D deferred) {
    using A = accumulate_t<typename Context::scalar>;
    if (!weight) return;
    weight->accumulate(context, cast<A>(deferred.first));
    bias->accumulate(context, cast<A>(deferred.second));
  }

  /// The same in operations on Variables, inside of grad (operations/grad.hpp), of images that no domain axis cuts.
  auto formula(const auto& x) const {
    const auto& values = bottom_of(x);
    using X = std::remove_cvref_t<decltype(values)>;
    require_placed<X>();
    constexpr bool whole = !cut_in_space<X>;
    static_assert(whole,
                  "weft: grad(f, x): GroupNorm of images that a domain axis cuts has no second derivative: gather them first, "
                  "to<Invariant<axis>>(x)");
    if constexpr (!whole) {
      return AlreadyRefused();
    } else {
      const kernels::GroupedChannels s = grouped(x.context(), values);
      const auto viewed_as = [&values](const auto& y, std::size_t channels, std::size_t numbers) {
        Shape shape{values.shape()[0], channels, numbers};
        return viewed<X>(y, shape.set_sharding(0, values.shape().sharding(0)).set_sharding(1, values.shape().sharding(1)));
      };
      const auto groups = viewed_as(x, s.groups, s.elements());
      const auto centred = groups - unflatten<1>(mean<2>(groups), 1);
      const auto normed = centred / sqrt(unflatten<1>(mean<2>(square(centred)), 1) + epsilon_);
      if (!weight) return viewed<X>(normed, values.shape());
      const auto planes = viewed_as(normed, s.channels, s.pixels);
      const auto gained = planes * unflatten<0>(beside(planes, *weight), 1);
      return viewed<X>(gained + unflatten<0>(beside(gained, *bias), 1), values.shape());
    }
  }

  std::optional<Parameter<Rules...>> weight, bias;

 private:
  template <class X>
  static constexpr void require_placed() {
    require_not_partial<X>();
    static_assert(
        !cut_otherwise_from<X, 2>,
        "weft: GroupNorm needs whole images, but an axis cuts their dims, which are from 2 (height and width): cut samples or "
        "channels, or images over a domain axis (dx, dy, dz)");
    static_assert(
        channels_fit<X, decltype(std::declval<const Parameter<Rules...>&>().for_operand(std::declval<const X&>()))>,
        "weft: GroupNorm: an axis cuts the channels of x and not the parameters, or the reverse: GroupNorm<Shard<tp, 0>> "
        "beside channels that tp cuts, GroupNorm<> beside whole ones");
  }
  // Statistics stay inside the layer, so they have no placement.
  template <class X>
  using Numbers = Tensor<double, typename X::execution_space>;
  template <class X, class S>
  struct Saved {
    X x;
    S mean, rstd;
    double share;  // one over the number of elements of a group
  };
  template <class Context>
  SampleNorm(const Context& context, std::size_t groups, std::size_t channels, double epsilon, bool affine)
      : groups_(groups), channels_(channels), epsilon_(epsilon) {
    if (groups == 0 ? channels != 0 : channels % groups != 0)
      throw_error<ShapeError>({name, ": channels(", channels, ") are not groups(", groups, ") of equal size"});
    if (!affine) return;
    weight.emplace(context, "weight", Shape{channels}, ones);
    bias.emplace(context, "bias", Shape{channels}, zeros);
  }
  // The vector of a parameter beside x, or one without elements.
  template <class P, class X>
  static auto of_channels(const std::optional<P>& parameter, const X& x) {
    using V = decltype(parameter->for_operand(x));
    return parameter ? parameter->for_operand(x) : V();
  }
  template <class Context, class X>
  kernels::GroupedChannels grouped([[maybe_unused]] const Context& context, const X& x) const {
    std::size_t ranks = 1;
    Context::for_each_axis([&]<class A>(A axis) {
      if constexpr (shard_dim<placement_t<X, A>> == 1) ranks *= context.size(axis);
    });
    const Shape& shape = x.shape();
    if (shape.rank() < 2 || shape[1] * ranks != channels_ || (ranks > 1 && shape.sharding(1) != DimSharding::even))
      throw_error<ShapeError>({call_text(name, {x}), ": expected [samples, channels, ...] of ", channels_ / ranks, " channels"});
    if (groups_ % ranks != 0)
      throw_error<LayoutError>(
          {name, ": groups(", groups_, ") % ", ranks, " != 0: the ranks that cut the channels have whole groups"});
    const std::size_t planes = shape[0] * shape[1];
    return {shape[0], shape[1], groups_ / ranks, planes == 0 ? 0 : shape.size() / planes};
  }
  // One half of the sums of all planes, added over this rank's samples.
  template <class G>
  static auto over_samples(const kernels::GroupedChannels& s, const Numbers<G>& sums, std::size_t half) {
    const ruled_t<ChannelSums, G, double> out(sums.device(), {s.channels});
    kernels::column_sums<double>(sums.device(), s.samples, s.channels, sums.data() + half * s.planes(), s.channels, out.data(),
                                 false);
    return out;
  }

  std::size_t groups_, channels_;
  double epsilon_;
};

}  // namespace detail

/// y = (x - mean) / sqrt(variance + epsilon) * weight + bias, with the mean and the variance of a group of channels of one sample
/// over all of its elements (Wu and He, arXiv:1803.08494); x [samples, channels, ...]. GroupNorm(context, groups, channels,
/// options). Parameters "weight", "bias" [channels], unless the option `affine` is false. An axis may shard samples, or channels
/// in whole groups, GroupNorm<Shard<tp, 0>>; domain axes may shard the images, in pieces of any extents. Communication over each
/// of these: two all-reduces of [samples, groups] and one of a number in forward, one of [2, samples, groups] in backward. Throws
/// ShapeError for channels that do not fit, LayoutError for an axis that cuts a group. Statistics are summed in accumulate_t and
/// kept in double.
template <Placement... Rules>
using GroupNorm = detail::SampleNorm<false, Rules...>;
/// The same with each channel as a group (Ulyanov et al., arXiv:1607.08022), by default without parameters, as
/// torch.nn.InstanceNorm2d: InstanceNorm(context, channels, options).
template <Placement... Rules>
using InstanceNorm = detail::SampleNorm<true, Rules...>;

}  // namespace weft
