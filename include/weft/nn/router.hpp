// SPDX-License-Identifier: Apache-2.0
#pragma once
// The router of a mixture of experts: the choice of each token's experts, their weights, and the balancing of the experts' load
// (Shazeer et al., arXiv:1701.06538; Fedus et al., arXiv:2101.03961; Zoph et al., arXiv:2202.08906; Wang et al.,
// arXiv:2408.15664). Everything is computed in accumulate_t.
//
//   auto routed = router.forward(context, rows);   // experts and weights of each row

#include <algorithm>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <weft/autograd/layer.hpp>
#include <weft/autograd/parameter.hpp>
#include <weft/context/global_index.hpp>
#include <weft/context/step_buffers.hpp>
#include <weft/core/error.hpp>
#include <weft/kernels/expert_assignments.hpp>
#include <weft/kernels/routing.hpp>
#include <weft/nn/norm.hpp>
#include <weft/operations/products.hpp>
#include <weft/tensor/transfer.hpp>
#ifdef KOKKOS_ENABLE_CUDA
#include <weft/nn/cuda/expert_order.hpp>
#endif

namespace weft {

namespace nn {

/// The experts over which the softmax of the output weights runs.
enum class Scores {
  after_top_k,   ///< the chosen ones: weights add up to 1 (Mixtral)
  before_top_k,  ///< all of them (Switch Transformer)
};

}  // namespace nn

/// Options of a Router.
struct RouterOptions {
  std::size_t experts = 8, top_k = 2;
  nn::Scores scores = nn::Scores::after_top_k;
  /// Coefficient of a layer's auxiliary loss: the mean over groups (sequences by default, see `level`), each weighted by its
  /// tokens T, of experts / k · Σ_i (n_i / T) (Σ_x p_i(x) / T); n_i tokens of the group chose expert i, and p is the softmax over
  /// all experts. It is 1 if the load is balanced. Masked tokens count like the others; the losses of layers are computed
  /// separately and added. Hugging Face's load_balancing_loss_func has no 1 / k, has one group (a process' micro-batch:
  /// Level::micro_batch), and pools the tokens of all L layers before it multiplies: its coefficient c is c · k here for one
  /// layer, and c · k / L for each of L layers with equal load.
  double auxiliary_loss = 0;
  double z_loss = 0;     ///< coefficient of the mean over all tokens, masked or not, of log(Σ exp(logits))², in each layer
  double bias_rate = 0;  ///< change of an expert's bias per step, towards the mean load; the bias only affects the choice
  double capacity_factor = 0;  ///< with `drop`: an expert accepts ceil(T k / experts · factor) tokens of a group
  nn::Drop drop = nn::Drop::none;
  nn::Level level = nn::Level::sequence;
};

namespace detail {

void require_router(const RouterOptions& o);

// b += rate · sign(mean load - load).
void renew_bias(StepBuffer& buffer);
// The new report: sums divided by the number of rows, which is the last sum.
void renew_report(StepBuffer& buffer);

template <class X>
auto in_accumulate(const X& x) {
  using T = typename X::value_type;
  using A = accumulate_t<T>;
  if constexpr (std::is_same_v<T, A>) {
    return x;
  } else {
    with_scalar_t<X, A> wide(x.device(), x.shape());
    kernels::cast<T, A>(x.device(), x.size(), x.data(), wide.data());
    return wide;
  }
}

template <class T, class Exec>
Tensor<T, Exec> to_device(Device<Exec>& device, const Shape& shape, const std::vector<T>& host) {
  Tensor<T, Exec> made(device, shape);
  copy_from_host(made, std::span<const T>(host));
  return made;
}

// The groups in which capacity and balance are counted, and the tokens of the rows' global batch.
struct RowGroups {
  std::size_t count = 1, tokens = 0;  // groups, and tokens of each over all ranks that share the micro-batch
  std::vector<std::int32_t> group;    // of each row
  std::vector<std::size_t> row;
};
template <class Context, class X>
RowGroups groups_of(const Context& context, const X& rows, nn::Level level) {
  const std::size_t length = detail::sequence_length(context.env), all = rows.rows() * context.size(tp{}) * context.size(cp{});
  RowGroups groups;
  const GlobalIndex place = global_index_of(context, rows);
  groups.group.assign(rows.rows(), 0);
  for (std::size_t i = 0; i < rows.rows(); ++i) groups.row.push_back(place.row(i) - context.env.first_row);
  groups.tokens = all;
  if (level != nn::Level::sequence) return groups;
  if (length == 0 || all % length != 0)
    throw_error<ShapeError>({"a router over ", all, " rows that are not whole sequences of ", length, " tokens"});
  groups.count = all / length;
  groups.tokens = length;
  for (std::size_t i = 0; i < rows.rows(); ++i) groups.group[i] = static_cast<std::int32_t>(groups.row[i] / length);
  return groups;
}

// Sums over the ranks that share a micro-batch; with `data` over data-parallel ranks too.
template <class Context>
void sum_over_rows(const Context& context, std::vector<double>& values, bool data) {
  if constexpr (Context::has(tp{})) context.comm(tp{}).all_reduce(values);
  if constexpr (Context::has(cp{})) context.comm(cp{}).all_reduce(values);
  if (data) detail::for_each_data_axis(context, [&](const Communicator& ranks) { ranks.all_reduce(values); });
}

/// rows [rows, width], different on every rank -> experts and weights of each row. Parameter "weight" [experts, width]; buffer
/// "e_score_correction_bias" [experts] if bias_rate is not 0. Buffer "load" [experts + 3], per token of the last step: the number
/// of tokens that chose each expert, the number of dropped slots, auxiliary loss and z-loss, both with their coefficients. These
/// two losses are in the gradient but not in the loss that a step returns: the objective is Σ losses of tokens / counted tokens +
/// Σ_layers (auxiliary loss + z-loss), and "load" has the terms of the second sum. They include tokens with masked targets, as in
/// Hugging Face. Among equal scores the lowest expert index is chosen. Numerics: the same choice in every layout unless two
/// scores are within rounding of each other.
class Router {
 public:
  template <class Context>
  Router(const Context& context, std::size_t width, const RouterOptions& options, double standard_deviation = 0.02)
      : weight(context, "weight", {options.experts, width}, normal(standard_deviation)), options_(options) {
    require_router(options);
    if (options.bias_rate > 0)
      bias_ =
          make_step_buffer(context, "e_score_correction_bias", options.experts, options.experts, renew_bias, options.bias_rate);
    report_ = make_step_buffer(context, "load", options.experts + 3, options.experts + 4, renew_report);
  }

