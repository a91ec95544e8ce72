// SPDX-License-Identifier: Apache-2.0
// covers: weft/core/has_member.hpp
// The errors found in a class that is not a layer: one class for each mistake, and one for each valid form. The texts of the
// errors are in compile_fail/layer.cpp.
#include <weft/autograd/layer_check.hpp>

#include <memory>
#include <tuple>
#include <utility>

#include <doctest/doctest.h>

#include <weft/core/has_member.hpp>

using namespace weft;
using namespace weft::detail;
using namespace weft::detail::layer_check;

namespace {

struct Public {
  int forward(int) const;
};
struct Overloaded {
  int forward(int) const, forward(double);
};
struct Template {
  auto forward(const auto& x) const { return x; }
};
class Private {
  int forward(int) const;
};
struct Inherited : Public {};
struct Data {
  int forward;
};
struct Final final {
  int forward(int) const;
};
struct Empty {};
static_assert(has_forward<Public>() && has_forward<Overloaded>() && has_forward<Template>() && has_forward<Private>());
static_assert(has_forward<Inherited>() && has_forward<Data>() && has_forward<Final>());
static_assert(!has_forward<Empty>() && !has_forward<int>());
static_assert(!has_backward<Public>(), "of this name, not of any");

// The context and the input are ints: the checks only need calls.
struct Immovable {
  Immovable(Immovable&&) = delete;
};
struct Right {
  Result<int, std::tuple<int, double>> forward(int, int) const;
};
struct Missing {};
struct NotConst {
  Result<int, int> forward(int, int);
};
struct Arguments {
  Result<int, int> forward(int) const;
};
struct ReturnsNothing {
  void forward(int, int) const;
};
struct NoResult {
  int forward(int, int) const;
};
struct SavedStays {
  Result<int, Immovable> forward(int, int) const;
};
struct SavedRefers {
  Result<int, std::tuple<int, const int&>> forward(int, int) const;
};
struct SavedPair {
  Result<int, std::pair<int&, int>> forward(int, int) const;
};
struct SavedOnlyMoves {
  Result<int, std::unique_ptr<int>> forward(int, int) const;
};
template <class L>
constexpr Forward forward_of = fault_of_forward<L, int, int>();
static_assert(forward_of<Right> == Forward::right && forward_of<SavedOnlyMoves> == Forward::right);
static_assert(forward_of<Missing> == Forward::missing && forward_of<NotConst> == Forward::not_const);
static_assert(forward_of<Arguments> == Forward::arguments && forward_of<Private> == Forward::arguments);
static_assert(forward_of<ReturnsNothing> == Forward::returns_nothing && forward_of<NoResult> == Forward::no_result);
static_assert(forward_of<SavedStays> == Forward::saved_stays);
static_assert(forward_of<SavedRefers> == Forward::saved_refers && forward_of<SavedPair> == Forward::saved_refers);
static_assert(Forwards<Right, int, int> && !Forwards<NoResult, int, int> && !Forwards<SavedRefers, int, int>);
static_assert(!Forwards<Right, int, AlreadyRefused>, "a refused value is the input of no layer");

struct Whole {
  int backward(int, double, int);
};
struct Halves {
  InputGradient<int, int> backward_input(int, double, int);
};
struct ByReference {
  int backward(int, double&, int);
};
struct WholeOfNothing {
  void backward(int, double, int);
};
struct HalvesOfNothing {
  void backward_input(int, double, int);
};
struct HalvesWithoutSplit {
  int backward_input(int, double, int);
};
struct WholeOfSplit {
  InputGradient<int, int> backward(int, double, int);
};
template <class L>
constexpr Backward backward_of = fault_of_backward<L, int, double, int>();
// Called if the result is unusable: for a valid whole the remaining answer is a split, for valid halves none.
static_assert(backward_of<Missing> == Backward::missing && backward_of<ByReference> == Backward::arguments);
static_assert(backward_of<WholeOfNothing> == Backward::returns_nothing &&
              backward_of<HalvesOfNothing> == Backward::returns_nothing);
static_assert(backward_of<HalvesWithoutSplit> == Backward::no_split && backward_of<WholeOfSplit> == Backward::split);
static_assert(backward_of<Whole> == Backward::split && backward_of<Halves> == Backward::no_split);

}  // namespace

TEST_CASE("layers after a refused one give no error") {
  static_assert(is_refused<AlreadyRefused> && is_refused<const AlreadyRefused&> && !is_refused<int>);
  static_assert(std::is_same_v<decltype(refuse_forward<Right, int, AlreadyRefused>()), RefusedResult>);
  refuse_backward<Missing, int, AlreadyRefused, int>();
  refuse_backward_weight<Missing, int, AlreadyRefused>();
}
