// SPDX-License-Identifier: Apache-2.0
// covers: weft/operations/einsum.hpp weft/operations/einsum_equation.hpp weft/core/text_argument.hpp
// Einsum: values of many equations against a loop over all letters, derivatives, one rank over dp, tp and cp with each kind of
// letter cut, and what is refused.

#include <doctest/doctest.h>

#include <cstddef>
#include <map>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <weft/core/text_argument.hpp>
#include <weft/operations/einsum.hpp>
#include <weft/operations/einsum_equation.hpp>
#include <weft/operations/functions.hpp>

#include "support/formula.hpp"

using namespace weft;
using weft_test::check_cut;
using weft_test::check_formula;
using weft_test::Exec;
using weft_test::numbers_of;
using weft_test::tensor_of;

namespace {

using Numbers = std::vector<double>;
template <class... P>
using X = Tensor<double, Exec, P...>;

// The extent of each letter.
const std::map<char, std::size_t> extents = {{'b', 3}, {'h', 2}, {'i', 4}, {'j', 5}, {'k', 3}, {'l', 2}, {'B', 40}};

Shape shape_of(const std::string& letters) {
  std::vector<std::size_t> out;
  for (const char letter : letters) out.push_back(extents.at(letter));
  return Shape::of(std::span(out));
}
std::size_t place(const std::string& letters, const std::map<char, std::size_t>& at) {
  std::size_t out = 0;
  for (const char letter : letters) out = out * extents.at(letter) + at.at(letter);
  return out;
}
// The sum over all values of all letters, counted up one by one.
Numbers looped(const std::string& a, const Numbers& x, const std::string& b, const Numbers& y, const std::string& result) {
  Numbers out(result.empty() ? 1 : shape_of(result).size(), 0);
  std::map<char, std::size_t> at;
  for (const char letter : a + b) at[letter] = 0;
  for (;;) {
    out[place(result, at)] += x[place(a, at)] * y[place(b, at)];
    auto letter = at.begin();
    while (letter != at.end() && ++letter->second == extents.at(letter->first)) (letter++)->second = 0;
    if (letter == at.end()) return out;
  }
}
template <detail::TextArgument text, class T = double>
void check_values(double tolerance = 1e-13) {
  const std::string whole(text.view()), a = whole.substr(0, whole.find(',')),
                                        b = whole.substr(a.size() + 1, whole.find('-') - a.size() - 1),
                                        result = whole.substr(whole.find('>') + 1);
  DefaultDevice device;
  const auto x = tensor_of<T>(device, shape_of(a), weft_test::waves(shape_of(a).size())),
             y = tensor_of<T>(device, shape_of(b), weft_test::waves(shape_of(b).size(), 1));
  const auto z = einsum<text>(x, y);
  CAPTURE(whole);
  CHECK(z.shape() == (result.empty() ? Shape{1} : shape_of(result)));
  CHECK(weft_test::difference(numbers_of(z), looped(a, numbers_of(x), b, numbers_of(y), result)) < tolerance);
}

/// Channels mixed at each point by a parameter.
struct Mixed : Module<Mixed> {
  Parameter<> weight;
  explicit Mixed(const auto& context) : weight(context, "weight", {3, 2}, normal(1)) {}
  auto forward(const auto& x) const { return exp(einsum<"bixy,io->boxy">(x, weight)); }
};

}  // namespace

TEST_CASE("equations against a loop over all letters") {
  check_values<"ij,jk->ik">();     // as it lies
  check_values<"ji,kj->ik">();     // both transposed
  check_values<"ij,kj->ki">();     // the result in another order
  check_values<"bij,bjk->bik">();  // a batch
  check_values<"ibj,jbk->kbi">();  // everything in another order
  check_values<"bhij,bhkj->bhik">();
  check_values<"bihj,kbjh->bki">();  // two summed letters
  check_values<"bijk,kl->bijl">();
  check_values<"lbij,kl->bkji">();
  check_values<"i,j->ij">();  // nothing is summed
  check_values<"bi,j->jbi">();
  check_values<"i,i->">();  // all is summed
  check_values<"ij,ji->">();
  check_values<"ij,ij->ij">();  // elements
  check_values<"ij,ji->ji">();
  check_values<"Bi,Bi->B">();  // sums without matrices
  check_values<"iB,Bi->B">();
  check_values<"bij,j->bi">();
  check_values<"bhijkl,l->lbhkij">();
  check_values<"bij,bjk->bik", float>(1e-5);
  check_values<"ibj,jbk->kbi", bfloat16>(2e-2);
  check_values<"Bi,Bi->B", bfloat16>(2e-2);
}

TEST_CASE("derivatives of equations") {
  check_formula([](const auto& x) { return einsum<"bij,bkj->bik">(exp(x), sin(x)); }, {2, 3, 4});
  check_formula([](const auto& x) { return einsum<"ij,kj->ki">(x * x, sin(x)); }, {3, 4});
  check_formula([](const auto& x) { return einsum<"bij,ikb->kj">(exp(x), sin(permute<1, 2, 0>(x))); }, {2, 3, 4});
  check_formula([](const auto& x) { return einsum<"ij,ij->">(exp(x), sin(x)) * einsum<"ij,ij->i">(x, x * x); }, {3, 4});
  check_formula([](const auto& x) { return einsum<"ij,kl->ilkj">(exp(x), sin(x)); }, {2, 3});
}