  /// The router's result for rows, with its saved state.
  template <class Input, class A, class Exec>
  struct Routed {
    Input input;                            // rows in accumulate_t
    Tensor<A, Exec> probabilities;          // [rows, experts]
    Tensor<A, Exec> log_sum_exp;            // [rows]
    Tensor<std::int32_t, Exec> chosen;      // [rows, k]
    Tensor<A, Exec> weights;                // [rows, k]
    Tensor<A, Exec> balance = {};           // [groups, experts]: gradient of each probability; empty without an auxiliary loss
    Tensor<std::int32_t, Exec> group = {};  // [rows]
    Assignments assignments = {};           // only the counts if the device sorted
    Tensor<std::int32_t, Exec> order = {}, place = {};  // of the assignments, if the device sorted
    double added_loss = 0;                              // auxiliary losses of these rows, in the gradient but not in the loss
    std::vector<double> counted = {};  // [experts + 4] in training: backward_input adds it to the sums of "load"; otherwise empty
  };

  /// Changes no state, so it can run for an evaluation, a recomputation or several micro-batches in flight. The result contains
  /// its counts. If a training step has no backward for this forward, and so no recomputation, they are added at once.
  template <class Context, class Rows>
  auto forward(const Context& context, const Rows& rows, std::size_t grain = 1) const {
    require_whole_rows<Rows>();
    if (context.env.cached != nullptr && options_.drop != nn::Drop::none)
      throw_error<UsageError>(
          {"decode: experts that drop tokens (drop, capacity factor) would drop others than in a whole sequence: "
           "set drop to none, or use model.logits of the whole sequence"});
    if constexpr (Context::has(ep{})) detail::refuse_loose_sum(rows.device(), "tokens under ExpertParallel");
    if (rows.device().batch_invariant() && options_.drop != nn::Drop::none)
      throw_error<UsageError>(
          {"numerics.batch_invariant: experts that drop tokens (drop, capacity factor) drop them by the other tokens of "
           "the batch: set drop to none, or leave batch_invariant out"});
    using A = accumulate_t<typename Rows::value_type>;
    using Exec = typename Rows::execution_space;
    auto& device = rows.device();
    const std::size_t count = rows.rows(), experts = options_.experts, k = options_.top_k;
    auto input = in_accumulate(rows);
    const auto logits = contract<0, 0>(input, in_accumulate(weight.for_operand(rows)));
    using R = Routed<decltype(input), A, Exec>;
    R routed{.input = std::move(input),
             .probabilities = {device, {count, experts}},
             .log_sum_exp = {device, {count}},
             .chosen = {device, {count, k}},
             .weights = {device, {count, k}}};
    if (context.env.training) routed.counted.resize(experts + 4);
    Tensor<A, Exec> bias;
    if (bias_) bias = to_device<A>(device, {experts}, std::vector<A>(bias_->value.begin(), bias_->value.end()));
    kernels::route<A>(device, count, experts, k, logits.data(), bias.data(), chosen_only(), routed.probabilities.data(),
                      routed.log_sum_exp.data(), routed.chosen.data(), routed.weights.data());
    constexpr bool sorts = DeviceOrder<Exec>::exists;
    std::vector<std::int32_t> chosen;
    if (!sorts || options_.drop != nn::Drop::none || (options_.auxiliary_loss > 0 && context.env.training))
      chosen = copy_to_host(routed.chosen);
    if (const Rehearsal* const notes = device.rehearsal(); notes != nullptr) [[unlikely]]
      rehearse_choice(chosen, experts, k, notes->expert_skew);  // choices are values, which a rehearsal does not have
    std::vector<char> kept;
    if (options_.drop != nn::Drop::none || options_.auxiliary_loss > 0) {
      const RowGroups groups = groups_of(context, rows, options_.level);
      if (options_.drop != nn::Drop::none) kept = keep(context, groups, chosen, copy_to_host(routed.weights));
      if (options_.auxiliary_loss > 0 && context.env.training) balance(context, routed, groups, chosen);
    }
    if (options_.z_loss > 0 && context.env.training)
      for (const A lse : copy_to_host(routed.log_sum_exp))
        routed.counted[experts + 2] += count_added(routed, context, options_.z_loss * double(lse) * double(lse));
    if constexpr (sorts) {
      if (options_.drop == nn::Drop::none) {
        sort_there(routed, experts, grain);
        if (context.env.training && counts_at_once(context)) add_counted(routed.counted);
        return routed;
      }
    }
    routed.assignments = assign(chosen, experts, kept, grain);
    count_load(routed, chosen);
    if (context.env.training && counts_at_once(context)) add_counted(routed.counted);
    return routed;
  }

