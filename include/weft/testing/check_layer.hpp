// SPDX-License-Identifier: Apache-2.0
#pragma once
// A check of a layer's outputs and gradients, in double, on one rank and on several. A user's primitive layer needs only this
// test:
//
//   testing::check_layer([](const auto& context) { return Scale(context, 8); }, {4, 8});
//   testing::check_layer_on<tp>(2, [](const auto& context) { return Up(context, 8); }, {4, 8});

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <weft/autograd/struct_value.hpp>
#include <weft/comm/self.hpp>
#include <weft/comm/threads.hpp>
#include <weft/testing/layer_trial.hpp>
#include <weft/testing/rank_comparison.hpp>

namespace weft::testing {

/// Each placement that models use on the axis, in turn. tp: Invariant<tp> and Shard<tp, 0> (sequence parallelism), cp: Shard<cp,
/// 0>, dp: Shard<dp, 0>, others: Invariant.
struct EveryPlacement {};

namespace detail {

using Root = Context<Compute<Exec, double>>;
using StepRoot = weft::detail::step_context_t<Root>;
using Whole = Tensor<double, Exec>;

inline weft::detail::Environment environment(const CheckOptions& options, const Shape& shape) {
  weft::detail::Environment environment;
  environment.seed = options.seed;
  environment.length = options.length ? options.length : shape[0];
  environment.rows = shape[0];
  return environment;
}
inline weft::detail::EngineState engine(Made& made) {
  weft::detail::EngineState engine;
  engine.add(&made);
  return engine;
}
inline weft::detail::Construction construction(Made& made) {
  weft::detail::Construction construction;
  construction.registry = &made.registry;
  return construction;
}

inline void require(const CheckReport& report, const CheckOptions& options, const std::string& what) {
  if (report.compared == 0) throw Error("check_layer compared nothing");
  if (!(report.error <= options.tolerance))
    throw Error("check_layer: " + what + ": " + (report.worst.find("output") == std::string::npos ? "gradient of " : "") +
                report.worst + " is off by " + std::to_string(report.error) + " of its largest element (tolerance " +
                std::to_string(options.tolerance) + ")");
}

inline void require_input(const Shape& shape, const CheckOptions& options) {
  if (shape.rank() == 0 || shape.size() == 0)
    throw UsageError("check_layer: an input of " + shape.text() +
                     " has no elements: take a shape of at least one row and column, {4, 8}");
  if (options.length != 0 && shape[0] % options.length != 0)
    throw UsageError("check_layer: rows(" + std::to_string(shape[0]) + ") % length(" + std::to_string(options.length) +
                     ") != 0: rows are whole sequences; take " +
                     std::to_string((shape[0] / options.length + 1) * options.length) + " rows");
}

template <class HiddenPlacement>
std::string name_of_placement() {
  constexpr weft::detail::Kind kind = weft::detail::kind_of<HiddenPlacement>;
  const std::string axis(HiddenPlacement::axis::name);
  if (kind == weft::detail::Kind::shard) return "Shard<" + axis + ", " + std::to_string(shard_dim<HiddenPlacement>) + ">";
  return (kind == weft::detail::Kind::invariant    ? "Invariant<"
          : kind == weft::detail::Kind::replicated ? "Replicated<"
                                                   : "Partial<") +
         axis + ">";
}

// Throws unless the rows divide over the ranks as the placement requires.
template <weft::detail::Axis A, class HiddenPlacement>
void require_rows(std::size_t ranks, const Shape& shape, const CheckOptions& options) {
  if constexpr (shard_dim<HiddenPlacement> == 0) {
    const std::size_t rows = shape[0];
    std::size_t unit = ranks;
    if (std::is_same_v<A, cp>) unit = options.length ? options.length : 2 * ranks;
    if (std::is_same_v<A, dp> && options.length) unit = ranks * options.length;
    const auto size = [](std::size_t number) { return std::to_string(number); };
    if (std::is_same_v<A, cp> && options.length % (2 * ranks) != 0)
      throw UsageError("check_layer_on: length(" + size(options.length) + ") % (2 * cp(" + size(ranks) +
                       ")) != 0: every rank of cp has two chunks of each sequence; take a CheckOptions::length of " +
                       size((options.length / (2 * ranks) + 1) * 2 * ranks));
    if (rows % unit != 0)
      throw UsageError(
          "check_layer_on: rows(" + size(rows) + ") of " + shape.text() + " cannot be cut over " + std::string(A::name) + "(" +
          size(ranks) + ") as " + name_of_placement<HiddenPlacement>() + ": take a shape of " +
          (rows > unit ? size(rows / unit * unit) + " or " : "") + size((rows / unit + 1) * unit) + " rows" +
          (std::is_same_v<A, tp> ? ", or only streams that do not cut them: check_layer_on<tp, Invariant<tp>>" : ""));
  }
}

// Checks that L is a layer. If not, the compiler reports this reason and nothing else.
template <class L, class Context, class X>
constexpr bool is_layer_under() {
  using Output = typename weft::detail::forward_of_t<L, Context, X>::output_type;
  if constexpr (weft::detail::is_refused<Output> ||
                weft::detail::is_refused<typename decltype(weft::detail::hidden_of<L, Output>())::type>) {
    return false;
  } else {
    using Step = weft::detail::forward_t<L, Context, X>;
    using Split = decltype(weft::backward_input(std::declval<L&>(), std::declval<const Context&>(),
                                                std::declval<typename Step::saved_type>(),
                                                std::declval<const gradient_t<typename Step::output_type>&>()));
    return !weft::detail::is_refused<decltype(Split::input_gradient)>;
  }
}

// The context and the input of a layer on ranks of P's axis, and of those of `More`. Gradients need a device and sequences per
// rank: dp is bound with one rank, as in a model.
template <class P, class... More>
struct OnAxes {
  using A = typename P::axis;
  static auto first(const Root& root, const Communicator& comm) {
    if constexpr (std::is_same_v<A, dp>) return root.template with<P>(dp{}, comm);
    else
      return root.template with<Shard<dp, 0>>(dp{}, Communicator(std::make_shared<comm::SelfGroup>("dp", "threads")))
          .template with<P>(A{}, comm);
  }
  static auto context(const Root& root, const std::vector<Communicator>& comms) {
    if constexpr (sizeof...(More) == 0) return first(root, comms[0]);
    else return second<More...>(first(root, comms[0]), comms[1]);
  }
  template <class Q, class Outer>
  static auto second(const Outer& outer, const Communicator& comm) {
    return outer.template with<Q>(typename Q::axis{}, comm);
  }
  // A rank's groups along the axes, the last axis fastest.
  static std::vector<Communicator> split(const Communicator& all, [[maybe_unused]] const std::vector<std::size_t>& ranks) {
    if constexpr (sizeof...(More) == 0) {
      return {all};
    } else {
      const int inner = int(ranks[1]), rank = all.rank();
      return {all.split(rank % inner, rank, std::string(A::name)),
              all.split(rank / inner, rank, (std::string(More::axis::name) + ...))};
    }
  }
  static std::string text(const std::vector<std::size_t>& ranks, bool placements) {
    std::string all;
    std::size_t at = 0;
    const auto add = [&]<class Q>(std::type_identity<Q>) {
      all += (at == 0 ? "" : ", ") + std::string(Q::axis::name) + "(" + std::to_string(ranks[at]) + ")";
      if (placements) all += " as " + name_of_placement<Q>();
      ++at;
    };
    add(std::type_identity<P>()), (add(std::type_identity<More>()), ...);
    return all;
  }
  static std::vector<unsigned> bits() { return {axis_bit<A>, axis_bit<typename More::axis>...}; }

