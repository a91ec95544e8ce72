// SPDX-License-Identifier: Apache-2.0
// Values used as another framework or C++ allows.
#include <cmath>
#include <weft/core/scalar.hpp>
#include <weft/operations/operands.hpp>
#include <weft/tensor/members_elsewhere.hpp>
#include <weft/testing/check_layer.hpp>
#include <weft/weft.hpp>

using namespace weft;

inline constexpr data::Field<"input", float> input;

// section: arithmetic_of_whole_numbers
// Pixels stored as bytes are scaled: they must first be converted to the model's scalar.
// expect: arithmetic on whole numbers
// mention: cast<float>\(x\)
inline constexpr data::Field<"pixels", std::uint8_t> pixels;

struct Autoencoder : Module<Autoencoder> {
  using scalar = float;
  using Batch = FieldBatch<pixels>;
  struct Config {
    std::size_t width = 4;
  };
  Linear<> layer;
  Autoencoder(const auto& context, const Config& config) : layer(context / "layer", config.width, config.width) {}
  auto loss(const auto& batch) const {
#ifdef WEFT_FAIL
    auto x = batch[pixels] / 255;
#else
    auto x = cast<float>(batch[pixels]) / 255;
#endif
    return mse(layer(x), x);
  }
};

double go(World& world, const Autoencoder::Batch& batch) {
  Mesh<dp> mesh(world);
  DataParallel<Autoencoder> model(mesh, {});
  return model.train_step(batch);
}

// section: assignment_of_a_refused_value
// A refused operation whose result is assigned.
// expect: there is no operation tan: map
struct Net : Module<Net> {
  using scalar = float;
  using Batch = FieldBatch<input>;
  struct Config {
    std::size_t width = 4;
  };
  Linear<> layer;
  Net(const auto& context, const Config& config) : layer(context / "layer", config.width, config.width) {}
#ifdef WEFT_FAIL
  auto forward(const auto& x) const {
    auto h = layer(x);
    h = tan(h);
    return h;
  }
#else
  auto forward(const auto& x) const {
    auto h = layer(x);
    h = tanh(h);
    return h;
  }
#endif
  auto loss(const auto& batch) const { return mse(forward(batch[input]), batch[input]); }
};

double go(World& world, const FieldBatch<input>& batch) {
  Mesh<dp> mesh(world);
  DataParallel<Net> model(mesh, {});
  return model.train_step(batch);
}

// section: assignment_of_another_type
// A number is assigned to a value.
// expect: a value of a forward keeps its type
struct Net : Module<Net> {
  using scalar = float;
  using Batch = FieldBatch<input>;
  struct Config {
    std::size_t width = 4;
  };
  Linear<> layer;
  Net(const auto& context, const Config& config) : layer(context / "layer", config.width, config.width) {}
#ifdef WEFT_FAIL
  auto forward(const auto& x) const {
    auto h = layer(x);
    h = 0.5;
    return h;
  }
#else
  auto forward(const auto& x) const {
    auto h = layer(x);
    h = 0.5 * h;
    return h;
  }
#endif
  auto loss(const auto& batch) const { return mse(forward(batch[input]), batch[input]); }
};

double go(World& world, const FieldBatch<input>& batch) {
  Mesh<dp> mesh(world);
  DataParallel<Net> model(mesh, {});
  return model.train_step(batch);
}

// section: assignment_to_a_const_value
// A forward may assign to its local values, not to its argument.
// expect: the first operand is const
struct Net : Module<Net> {
  using scalar = float;
  using Batch = FieldBatch<input>;
  struct Config {
    std::size_t width = 4;
  };
  Linear<> layer;
  Parameter<> table;
  Net(const auto& context, const Config& config)
      : layer(context / "layer", config.width, config.width), table(context, "table", {4, 1, 3, 3}, normal(1)) {}
#ifdef WEFT_FAIL
  auto forward(const auto& x) const {
    x += layer(x);
    return silu(x);
  }
#else
  auto forward(const auto& x) const {
    auto h = silu(layer(x));
    h += x;
    h -= 0.5 * x;
    h *= 2;
    return h;
  }
#endif
  auto loss(const auto& batch) const { return mse(forward(batch[input]), batch[input]); }
};

