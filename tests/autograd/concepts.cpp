// SPDX-License-Identifier: Apache-2.0
// The concepts of user-defined types, met by weft's types and not by others: Layer, Model, WrapperPolicy, StepHooks,
// UpdateRule, and a communication hook; and those of arguments. Each way to get one of them wrong, with its message, is a case in
// tests/compile_fail.
// covers: weft/autograd/model_check.hpp
#include <doctest/doctest.h>

#include <memory>
#include <mutex>
#include <span>
#include <tuple>

#include <weft/autograd/model_check.hpp>
#include <weft/checkpoint/state.hpp>
#include <weft/data/arrays.hpp>
#include <weft/dtensor/dtensor.hpp>
#include <weft/dtensor/elementwise.hpp>
#include <weft/parallel/hook/power_sgd.hpp>
#include <weft/pipeline/schedule/any_schedule.hpp>
#include <weft/weft.hpp>

#include "support/layers.hpp"

using namespace weft;

namespace {

using Exec = DefaultDevice::execution_space;
using Here = Context<Compute<Exec, float>>;
using Spread = decltype(std::declval<Here>().with<Invariant<dp>>(dp{}, Communicator()).with<Invariant<tp>>(tp{}, Communicator()));
using X = Tensor<float, Exec>;
using XSpread = Tensor<float, Exec, Shard<dp, 0>, Invariant<tp>>;
using Ids = Tensor<std::int32_t, Exec>;

// --- layers ------------------------------------------------------------------------------------------------------------------

static_assert(detail::Layer<Embedding, Here, Ids> && detail::Layer<LayerNorm, Here, X> && detail::Layer<RmsNorm, Here, X> &&
              detail::Layer<Gelu, Here, X>);
static_assert(detail::Layer<Linear<>, Here, X> && detail::Layer<Linear<Column>, Spread, XSpread> &&
              detail::Layer<Dropout, Spread, XSpread>);
static_assert(detail::Layer<models::Gpt::Front, Here, Ids> && detail::Layer<models::Gpt::Block, Spread, XSpread> &&
              detail::Layer<models::Gpt::Back, Here, X, Ids>);
static_assert(detail::Layer<models::Llama::Block, Here, X> && detail::Layer<models::Llama::Back, Here, X, Ids>);
static_assert(detail::Layer<Sequential<LayerNorm, Residual<Gelu>>, Here, X> &&
              detail::Layer<weft_test::Branch<LayerNorm, Gelu>, Here, X> && detail::Layer<weft_test::Repeat<Gelu>, Here, X>);
static_assert(detail::Layer<weft_test::Recompute<Gelu>, Here, X> &&
              detail::Layer<weft_test::EnterParallelRegion<tp>, Spread, XSpread>);

template <class S>
struct Saves {
  Result<X, S> forward(const auto&, const X&) const;
};
static_assert(detail::Layer<Saves<Nothing>, Here, X> && detail::Layer<Saves<X>, Here, X> &&
              detail::Layer<Saves<std::tuple<X, int>>, Here, X>);
static_assert(detail::Layer<Saves<std::unique_ptr<X>>, Here, X>, "saved values are moved, and never copied");
static_assert(!detail::Layer<Saves<std::mutex>, Here, X> && !detail::Layer<Saves<std::tuple<const X&>>, Here, X> &&
              !detail::Layer<Saves<std::pair<int, X&>>, Here, X>);

struct WithoutForward {};
struct NotConst : WithoutForward {
  Result<X, Nothing> forward(const auto&, const X&);
};
struct NoResult : WithoutForward {
  X forward(const auto&, const X&) const;
};
struct OfIds : WithoutForward {
  Result<X, Nothing> forward(const auto&, const Ids&) const;
};
class Private : public WithoutForward {
  [[maybe_unused]] Result<X, Nothing> forward(const auto&, const X&) const;
};
static_assert(!detail::Layer<WithoutForward, Here, X> && !detail::Layer<NotConst, Here, X> && !detail::Layer<NoResult, Here, X> &&
              !detail::Layer<Private, Here, X>);
static_assert(detail::Layer<OfIds, Here, Ids> && !detail::Layer<OfIds, Here, X> && !detail::Layer<OfIds, Here> &&
              !detail::Layer<OfIds, Here, Ids, Ids>);
static_assert(!detail::Layer<int, Here, X> && !detail::Layer<OfIds, Here, detail::AlreadyRefused>);
// An inaccessible member is distinguished from a missing one.
static_assert(detail::layer_check::has_forward<Private>() && !detail::layer_check::has_forward<WithoutForward>());

// --- models ------------------------------------------------------------------------------------------------------------------

static_assert(detail::Model<models::Gpt, Here> && detail::Model<models::Gpt, Spread> && detail::Model<models::Llama, Here> &&
              detail::Model<models::Mixtral, Here>);
static_assert(detail::Model<models::BasicGpt<bfloat16>, Context<Compute<Exec, bfloat16>>>);
static_assert(!detail::ModelRecipe<Linear<>> && !detail::ModelRecipe<DataParallel<models::Gpt>> && !detail::ModelRecipe<int>);
struct WithoutScalar {
  using Config = models::GptConfig;
  using Front = Embedding;
  using Block = LayerNorm;
  using Back = LanguageHead<LayerNorm>;
  static std::size_t blocks(const Config&) { return 1; }
};
struct WithoutFunctions : WithoutScalar {
  using scalar = float;
};
static_assert(!detail::ModelRecipe<WithoutScalar> && detail::ModelRecipe<WithoutFunctions> &&
              !detail::Model<WithoutFunctions, Here>);

// --- policies and hooks --------------------------------------------------------------------------------------------------------

static_assert(detail::WrapperPolicy<detail::DataPolicy> &&
              detail::WrapperPolicy<detail::WithPolicies<detail::DataPolicy, Reproducible>>);
static_assert(detail::WrapperPolicy<detail::ShardedDataPolicy<true>> && detail::WrapperPolicy<detail::ShardedDataPolicy<false>>);
static_assert(detail::WrapperPolicy<detail::TensorPolicy<Invariant<tp>>> &&
              detail::WrapperPolicy<detail::TensorPolicy<Shard<tp, 0>>>);
static_assert(detail::WrapperPolicy<detail::ContextPolicy> && detail::WrapperPolicy<detail::ExpertPolicy> &&
              detail::WrapperPolicy<detail::PipelinePolicy>);
static_assert(!detail::WrapperPolicy<detail::TensorPolicy<Partial<tp>>> &&
              !detail::WrapperPolicy<detail::TensorPolicy<Invariant<cp>>> && !detail::WrapperPolicy<detail::TensorPolicy<tp>>);
static_assert(!detail::WrapperPolicy<PlainPolicy> && !detail::WrapperPolicy<Reproducible> && !detail::WrapperPolicy<int>);

static_assert(detail::StepHooks<detail::Buckets<Exec>> && detail::StepHooks<detail::FullyShardedHooks<Exec>> &&
              detail::StepHooks<detail::TensorGradientReducer<Exec>>);
static_assert(detail::StepHooks<detail::ContextGradientReducer<Exec>> && detail::StepHooks<detail::ExpertGradientReducer>);
struct NoEvents : detail::Hooks {
  void gradient_ready(detail::Unit&) {}
};
struct OtherArguments : detail::Hooks {
  void gradients_ready(ParameterState&) {}
  void finish() override {}
};
class PrivateEvent : public detail::Hooks {
  void gradients_ready(detail::Unit&) override {}
};
struct NoThrow : detail::Hooks {
  void finish() noexcept override {}
};
struct Derived : NoThrow {};
static_assert(detail::StepHooks<PrivateEvent> && detail::StepHooks<NoThrow> && detail::StepHooks<Derived>);
static_assert(!detail::StepHooks<detail::Hooks> && !detail::StepHooks<NoEvents> && !detail::StepHooks<OtherArguments> &&
              !detail::StepHooks<int>);

struct Sums {
  Request start(hook::Bucket& bucket, const Communicator& data_ranks) { return data_ranks.all_reduce_async(bucket.all()); }
};
struct SumsAndEnds : Sums {
  void finish(hook::Bucket&) {}
};
struct OfACopy {
  static void apply(ModelOptions) {}
};
struct OfAnything {
  static void apply(auto&&) {}
};
static_assert(detail::is_data_policy<Sums> && detail::is_data_policy<hook::PowerSgd> && !detail::is_data_policy<SumsAndEnds>);
static_assert(detail::is_policy<Reproducible> && detail::is_policy<QuantisedGather> && detail::is_policy<OfAnything> &&
              !detail::is_policy<OfACopy> && !detail::is_policy<Sums>);

// --- update rules --------------------------------------------------------------------------------------------------------------

static_assert(optim::UpdateRule<optim::AdamWRule> && optim::Updates<optim::AdamWRule, float, Exec> &&
              optim::Updates<optim::AdamWRule, bfloat16, Exec>);
static_assert(optim::UpdateRule<optim::SgdRule> && optim::Updates<optim::SgdRule, double, Exec> &&
              optim::Updates<optim::SgdRule, float16, Exec>);
struct OptionsAlone {
  using Options = optim::SgdOptions;
};
struct WithoutUpdate : OptionsAlone {
  static constexpr int buffers = 0;
};
struct MinusOne : OptionsAlone {
  static constexpr int buffers = -1;
};
static_assert(!optim::UpdateRule<OptionsAlone> && !optim::UpdateRule<MinusOne> && !optim::UpdateRule<int>);
static_assert(optim::UpdateRule<WithoutUpdate> && !optim::Updates<WithoutUpdate, float, Exec>);

struct OfSlots : WithoutUpdate {
  template <class P, class E>
  static void update(Device<E>&, optim::Slot&, const Options&, double, double, std::uint64_t) {}
};
static_assert(optim::UpdatesElements<optim::AdamWRule, float> && !optim::UpdatesElements<WithoutUpdate, float>);
static_assert(optim::UpdatesSlots<OfSlots, float, Exec> && !optim::UpdatesSlots<optim::AdamWRule, float, Exec>);
static_assert(optim::Transforms<optim::MuonRule, float, Exec> && !optim::Transforms<optim::SgdRule, float, Exec>);

// --- what operations, optimizers and checkpoints take --------------------------------------------------------------------------

static_assert(AnyTensor<Tensor<float, Exec, Shard<tp, 0>>> && AnyTensor<const Ids&> && !AnyTensor<Variable<Here, X>>);
static_assert(AnyVariable<Variable<Here, X>> && !AnyVariable<X>);
static_assert(Placement<Replicated<tp>> && Placement<Invariant<tp>> && Placement<Shard<tp, 0>> && Placement<Partial<tp>> &&
              Placement<Halo<dx, 2, 1>> && Placement<HaloTerms<dx, 2, 1>> && Placement<Ghosts<dx>> && Placement<GhostTerms<dx>>);
static_assert(!Placement<tp> && !Placement<int>);
static_assert(dtensor::RealTensor<DTensor<float>> && !dtensor::RealTensor<DTensor<std::int32_t>> && !dtensor::RealTensor<X>);

using Model = models::Gpt;
static_assert(optim::Trainable<SingleDevice<Model>> && optim::Trainable<DataParallel<Model>> && !optim::Trainable<Model> &&
              !optim::Trainable<const DataParallel<Model>>);
static_assert(checkpoint::StoredModel<DataParallel<Model>> && checkpoint::StoredModel<SingleDevice<Model>> &&
              !checkpoint::StoredModel<Model>);
static_assert(checkpoint::StoredOptimizer<optim::AdamW> && checkpoint::StoredOptimizer<optim::Muon> &&
              !checkpoint::StoredOptimizer<DataParallel<Model>>);
static_assert(schedule::Erasable<schedule::ZeroBubbleH1> && !schedule::Erasable<int>);
using Number = data::Field<"number", float>;
static_assert(data::FieldArray<data::Array<Number, float>> && !data::FieldArray<std::span<const float>>);

}  // namespace

TEST_CASE("the concepts of user-defined types hold for weft's types and refuse wrong ones") {
  CHECK(detail::Layer<Linear<>, Here, X>);  // the compiler did the rest
}
