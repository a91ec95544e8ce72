// SPDX-License-Identifier: Apache-2.0
// covers: weft/kernels/squared_norm.hpp weft/kernels/update_elements.hpp weft/kernels/detail/part_table.hpp
#include <weft/kernels/detail/part_table.hpp>
#include <weft/kernels/optimizer.hpp>
#include <weft/kernels/squared_norm.hpp>
#include <weft/kernels/update_elements.hpp>

#include <span>

#include <tests/kernels/support.hpp>

using namespace kernels_test;
namespace kernels = weft::kernels;

TEST_CASE_TEMPLATE(
    "the sum of squares is that of double, the same for any number of threads, and reports elements that are not finite", T,
    float, double, bfloat16) {
  Devices devices;
  for (const std::size_t n : {1, 1000, 100003}) {
    auto g = normal<T>(n, 1);
    double right = 0, all = 0, one = 0;
    for (const T& v : g) right += double(v) * double(v);
    kernels::squared_norm<T>(devices.all, n, g.data(), &all);
    kernels::squared_norm<T>(devices.one, n, g.data(), &one);
    CHECK(std::abs(all / right - 1) <
          (std::is_same_v<T, double> ? 1e-13 : 5e-7));  // float sums of 1024 elements, over as few as 4 lanes
    CHECK(all == one);
    g[n / 2] = to<T>(NAN);
    kernels::squared_norm<T>(devices.all, n, g.data(), &all);
    CHECK(std::isnan(all));
    g[n / 2] = to<T>(-INFINITY);
    kernels::squared_norm<T>(devices.all, n, g.data(), &all);
    CHECK(std::isinf(all));
  }
}

namespace {

/// Elements written between two updates, in whole registers and at the end: the next update starts from them.
template <class P>
void write_some(std::vector<P>& parameter, std::vector<double>& p) {
  for (std::size_t i = 0; i < parameter.size(); i += i < 64 ? 1 : 7) {
    parameter[i] = P(accumulate_t<P>(0.25 + 1e-3 * double(i % 500)));
    p[i] = double(accumulate_t<P>(parameter[i]));
  }
}

template <class P, class G>
void check_adamw() {
  using A = accumulate_t<P>;
  DefaultDevice device;
  const std::size_t n = 1003;
  auto parameter = normal<P>(n, 1);
  std::vector<A> master(parameter.begin(), parameter.end()), m(n), v(n);
  std::vector<double> p = widen(parameter), rm(n), rv(n);
  for (int step = 1; step <= 5; ++step) {
    if (step == 3) write_some(parameter, p);
    const auto gradient = normal<G>(n, unsigned(step));
    kernels::AdamwOptions o{.learning_rate = 0.01, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1};
    o.bias_correction1 = 1 - std::pow(o.beta1, step), o.bias_correction2 = 1 - std::pow(o.beta2, step), o.gradient_scale = 0.5;
    kernels::adamw_update<P, G>(device, n, parameter.data(), std::is_same_v<P, A> ? nullptr : master.data(), gradient.data(),
                                m.data(), v.data(), o);
    for (std::size_t i = 0; i < n; ++i) {  // PyTorch's order of operations
      const double g = 0.5 * double(gradient[i]);
      p[i] *= 1 - o.learning_rate * o.weight_decay;
      rm[i] = o.beta1 * rm[i] + (1 - o.beta1) * g;
      rv[i] = o.beta2 * rv[i] + (1 - o.beta2) * g * g;
      p[i] -= o.learning_rate / o.bias_correction1 * rm[i] / (std::sqrt(rv[i]) / std::sqrt(o.bias_correction2) + o.epsilon);
    }
  }
  check_close(parameter, p);
  CHECK(difference(m, rm) <= (std::is_same_v<A, double> ? 1e-13 : 1e-6));
  if (!std::is_same_v<P, A>) CHECK(difference(master, p) <= 1e-6);
}

template <class P>
void check_sgd(bool momentum, bool nesterov) {
  using A = accumulate_t<P>;
  DefaultDevice device;
  const std::size_t n = 517;
  auto parameter = normal<P>(n, 1);
  std::vector<A> master(parameter.begin(), parameter.end()), buffer(n);
  std::vector<double> p = widen(parameter), b(n);
  for (int step = 1; step <= 4; ++step) {
    if (step == 3) write_some(parameter, p);
    const auto gradient = normal<P>(n, unsigned(step));
    const kernels::SgdOptions o{.learning_rate = 0.1, .momentum = momentum ? 0.9 : 0, .weight_decay = 0.01, .nesterov = nesterov};
    kernels::update_elements(
        device,
        kernels::UpdateArrays<P, P, 1>{
            n, parameter.data(), std::is_same_v<P, A> ? nullptr : master.data(), gradient.data(), {buffer.data()}},
        kernels::SgdElement<A>(o), {.value = 2});
    for (std::size_t i = 0; i < n; ++i) {
      double g = 2 * double(gradient[i]) + o.weight_decay * p[i];
      if (momentum) {
        b[i] = o.momentum * b[i] + g;
        g = nesterov ? g + o.momentum * b[i] : b[i];
      }
      p[i] -= o.learning_rate * g;
    }
  }
  check_close(parameter, p);
}

}  // namespace