double go(World& world, const Net::Batch& batch) {
  Mesh<dp> mesh(world);
  DataParallel<Net> model(mesh, {});
  return model.train_step(batch);
}

// section: clamp_with_values_as_bounds
// The bounds of clamp are numbers: with three values of one type a call finds Kokkos' clamp, which compares them.
// expect: clamp of values of a forward, which are not compared
// mention: minimum\(maximum\(x, low\), high\)
struct Own : Module<Own> {
  auto forward(const auto& x) const {
    const auto h = tanh(x);
#ifdef WEFT_FAIL
    return exp(clamp(h, x, h));
#else
    return exp(minimum(maximum(h, x), h));
#endif
  }
};

auto go() {
  return testing::check_layer([](const auto&) { return Own(); }, {3, 4});
}

// section: comparison_with_a_parameter
// A Parameter is no operand of a comparison, which has no form for it.
// expect: operator>: not of these operands: it compares two values of one type
// mention: beside\(x, parameter\)
struct Own : Module<Own> {
  Parameter<> threshold;
  Own(const auto& context) : threshold(context, "threshold", {3, 4}, normal(1)) {}
#ifdef WEFT_FAIL
  auto forward(const auto& x) const { return where(x > threshold, x, 0); }
#else
  auto forward(const auto& x) const { return where(x > beside(x, threshold), x, 0); }
#endif
};

auto go() {
  return testing::check_layer([](const auto& context) { return Own(context); }, {3, 4});
}

// section: condition_of_a_value
// A value is no condition of the program.
// expect: a value is no condition of the program
// mention: where\(x > 0, a, b\)
struct Net : Module<Net> {
  using scalar = float;
  using Batch = FieldBatch<input>;
  struct Config {
    std::size_t width = 4;
  };
  Linear<> layer;
  Parameter<> table;
  Net(const auto& context, const Config& config)
      : layer(context / "layer", config.width, config.width), table(context, "table", {4, 1, 3, 3}, normal(1)) {}
#ifdef WEFT_FAIL
  auto forward(const auto& x) const {
    auto h = layer(x);
    if (h > 0) return silu(h);
    return h;
  }
#else
  auto forward(const auto& x) const {
    auto h = layer(x);
    return where(h > 0, silu(h), h);
  }
#endif
  auto loss(const auto& batch) const { return mse(forward(batch[input]), batch[input]); }
};

double go(World& world, const Net::Batch& batch) {
  Mesh<dp> mesh(world);
  DataParallel<Net> model(mesh, {});
  return model.train_step(batch);
}

// section: gradient_of_token_ids
// Token ids have no gradient, so a layer must not return one for them.
// expect: a gradient of an input that has none
/// A token table.
struct Table {
  Embedding table;
  auto forward(const auto& context, const auto& ids) const { return table.forward(context, ids); }
  auto backward(const auto& context, auto saved, const auto& g) {
    weft::backward(table, context, std::move(saved), g);
#ifdef WEFT_FAIL
    return g;
#else
    return Nothing{};
#endif
  }
};

using Root = Context<Compute<Kokkos::DefaultExecutionSpace, float>>;

auto go(const Root& context, Tensor<std::int32_t, Kokkos::DefaultExecutionSpace> ids,
        Tensor<float, Kokkos::DefaultExecutionSpace> g) {
  Sequential layer(Table{Embedding(context / "tokens", 16, 8)}, LayerNorm(context / "norm", 8));
  auto step = weft::forward(layer, context, ids);
  return backward(layer, context, std::move(step.saved), g);
}

// section: index_of_a_value
// A part of a value is a slice.
// expect: a value has no operator
struct Net : Module<Net> {
  using scalar = float;
  using Batch = FieldBatch<input>;
  struct Config {
    std::size_t width = 4;
  };
  Linear<> layer;
  Parameter<> table;
  Net(const auto& context, const Config& config)
      : layer(context / "layer", config.width, config.width), table(context, "table", {4, 1, 3, 3}, normal(1)) {}
#ifdef WEFT_FAIL
  auto forward(const auto& x) const { return silu(layer(x)[0]); }
#else
  auto forward(const auto& x) const { return slice<1>(layer(x), 0, 4); }
#endif
  auto loss(const auto& batch) const { return mse(forward(batch[input]), batch[input]); }
};