  using Constructor = decltype(context(std::declval<const Root&>(), std::declval<const std::vector<Communicator>&>()));
  using Context = weft::detail::step_context_t<Constructor>;
  using X =
      std::conditional_t<std::is_same_v<A, dp>, Tensor<double, Exec, P, More...>, Tensor<double, Exec, Shard<dp, 0>, P, More...>>;
  template <class Layer>
  using TrialOf = Trial<A, X, Layer, Context, typename More::axis...>;
  template <class Make>
  static constexpr bool takes() {
    return is_layer_under<std::remove_cvref_t<decltype(std::declval<Make&>()(std::declval<const Constructor&>()))>, Context, X>();
  }
};

template <class On, class Make>
void compare_on(CheckReport& report, const std::vector<std::size_t>& degrees, Make& make, const Shape& shape,
                const CheckOptions& options, const Share& alone) {
  using A = typename On::A;
  std::size_t ranks = 1;
  for (const std::size_t degree : degrees) ranks *= degree;
  const std::string where = On::text(degrees, true);
  // Separate instances: ranks must not share one.
  const auto instances = Kokkos::Experimental::partition_space(Exec(), std::vector<int>(ranks, 1));
  std::vector<Share> shares;
  on_ranks(static_cast<int>(ranks), where, shares, [&](const Communicator& comm, Share& share) {
    const std::vector<Communicator> comms = On::split(comm, degrees);
    const auto rank = static_cast<std::size_t>(comms[0].rank());
    Device device(instances[static_cast<std::size_t>(comm.rank())]);
    Made made(device);
    weft::detail::Environment here = environment(options, shape);
    RankRows rows{degrees[0], rank, {}};
    if constexpr (std::is_same_v<A, dp>) here.first_row = (here.rows = shape[0] / degrees[0]) * rank;
    if constexpr (std::is_same_v<A, cp>) rows.cut = {here.length, degrees[0], rank};
    const auto context = On::context(Root(device, std::move(here), engine(made), construction(made)), comms);
    auto layer = make(context);
    const auto step = weft::detail::step_context(context);
    typename On::template TrialOf<decltype(layer)> trial(layer, step, made, shape, rows, options.seed);
    share = share_of(trial);
    for (const Communicator& along : comms) share.coordinates.push_back(static_cast<std::size_t>(along.rank()));
  });
  compare(report, shares, alone, On::bits(), where);
}

// The layer that `make` returns, for the tests on one rank.
template <class Make>
using layer_of_t = std::remove_cvref_t<decltype(std::declval<Make&>()(std::declval<const Root&>()))>;

// Checks that the layer is valid on one rank and under each placement. Only the first failure is reported.
template <class Make, weft::detail::Axis A, bool every, class First, class... More>
constexpr bool takes_all() {
  if constexpr (!is_layer_under<layer_of_t<Make>, StepRoot, Whole>()) return false;
  else if constexpr (!OnAxes<First, More...>::template takes<Make>()) return false;
  else if constexpr (every && std::is_same_v<A, tp>) return OnAxes<Shard<tp, 0>>::template takes<Make>();
  else return true;
}
template <class Make>
CheckReport check_alone(Make& make, const Shape& shape, const CheckOptions& options) {
  require_input(shape, options);
  Device device;
  Made made(device);
  const Root context(device, environment(options, shape), engine(made), construction(made));
  auto layer = make(context);
  const StepRoot step = weft::detail::step_context(context);
  Trial<tp, Whole, decltype(layer), StepRoot> trial(layer, step, made, shape, {}, options.seed);
  const auto base = trial.prove();
  CheckReport report;
  const auto compare = [&](const std::string& name, const Numbers& gradient, bool touched, auto&& nudge) {
    const double scale = largest(gradient);
    const std::size_t tries = std::min(options.samples, gradient.size());
    for (std::size_t k = 0; k < tries; ++k) {
      const std::size_t i = tries == gradient.size() ? k : key_of(options.seed, site_of(name), k) % gradient.size();
      nudge(i, options.step);
      const double up = trial.objective();
      nudge(i, -2 * options.step);
      const double down = trial.objective();
      nudge(i, options.step);
      const double slope = (up - down) / (2 * options.step);
      if (!touched && std::abs(slope) > options.tolerance)
        refuse("backward adds nothing to the gradient of " + name + ", on which forward's output depends (a derivative is " +
               std::to_string(slope) + "): it would never be trained; accumulate its gradient in backward or backward_weight");
      report.add(name, std::abs(slope - gradient[i]), scale);
    }
  };
  compare("the input", base.input_gradient, true, [&](std::size_t i, double by) { trial.input()[i] += by; });
  for (std::size_t p = 0; p < trial.parameters().size(); ++p) {
    ParameterState& state = *trial.parameters()[p];
    compare(state.name(), base.gradients[p], base.touched[p], [&](std::size_t i, double by) {
      Whole whole(device, state.local(), state.value());
      auto host = copy_to_host(whole);
      host[i] += by;
      copy_from_host(whole, std::span<const double>(host));
    });
  }
  require(report, options, "finite differences");
  return report;
}

template <weft::detail::Axis A, bool every, class First, class... More, class Make>
CheckReport check_on(const std::vector<int>& degrees, Make& make, const Shape& shape, CheckOptions options) {
  int ranks = 1;
  for (const int degree : degrees) {
    if (degree < 1) throw UsageError("check_layer_on: ranks(" + std::to_string(degree) + ") must be at least 1");
    ranks *= degree;
  }
  const std::vector<std::size_t> counts(degrees.begin(), degrees.end());
  const std::size_t count = counts[0];
  require_input(shape, options);
  require_rows<A, First>(count, shape, options);
  if constexpr (every && std::is_same_v<A, tp>) require_rows<tp, Shard<tp, 0>>(count, shape, options);
  if (options.length == 0) options.length = std::is_same_v<A, dp> ? shape[0] / count : shape[0];
  if (Exec().concurrency() < ranks)
    throw UsageError("check_layer_on: " + std::to_string(ranks) + " ranks need as many threads of Kokkos, which has " +
                     std::to_string(Exec().concurrency()) +
                     ": initialise it with more, or RunOptions{.threads_per_rank = " + std::to_string(ranks) + "}");
  Share alone;
  {
    Device device;
    Made made(device);
    const Root context(device, environment(options, shape), engine(made), construction(made));
    auto layer = make(context);
    const StepRoot step = weft::detail::step_context(context);
    Trial<tp, Whole, decltype(layer), StepRoot> trial(layer, step, made, shape, {}, options.seed);
    alone = share_of(trial);
  }
  CheckReport report;
  compare_on<OnAxes<First, More...>>(report, counts, make, shape, options, alone);
  if constexpr (every && std::is_same_v<A, tp>) compare_on<OnAxes<Shard<tp, 0>>>(report, counts, make, shape, options, alone);
  require(report, options, OnAxes<First, More...>::text(counts, false) + " against one rank");
  return report;
}

}  // namespace detail

/// Compares backward with central differences of Σ output · w, for random w, on one rank in double. `make(context)` builds the
/// layer for inputs of shape [shape]; its output may be a tuple of tensors. Throws an Error that names the problem and its
/// remedy:
///
///   - a gradient, of the input or of a parameter, that is not the derivative, is never written by backward, or has another
///     shape; Nothing in place of a gradient
///   - a gradient that is overwritten instead of added to, or added to although open_gradient returned `first`
///   - a forward that is not a function (a mutable member); two forwards before their backwards, in either order, with results
///     that differ from sequential execution
///   - backward_input and backward_weight, together and after others', with results that differ from backward
///   - a forward or backward that writes into the input, the given gradient or a parameter's value, or beyond their ends, or
///     reads beyond them
///   - saved or deferred data that keeps a pointer to a freed tensor instead of the tensor
///   - two parameters with the same name
///   - two dropouts under one path, which would draw the same mask.
template <class Make>
CheckReport check_layer(Make&& make, const Shape& shape, const CheckOptions& options = {}) {
  if constexpr (detail::is_layer_under<detail::layer_of_t<Make>, detail::StepRoot, detail::Whole>())
    return detail::check_alone(make, shape, options);
  else return CheckReport();
}

/// Compares the layer on `ranks` thread ranks of axis A with one rank: outputs, input gradient, every parameter gradient, in
/// double. Also checks all rules of check_layer except the derivative on every rank. The input has the placement HiddenPlacement
/// (rows of cp in Zigzag order), or each of EveryPlacement's in turn: name the placement of a layer that supports only one.
/// Except on dp itself, dp has one rank.
///
/// An error on any rank becomes one Error with the text of the first. Rows that the placement cannot divide throw UsageError
/// before anything runs. The check also finds ranks that disagree about the missing sums of a gradient, and reads beyond a rank's
/// own rows.
template <weft::detail::Axis A, class HiddenPlacement = EveryPlacement, class Make>
CheckReport check_layer_on(int ranks, Make&& make, const Shape& shape, CheckOptions options = {}) {
  options.tolerance = std::min(options.tolerance, 1e-11);
  constexpr bool every = std::is_same_v<HiddenPlacement, EveryPlacement>;
  using First = std::conditional_t < !every, HiddenPlacement, std::conditional_t < std::is_same_v<A, cp> || std::is_same_v<A, dp>,
        Shard<A, 0>, Invariant < A >>>
      ;
  if constexpr (detail::takes_all<Make, A, every, First>())
    return detail::check_on<A, every, First>({ranks}, make, shape, options);
  else return CheckReport();  // the compiler has reported the reason
}

/// The same on ranks of two axes, in which the placements of the input name them: {2, 2} ranks of dx and dy, or of tp and dx.
/// Only the first placement may cut rows.
///
///   testing::check_layer_on<Shard<dx, 2>, Shard<dy, 3>>({2, 2}, make, {2, 4, 8, 8});
template <Placement P, Placement Q, class Make>
CheckReport check_layer_on(const std::array<int, 2>& ranks, Make&& make, const Shape& shape, CheckOptions options = {}) {
  options.tolerance = std::min(options.tolerance, 1e-11);
  constexpr bool rows_once = shard_dim<Q> != 0;
  static_assert(
      rows_once,
      "weft: check_layer_on's second placement is Shard<axis, 0>, and only the first one may cut rows: give them in the "
      "other order, or one that cuts another dim");
  if constexpr (!rows_once) return CheckReport();
  else if constexpr (detail::takes_all<Make, typename P::axis, false, P, Q>())
    return detail::check_on<typename P::axis, false, P, Q>({ranks[0], ranks[1]}, make, shape, options);
  else return CheckReport();  // the compiler has reported the reason
}

}  // namespace weft::testing