TEST_CASE("AdamW is PyTorch's, with a master copy for bfloat16") {
  check_adamw<float, float>();
  check_adamw<double, double>();
  check_adamw<bfloat16, bfloat16>();
  check_adamw<bfloat16, float>();
  check_adamw<float16, float>();
}

TEST_CASE("SGD is PyTorch's, plain, with momentum, and Nesterov's") {
  for (const auto& options : std::vector<std::array<bool, 2>>{{false, false}, {true, false}, {true, true}}) {
    check_sgd<float>(options[0], options[1]);
    check_sgd<double>(options[0], options[1]);
    check_sgd<bfloat16>(options[0], options[1]);
    check_sgd<float16>(options[0], options[1]);
  }
}

TEST_CASE_TEMPLATE("an element's bits do not depend on its place in an array", P, float, double, bfloat16) {
  using A = accumulate_t<P>;
  DefaultDevice device;
  const std::size_t n = 3 * 1024;
  const auto before = normal<P>(n, 1);
  const auto gradient = normal<A>(n, 2), first = normal<A>(n, 3);
  struct State {
    std::vector<P> parameter;
    std::vector<A> master, m, v;
  };
  const auto fresh = [&] {
    State s{before, std::vector<A>(before.begin(), before.end()), first, first};
    for (A& x : s.v) x *= x;
    return s;
  };
  const auto update = [&](State& s, std::size_t from, std::size_t count, bool adamw) {
    A* const master = std::is_same_v<P, A> ? nullptr : s.master.data() + from;
    if (adamw)
      kernels::adamw_update<P, A>(
          device, count, s.parameter.data() + from, master, gradient.data() + from, s.m.data() + from, s.v.data() + from,
          {.weight_decay = 0.1, .bias_correction1 = 0.1, .bias_correction2 = 0.01, .gradient_scale = 0.3});
    else
      kernels::update_elements(
          device,
          kernels::UpdateArrays<P, A, 1>{count, s.parameter.data() + from, master, gradient.data() + from, {s.m.data() + from}},
          kernels::SgdElement<A>({.momentum = 0.9, .weight_decay = 0.1, .nesterov = true}), {.value = 0.3});
  };
  for (const bool adamw : {true, false}) {
    State whole = fresh(), pieces = fresh();
    update(whole, 0, n, adamw);
    for (std::size_t i = 0; i < n; i += 3) update(pieces, i, 3, adamw);  // fewer than a register holds
    CHECK(same_bits(whole.parameter, pieces.parameter));
    CHECK(same_bits(whole.master, pieces.master));
    CHECK(same_bits(whole.m, pieces.m));
    CHECK(same_bits(whole.v, pieces.v));
  }
}

TEST_CASE("a table of parts has each element in one piece, and is reused for the same parts") {
  DefaultDevice device;
  using Part = kernels::NormPart<float>;
  kernels::detail::PartTables<Part, 4> tables;
  std::vector<float> x(13);
  const std::vector<Part> parts{{x.data(), 9}, {x.data(), 0}, {x.data() + 9, 4}};
  std::vector<Part> others = parts;
  others[0].n = 3;
  const auto& table = tables.of(device, std::span<const Part>(parts));
  REQUIRE(table.pieces() == 4);
  CHECK(table.elements() == 13);
  const auto& list = table.list();
  std::vector<std::size_t> ends;
  for (std::size_t i = 0; i < table.pieces(); ++i) ends.insert(ends.end(), {list.begin(i), list.end(i)});
  CHECK(ends == std::vector<std::size_t>{0, 4, 4, 8, 8, 9, 0, 4});
  CHECK((list.part_of(2).data == x.data() && list.part_of(3).data == x.data() + 9));
  CHECK((list.first_of(0) == 0 && list.first_of(1) == 3 && list.first_of(2) == 3 && list.first_of(3) == 4));
  CHECK(&tables.of(device, std::span<const Part>(parts)) == &table);
  CHECK(tables.of(device, std::span<const Part>(others)).elements() == 7);
  CHECK(tables.of(device, std::span<const Part>(parts)).elements() == 13);
}