double go(World& world, const Net::Batch& batch) {
  Mesh<dp> mesh(world);
  DataParallel<Net> model(mesh, {});
  return model.train_step(batch);
}

// section: sort_without_a_dim
// The dim is a template argument; the result is a pair, whose parts are refused silently.
// expect: sort cannot be called with these arguments
// mention: sort<dim>\(x\)
struct Own : Module<Own> {
  auto forward(const auto& x) const {
#ifdef WEFT_FAIL
    const auto [values, places] = sort(x, 1);
#else
    const auto [values, places] = sort<1>(x);
#endif
    return where(places < 2, exp(values), values);
  }
};

auto go() {
  return testing::check_layer([](const auto&) { return Own(); }, {3, 4});
}

// section: operation_on_a_pair
// covers: weft/operations/operands.hpp
// topk returns two values.
// expect: several values in one operand, as topk, sort and chunk return them
// mention: auto \[a, b\] = topk<1>\(x, 2\)
struct Own : Module<Own> {
  auto forward(const auto& x) const {
#ifdef WEFT_FAIL
    return tanh(exp(topk<1>(x, 2)));
#else
    const auto [values, places] = topk<1>(x, 2);
    return tanh(exp(values));
#endif
  }
};

auto go() {
  return testing::check_layer([](const auto&) { return Own(); }, {3, 4});
}

// section: sum_of_a_value_and_chunks
// chunk returns an array.
// expect: several values in one operand, as topk, sort and chunk return them
struct Own : Module<Own> {
  auto forward(const auto& x) const {
    const auto parts = chunk<1, 2>(x);
#ifdef WEFT_FAIL
    return silu(maximum(parts, parts[1]));
#else
    return silu(maximum(parts[0], parts[1]));
#endif
  }
};

auto go() {
  return testing::check_layer([](const auto&) { return Own(); }, {3, 4});
}

// section: max_of_two_values
// Without a dim, max of two values of one type is Kokkos', which compares them.
// expect: max of values of a forward, which are not compared
// mention: maximum\(x, y\)
struct Own : Module<Own> {
#ifdef WEFT_FAIL
  auto forward(const auto& x) const { return exp(max(tanh(x), x)); }
#else
  auto forward(const auto& x) const { return exp(maximum(tanh(x), x)); }
#endif
};

auto go() {
  return testing::check_layer([](const auto&) { return Own(); }, {3, 4});
}

// section: member_of_another_framework
// covers: weft/tensor/members_elsewhere.hpp
// Operations are functions and no members.
// expect: a value has no member relu
struct Net : Module<Net> {
  using scalar = float;
  using Batch = FieldBatch<input>;
  struct Config {
    std::size_t width = 4;
  };
  Linear<> layer;
  Parameter<> table;
  Net(const auto& context, const Config& config)
      : layer(context / "layer", config.width, config.width), table(context, "table", {4, 1, 3, 3}, normal(1)) {}
#ifdef WEFT_FAIL
  auto forward(const auto& x) const { return silu(layer(x).relu().sum(1)); }
#else
  auto forward(const auto& x) const { return silu(relu(layer(x))); }
#endif
  auto loss(const auto& batch) const { return mse(forward(batch[input]), batch[input]); }
};

double go(World& world, const Net::Batch& batch) {
  Mesh<dp> mesh(world);
  DataParallel<Net> model(mesh, {});
  return model.train_step(batch);
}

// section: operation_of_another_framework
// An operation that weft lacks gives one error, independent of later uses of its result.
// expect: there is no operation tan
struct Net : Module<Net> {
  using scalar = float;
  using Batch = FieldBatch<input>;
  struct Config {
    std::size_t width = 4;
  };
  Linear<> layer;
  Parameter<> table;
  Net(const auto& context, const Config& config)
      : layer(context / "layer", config.width, config.width), table(context, "table", {4, 1, 3, 3}, normal(1)) {}
#ifdef WEFT_FAIL
  auto forward(const auto& x) const { return silu(tan(layer(x))); }
#else
  auto forward(const auto& x) const { return silu(layer(x)); }
#endif
  auto loss(const auto& batch) const { return mse(forward(batch[input]), batch[input]); }
};

