// SPDX-License-Identifier: Apache-2.0
// The parity matrix of a model with structs as hidden values: three members, one of them a struct itself and one without a
// gradient, through Modules, Modules inside them and layers with their own backward.

#include <weft/autograd/struct_value.hpp>

#include "support/field_models.hpp"
#include "support/field_parity.hpp"

using namespace weft_test;

namespace {

template <class A>
struct Twins {
  A left, right;
};
template <class A>
Twins(A, A) -> Twins<A>;

template <class A, class B, class C>
struct Flow {
  A velocity;  // [samples, width]
  B pressures;
  C kind;  // [samples], whole numbers
};
template <class A, class B, class C>
Flow(A, B, C) -> Flow<A, B, C>;

/// Exchanges the pressures: a layer with its own backward, on tensors.
struct Exchange : Primitive<Exchange> {
  auto forward(const auto&, const auto& flow) const {
    return Result{Flow{flow.velocity, Twins{flow.pressures.right, flow.pressures.left}, flow.kind}, Nothing{}};
  }
  auto backward(const auto&, Nothing, const auto& g) const {
    return Flow{g.velocity, Twins{g.pressures.right, g.pressures.left}, g.kind};
  }
};

struct FlowConfig {
  std::size_t in = 6, width = 8, layers = 3;
};

struct FlowModel {
  static constexpr bool predicts = true;
  using scalar = double;
  using Config = FlowConfig;
  using Batch = FieldBatch<input_field, other_field, kind_field, wanted_field>;

  struct First : Module<First> {
    TwoLayers velocity, pressure;
    First(TwoLayers v, TwoLayers p) : velocity(std::move(v)), pressure(std::move(p)) {}
    auto forward(const auto& batch) const {
      auto p = to_hidden(pressure(batch[other_field]));
      return Flow{to_hidden(velocity(batch[input_field])), Twins{p, 0.5 * p}, batch[kind_field]};
    }
  };
  /// Takes a struct and returns one of its members.
  struct Advected : Module<Advected> {
    TwoLayers layers;
    explicit Advected(TwoLayers l) : layers(std::move(l)) {}
    auto forward(const auto& flow) const { return flow.velocity + to_layout_of(flow.velocity, layers(flow.pressures.left)); }
  };
  struct Middle : Module<Middle> {
    Advected advected;
    TwoLayers right;
    Exchange exchange;
    Middle(TwoLayers l, TwoLayers r) : advected(std::move(l)), right(std::move(r)) {}
    auto forward(const auto& flow) const {
      const auto exchanged = exchange(flow);
      const auto& p = exchanged.pressures;
      return Flow{advected(flow), Twins{p.left, p.right + to_layout_of(p.right, right(p.left))}, flow.kind};
    }
  };
  /// Takes a struct and the inputs of the batch. One member is unused.
  struct Last : Module<Last> {
    TwoLayers layers;
    Parameter<> table;
    Last(const auto& context, TwoLayers l, std::size_t width)
        : layers(std::move(l)), table(context, "table", {2, width}, normal(1)) {}
    auto outputs(const auto& flow) const {
      const auto x = to<Invariant<tp>>(flow.velocity);
      return x + to<Invariant<tp>>(layers(to<Invariant<tp>>(flow.pressures.right)));
    }
    auto predict(const auto& flow) const { return outputs(flow); }
    auto forward(const auto& flow, const auto& batch) const {
      auto rows = index_select(beside(outputs(flow), table), to<Invariant<tp>>(flow.kind));
      return sum_losses(HalfSquares()(outputs(flow) * rows - to<Invariant<tp>>(batch[wanted_field])));
    }
  };

  static auto stack(const auto& context, const Config& config) {
    const auto layers = [=](const auto& here, std::size_t in) { return TwoLayers(here, in, 2 * config.width, config.width); };
    return Stack([=] { return First(layers(context / "velocity", config.in), layers(context / "pressure", config.in)); },
                 [] { return Exchange(); },
                 repeated(config.layers,
                          [=](std::size_t i) {
                            const auto here = context / "flow" / std::to_string(i);
                            return Middle(layers(here / "left", config.width), layers(here / "right", config.width));
                          }),
                 [=] { return Last(context / "last", layers(context / "last" / "layers", config.width), config.width); });
  }
  static Batch make_batch(const Config& config, std::uint64_t step, std::size_t rank, std::size_t ranks,
                          std::size_t micro_batches) {
    auto batch = share_of_samples<Batch>(step, rank, ranks, micro_batches);
    fill_field(batch, input_field, 1, {config.in});
    fill_field(batch, other_field, 3, {config.in});
    fill_field(batch, wanted_field, 2, {config.width});
    auto kinds = batch[kind_field].resize(batch.samples, {});
    for (std::size_t i = 0; i < kinds.size(); ++i) kinds[i] = std::int32_t((batch.first_sample + i + step) % 2);
    return batch;
  }
};

}  // namespace

TEST_CASE("structs between units: every layout equals one rank") {
  CHECK(check_layouts_of<TensorLayout<FlowModel>>({}, field_layouts) >= 24);
}

TEST_CASE("structs between units under sequence parallelism") {
  CHECK(check_layouts_of<SequenceLayout<FlowModel>>(
            {}, {{2, {.tp = 2}, 2}, {4, {.tp = 2, .pp = 2}, 2, "1f1b"}, {8, {.tp = 2, .pp = 2}, 2, "zb-h1", 1}}) == 3);
}