TEST_CASE("letters that axes cut") {
  // The batch, over dp.
  weft_test::check_over<Shard<dp, 0>>([](const auto& x) { return einsum<"bij,bkj->bki">(exp(x), sin(x)); }, {2, 3, 4});
  // A letter of both and of the result, one that stays, and one that is summed, over tp.
  check_cut<1>([](const auto& x) { return einsum<"bij,bik->bijk">(exp(x), sin(x)); }, {2, 4, 3});
  check_cut<2>([](const auto& x) { return to<Invariant<tp>>(einsum<"bij,bkj->bki">(exp(x), sin(x))); }, {2, 3, 4});
  weft_test::check_over<Invariant<tp>>(
      [](const auto& x) {
        const auto cut = to<Shard<tp, 1>>(sin(x));
        return to<Shard<tp, 0>>(to<Invariant<tp>>(einsum<"bij,bkj->bki">(cut, to<Replicated<tp>>(exp(x)))));
      },
      {2, 4, 3});
  const auto make = [](const auto& context) { return Mixed(context); };
  CHECK(testing::check_layer(make, {4, 3, 2, 2}).compared != 0);
  testing::check_layer_on<dp>(2, make, {4, 3, 2, 2});
  testing::check_layer_on<tp>(2, make, {4, 3, 2, 2});
  testing::check_layer_on<cp>(2, make, {8, 3, 2, 2}, {.length = 4});
}

TEST_CASE("placements of equations") {
  using R = X<Replicated<tp>>;
  using P = X<Partial<tp>>;
  const auto type = []<class A, class B>(const A& a, const B& b) { return einsum<"bij,bjk->bik">(a, b); };
  using F = decltype(type);
  static_assert(std::is_same_v<std::invoke_result_t<F, X<Shard<tp, 0>>, X<Shard<tp, 0>>>, X<Shard<tp, 0>>>);
  static_assert(std::is_same_v<std::invoke_result_t<F, X<Shard<tp, 1>>, R>, X<Shard<tp, 1>>>);
  static_assert(std::is_same_v<std::invoke_result_t<F, R, X<Shard<tp, 2>>>, X<Shard<tp, 2>>>);
  static_assert(std::is_same_v<std::invoke_result_t<F, X<Shard<tp, 2>>, X<Shard<tp, 1>>>, P>);
  static_assert(std::is_same_v<std::invoke_result_t<F, P, R>, P> && std::is_same_v<std::invoke_result_t<F, R, P>, P>);
  static_assert(std::is_same_v<std::invoke_result_t<F, X<Shard<dp, 0>, Shard<tp, 2>>, X<Shard<dp, 0>, Shard<tp, 1>>>,
                               X<Shard<dp, 0>, Partial<tp>>>);
}

TEST_CASE("mistakes of a text") {
  using detail::EquationFault;
  const auto fault = [](const char* text) { return detail::read_equation(text).fault; };
  CHECK(fault("bij,bjk->bik") == EquationFault::none);
  CHECK(fault("bij, bjk -> bik") == EquationFault::none);
  CHECK(fault("i,i->") == EquationFault::none);
  for (const char* text : {"", "ij", "ij,jk", "ij,jk,kl->il", "ij->ji", "ij,jk-ik", "ij,j1->i1", "...i,ij->j",
                           "abcdefg,a->bcdefg", ",ij->ij", "ij,jk->ik->", "ij,jk->i>k", "ij,jk->ik,"})
    CHECK(fault(text) == EquationFault::form);
  for (const char* text : {"ii,ij->ij", "ij,jk->iik", "ii,ij->k"}) CHECK(fault(text) == EquationFault::twice);
  for (const char* text : {"ij,jk->i", "ij,jk->ikl", "ij,j->"}) CHECK(fault(text) == EquationFault::lone);
}

TEST_CASE("operands that an equation does not fit") {
  DefaultDevice device;
  const X<> x(device, {2, 3, 4}), y(device, {2, 5, 6});
  const auto refusal = [](auto&& act) { return weft_test::refusal_of<ShapeError>(act); };
  CHECK(refusal([&] { einsum<"bij,bjk->bik">(x, y); }) ==
        "weft: einsum<\"bij,bjk->bik\">([2, 3, 4], [2, 5, 6]): the dims 'j' have 4 and 5 elements");
  CHECK(refusal([&] { einsum<"ij,ijk->ik">(x, y); }) ==
        "weft: einsum<\"ij,ijk->ik\">([2, 3, 4], [2, 5, 6]): \"ij\" has 2 letters, and the operand 3 dims");
  // Nothing to sum.
  CHECK(numbers_of(einsum<"ij,jk->ik">(X<>(device, {2, 0}), X<>(device, {0, 2}))) == Numbers{0, 0, 0, 0});
  CHECK(einsum<"ij,jk->ik">(X<>(device, {0, 2}), X<>(device, {2, 3})).size() == 0);
}