double go(World& world, const Net::Batch& batch) {
  Mesh<dp> mesh(world);
  DataParallel<Net> model(mesh, {});
  return model.train_step(batch);
}

// section: operation_of_other_arguments
// Dims are template arguments.
// expect: softmax cannot be called with these arguments
struct Net : Module<Net> {
  using scalar = float;
  using Batch = FieldBatch<input>;
  struct Config {
    std::size_t width = 4;
  };
  Linear<> layer;
  Parameter<> table;
  Net(const auto& context, const Config& config)
      : layer(context / "layer", config.width, config.width), table(context, "table", {4, 1, 3, 3}, normal(1)) {}
#ifdef WEFT_FAIL
  auto forward(const auto& x) const { return silu(softmax(layer(x), 1)); }
#else
  auto forward(const auto& x) const { return silu(softmax<1>(layer(x))); }
#endif
  auto loss(const auto& batch) const { return mse(forward(batch[input]), batch[input]); }
};

double go(World& world, const Net::Batch& batch) {
  Mesh<dp> mesh(world);
  DataParallel<Net> model(mesh, {});
  return model.train_step(batch);
}

// section: product_of_two_parameters
// Two Parameters have no value of the forward beside them.
// expect: operator\* of two Parameters
// mention: beside\(x, first\) \* second
struct Own : Module<Own> {
  Parameter<> gain, weight;
  Own(const auto& context) : gain(context, "gain", {4}, ones), weight(context, "weight", {4}, ones) {}
#ifdef WEFT_FAIL
  auto forward(const auto& x) const { return x * (gain * weight); }
#else
  auto forward(const auto& x) const { return x * (beside(x, gain) * weight); }
#endif
};

auto go() {
  return testing::check_layer([](const auto& context) { return Own(context); }, {3, 4});
}

// section: scalar_bool
// bool is not an element type: vectors of it are bits, and no backend could send them.
// expect: constraints not satisfied|use of invalid variable template
#ifdef WEFT_FAIL
constexpr auto type = weft::data_type_of<bool>;
#else
constexpr auto type = weft::data_type_of<signed char>;
#endif

static_assert(sizeof(type) == 1);

// section: standard_function_of_a_value
// A function of the standard library takes numbers.
// expect: std::tanh is a function of numbers
struct Net : Module<Net> {
  using scalar = float;
  using Batch = FieldBatch<input>;
  struct Config {
    std::size_t width = 4;
  };
  Linear<> layer;
  Parameter<> table;
  Net(const auto& context, const Config& config)
      : layer(context / "layer", config.width, config.width), table(context, "table", {4, 1, 3, 3}, normal(1)) {}
#ifdef WEFT_FAIL
  auto forward(const auto& x) const { return silu(std::tanh(layer(x))); }
#else
  auto forward(const auto& x) const { return silu(tanh(layer(x))); }
#endif
  auto loss(const auto& batch) const { return mse(forward(batch[input]), batch[input]); }
};

double go(World& world, const Net::Batch& batch) {
  Mesh<dp> mesh(world);
  DataParallel<Net> model(mesh, {});
  return model.train_step(batch);
}

// section: standard_maximum_of_a_value
// A function of the standard library on a value and a number.
// expect: std::max is a function of numbers
struct Net : Module<Net> {
  using scalar = float;
  using Batch = FieldBatch<input>;
  struct Config {
    std::size_t width = 4;
  };
  Linear<> layer;
  Net(const auto& context, const Config& config) : layer(context / "layer", config.width, config.width) {}
#ifdef WEFT_FAIL
  auto forward(const auto& x) const { return silu(std::max(layer(x), 0.f)); }
#else
  auto forward(const auto& x) const { return silu(relu(layer(x))); }
#endif
  auto loss(const auto& batch) const { return mse(forward(batch[input]), batch[input]); }
};