  /// The gradient of the rows, from that of the weights [rows, k]; backward_weight is the second half. Adds the counts, since it
  /// runs once per micro-batch of a training step.
  template <class Context, class Rows, class R, class A, class Exec>
  auto backward_input(const Context& context, const Rows& like, const R& routed, const Tensor<A, Exec>& d_weights) {
    add_counted(routed.counted);
    using Logits = contract_t<decltype(routed.input), decltype(in_accumulate(weight.for_operand(like))), 0, 0>;
    gradient_t<Logits> d_logits(like.device(), routed.probabilities.shape());
    kernels::route_backward<A>(like.device(), d_logits.rows(), options_.experts, options_.top_k, routed.probabilities.data(),
                               routed.log_sum_exp.data(), routed.chosen.data(), routed.weights.data(), d_weights.data(),
                               chosen_only(), routed.balance.data(), routed.group.data(),
                               A(options_.z_loss * context.env.auxiliary_gradient), d_logits.data());
    auto dx = contract<0, 1>(d_logits, in_accumulate(weight.for_operand(like)));
    return InputGradient{std::move(dx), std::pair{std::move(d_logits), routed.input}};
  }
  template <class Context, class D>
  void backward_weight(const Context& context, D deferred) {
    accumulate_product(context, weight, deferred.first, deferred.second);
  }

  const RouterOptions& options() const { return options_; }

  Parameter<> weight;

 private:
  bool chosen_only() const { return options_.scores == nn::Scores::after_top_k; }