double go(World& world, const FieldBatch<input>& batch) {
  Mesh<dp> mesh(world);
  DataParallel<Net> model(mesh, {});
  return model.train_step(batch);
}

// section: dims_of_a_mean
// A reduction along two dims, as torch has it.
// expect: mean cannot be called with these arguments
// mention: mean<1>\(mean<2>\(x\)\)
struct Net : Module<Net> {
  Linear<> layer;
  explicit Net(const auto& context) : layer(context / "layer", 4, 4) {}
#ifdef WEFT_FAIL
  auto forward(const auto& x) const { return exp(mean<0, 1>(layer(x))); }
#else
  auto forward(const auto& x) const { return exp(mean<0>(mean<1>(layer(x)))); }
#endif
};
auto go() {
  return testing::check_layer([](const auto& context) { return Net(context); }, {3, 4});
}

// section: dim_of_a_maximum
// Template arguments that an operation does not have.
// expect: maximum cannot be called with these arguments
// mention: maximum\(x, y\)
struct Net : Module<Net> {
  Linear<> layer;
  explicit Net(const auto& context) : layer(context / "layer", 4, 4) {}
#ifdef WEFT_FAIL
  auto forward(const auto& x) const { return exp(maximum<1>(x, layer(x))); }
#else
  auto forward(const auto& x) const { return exp(maximum(x, layer(x))); }
#endif
};
auto go() {
  return testing::check_layer([](const auto& context) { return Net(context); }, {3, 4});
}

// section: power_by_a_caret
// The power of other languages.
// expect: operator\^: it is no power of values
// mention: pow\(x, number\)
struct Net : Module<Net> {
  Linear<> layer;
  explicit Net(const auto& context) : layer(context / "layer", 4, 4) {}
#ifdef WEFT_FAIL
  auto forward(const auto& x) const { return exp(layer(x) ^ 2); }
#else
  auto forward(const auto& x) const { return exp(pow(layer(x), 2)); }
#endif
};
auto go() {
  return testing::check_layer([](const auto& context) { return Net(context); }, {3, 4});
}

// section: both_masks
// Masks are no conditions of the program.
// expect: operator&&: a value is no condition of the program
// mention: where\(a, where\(b, x, y\), y\)
struct Net : Module<Net> {
  Linear<> layer;
  explicit Net(const auto& context) : layer(context / "layer", 4, 4) {}
#ifdef WEFT_FAIL
  auto forward(const auto& x) const { return exp(where(x > 0 && x < 1, layer(x), x)); }
#else
  auto forward(const auto& x) const { return exp(where(x > 0, where(x < 1, layer(x), x), x)); }
#endif
};
auto go() {
  return testing::check_layer([](const auto& context) { return Net(context); }, {3, 4});
}

// section: opposite_of_a_mask
// The same of one mask.
// expect: operator!: a value is no condition of the program
// mention: x == 0 of a mask
struct Net : Module<Net> {
  Linear<> layer;
  explicit Net(const auto& context) : layer(context / "layer", 4, 4) {}
#ifdef WEFT_FAIL
  auto forward(const auto& x) const { return exp(where(!(x > 0), layer(x), x)); }
#else
  auto forward(const auto& x) const { return exp(where((x > 0) == 0, layer(x), x)); }
#endif
};
auto go() {
  return testing::check_layer([](const auto& context) { return Net(context); }, {3, 4});
}

// section: where_of_real_numbers
// A blend of two values by a third one is no choice between them: its gradient would be lost.
// expect: where: the condition is a Variable of real numbers, whose gradient would be lost
// mention: greater\(x, 0\)
struct Own : Module<Own> {
#ifdef WEFT_FAIL
  auto forward(const auto& x) const { return exp(where(sigmoid(x), x, 0.5)); }
#else
  auto forward(const auto& x) const { return exp(where(sigmoid(x).detach(), x, 0.5)); }
#endif
};

auto go() {
  return testing::check_layer([](const auto&) { return Own(); }, {3, 4});
}