  template <class Context, class A>
  std::vector<char> keep(const Context& context, const RowGroups& groups, const std::vector<std::int32_t>& chosen,
                         const std::vector<A>& weights) const {
    const std::size_t k = options_.top_k;
    std::vector<Candidate> mine;
    for (std::size_t slot = 0; slot < chosen.size(); ++slot)
      mine.push_back({double(groups.group[slot / k]), double(chosen[slot]), double(groups.row[slot / k]), double(weights[slot])});
    // A sequence or a micro-batch may be spread over several ranks: all of them gather all candidates and make the same decision.
    std::size_t first = 0;
    [[maybe_unused]] const auto gather = [&](const Communicator& comm) {
      std::vector<Candidate> all(mine.size() * std::size_t(comm.size()));
      const auto numbers = [](std::vector<Candidate>& of) {
        return std::span<double>(reinterpret_cast<double*>(of.data()), of.size() * 4);
      };
      comm.all_gather(std::span<const double>(numbers(mine)), numbers(all));
      first += std::size_t(comm.rank()) * mine.size();
      mine = std::move(all);
    };
    if constexpr (Context::has(tp{})) gather(context.comm(tp{}));
    if constexpr (Context::has(cp{})) gather(context.comm(cp{}));
    return within_capacity(mine, expert_capacity(groups.tokens, k, options_.experts, options_.capacity_factor), options_.drop,
                           first, chosen.size());
  }

  // n_i is a constant; the gradient of the loss is added to every probability.
  template <class Context, class R>
  void balance(const Context& context, R& routed, const RowGroups& groups, const std::vector<std::int32_t>& chosen) const {
    using A = typename std::remove_cvref_t<decltype(routed.probabilities)>::value_type;
    const std::size_t experts = options_.experts, k = options_.top_k;
    std::vector<double> counts(groups.count * experts);
    for (std::size_t slot = 0; slot < chosen.size(); ++slot)
      ++counts[std::size_t(groups.group[slot / k]) * experts + std::size_t(chosen[slot])];
    sum_over_rows(context, counts, options_.level == nn::Level::data);
    std::vector<A> gradient(counts.size());
    for (std::size_t g = 0; g < groups.count; ++g) {
      double slots = 0;  // k T
      for (std::size_t e = 0; e < experts; ++e) slots += counts[g * experts + e];
      for (std::size_t e = 0; e < experts; ++e)
        counts[g * experts + e] *= options_.auxiliary_loss * double(experts) / std::max(slots, 1.0);
    }
    const auto probabilities = copy_to_host(routed.probabilities);
    double loss = 0;
    for (std::size_t i = 0; i < probabilities.size(); ++i)
      loss += double(probabilities[i]) * counts[std::size_t(groups.group[i / experts]) * experts + i % experts];
    routed.counted[experts + 1] += count_added(routed, context, loss);
    for (std::size_t i = 0; i < counts.size(); ++i) gradient[i] = A(counts[i] * context.env.auxiliary_gradient);
    routed.balance = to_device<A>(routed.probabilities.device(), {groups.count, experts}, gradient);
    routed.group = to_device<std::int32_t>(routed.probabilities.device(), {groups.group.size()}, groups.group);
  }
  template <class R, class Context>
  static double count_added(R& routed, const Context& context, double loss) {
    routed.added_loss += loss * context.env.auxiliary_gradient;
    return loss;
  }

  template <class R>
  void sort_there(R& routed, std::size_t experts, std::size_t grain) const {
    auto& device = routed.chosen.device();
    using Indices = std::remove_cvref_t<decltype(routed.order)>;
    using Exec = typename Indices::execution_space;
    const std::size_t slots = routed.chosen.size(), room = slots + experts * (grain - 1);
    const Indices all(device, {room});
    routed.place = Indices(device, {slots});
    auto& counts = routed.assignments.counts =
        DeviceOrder<Exec>::sort(device, slots, experts, grain, routed.chosen.data(), all.data(), room, routed.place.data());
    if (!routed.counted.empty()) {
      for (std::size_t e = 0; e < experts; ++e) routed.counted[e] += double(counts[e]);
      routed.counted.back() += double(routed.chosen.rows());
    }
    std::uint64_t kept = 0;
    for (std::uint64_t& count : counts) kept += count = filled(count, grain);
    routed.order = Indices(device, {std::size_t(kept)}, all.buffer());
  }

  template <class R>
  void count_load(R& routed, const std::vector<std::int32_t>& chosen) const {
    if (routed.counted.empty()) return;
    for (const std::int32_t expert : chosen) ++routed.counted[std::size_t(expert)];
    const auto& place = routed.assignments.place;
    routed.counted[options_.experts] += double(std::count(place.begin(), place.end(), -1));
    routed.counted.back() += double(routed.chosen.rows());
  }

  void add_counted(const std::vector<double>& counted) const;

  RouterOptions options_;
  std::shared_ptr<StepBuffer> bias_, report_;
};

}  // namespace detail

}  // namespace weft

#ifndef WEFT_COMPILED
#include <weft/nn/router_impl.hpp>
#endif
