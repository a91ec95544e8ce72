// SPDX-License-Identifier: Apache-2.0
#pragma once
// Placement rules of operations as values: the placements of operands on one axis that an operation takes, and the placement of
// its result. DTensor (dtensor/choose.hpp) reads them, as typed products, sums and permutations do (operations/rules.hpp). Tests
// compare typed quotients, batched products, lookups, selections, softmax and slices with them. Axes do not influence each other.
//
// A rule names dims by letters, as Einstein sums do. Dims with one letter have one extent, and an axis cuts all of them or none.
// A letter that the result lacks is reduced, so an axis that cuts it leaves a term of the reduction on each rank.
//
//   constexpr OperationRule product{.operands = {"mk", "kn"}, .count = 2, .result = "mn", .linear = {0b01, 0b10}};
//   result_on(product, {{Kind::shard, 1}, {Kind::shard, 0}})    // k is cut: {Kind::partial}
//   result_on(product, {{Kind::shard, 0}, {Kind::replicated}})  // m is cut: {Kind::shard, 0}

#include <array>
#include <cstddef>
#include <initializer_list>
#include <optional>
#include <span>

#include <weft/comm/operation.hpp>
#include <weft/tensor/placement.hpp>

namespace weft::detail {

/// The placement on one axis: its kind, and the dim that a shard cuts (-1 for other kinds).
struct AxisLayout {
  Kind kind = Kind::replicated;
  int dim = -1;
  constexpr bool whole() const { return kind == Kind::invariant || kind == Kind::replicated; }
  friend constexpr bool operator==(const AxisLayout&, const AxisLayout&) = default;
};
template <class P>
inline constexpr AxisLayout layout_of = {kind_of<P>, shard_dim<P>};

/// The letter of each dim. No axis may cut a dim with the letter '.'.
struct Letters {
  static constexpr int most = 12;
  std::array<char, most> of{};
  int count = 0;

  constexpr Letters() = default;
  constexpr Letters(const char* text) {
    for (; text[count] != '\0'; ++count) of[std::size_t(count)] = text[count];
  }
  constexpr Letters& append(char letter) {
    of[std::size_t(count++)] = letter;
    return *this;
  }
  constexpr char operator[](int dim) const { return dim >= 0 && dim < count ? of[std::size_t(dim)] : '.'; }
  constexpr char& operator[](int dim) { return of[std::size_t(dim)]; }
  constexpr bool operator==(const Letters&) const = default;
  /// The first dim with this letter, or -1.
  constexpr int find(char letter) const {
    for (int dim = 0; dim < count; ++dim)
      if (of[std::size_t(dim)] == letter && letter != '.') return dim;
    return -1;
  }
};

/// The letters "abcd...", one for each of `count` dims.
constexpr Letters alphabet(int count) {
  Letters letters;
  for (int dim = 0; dim < count; ++dim) letters.append(char('a' + dim));
  return letters;
}

struct OperationRule {
  std::array<Letters, 4> operands{};  ///< the last one also describes all further operands
  int count = 1;                      ///< of `operands`
  Letters result{};
  /// Each entry is a set of operands, one bit each: the operation is linear in them together while the others are whole. So the
  /// terms of a sum in these operands give the terms of the result.
  std::array<unsigned, 2> linear{};
  /// The operation only moves elements, so `linear` also holds for the terms of a maximum or a minimum.
  bool moves = false;
  Reduction reduced = Reduction::sum;  ///< of the letters that the result lacks
  /// Over an axis that cuts one of these letters the operation itself all-reduces `inside_bytes` for each element of the result
  /// with one element along these letters. If the result lacks the letter, it is whole.
  Letters inside{};
  std::size_t inside_bytes = 0;
  /// Letters whose extents the ranks of all their axes must divide, in every operand and the result.
  Letters even{};

  constexpr const Letters& operand(std::size_t i) const { return operands[i < std::size_t(count) ? i : std::size_t(count) - 1]; }
};

/// The placement of the result on an axis, or nothing if the operation does not take these placements.
constexpr std::optional<AxisLayout> result_on(const OperationRule& rule, std::span<const AxisLayout> operands) {
  unsigned partial = 0;
  char cut = 0;
  AxisLayout whole = operands.empty() ? AxisLayout{} : operands[0];
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (operands[i].kind == Kind::partial) partial |= 1u << i;
    else if (operands[i].kind == Kind::shard && cut == 0) cut = rule.operand(i)[operands[i].dim];
  }
  if (partial != 0) {
    const unsigned all = operands.size() >= 32 ? ~0u : (1u << operands.size()) - 1;
    bool taken = false;
    for (const unsigned set : rule.linear) taken = taken || (set & all) == partial;
    return taken && cut == 0 ? std::optional(AxisLayout{Kind::partial}) : std::nullopt;
  }
  if (cut == 0) return whole;
  if (cut == '.') return std::nullopt;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const int dim = rule.operand(i).find(cut);
    if (dim < 0 ? !operands[i].whole() : operands[i] != AxisLayout{Kind::shard, dim}) return std::nullopt;
  }
  const int dim = rule.result.find(cut);
  if (dim < 0 && rule.inside.find(cut) >= 0) return AxisLayout{Kind::replicated};
  return dim < 0 ? AxisLayout{Kind::partial} : AxisLayout{Kind::shard, dim};
}
constexpr std::optional<AxisLayout> result_on(const OperationRule& rule, std::initializer_list<AxisLayout> operands) {
  return result_on(rule, std::span<const AxisLayout>(operands.begin(), operands.size()));
}

template <class A, Kind kind, int dim>
struct Placed {
  using type = Shard<A, dim>;
};
template <class A, int dim>
struct Placed<A, Kind::invariant, dim> {
  using type = Invariant<A>;
};
template <class A, int dim>
struct Placed<A, Kind::replicated, dim> {
  using type = Replicated<A>;
};
template <class A, int dim>
struct Placed<A, Kind::partial, dim> {
  using type = Partial<A>;
};
/// The placement of the result of an operation on one operand placed as P; P itself if the rule does not take it, which the
/// operation refuses.
template <const OperationRule& rule, class P>
struct ResultPlacement {
  static constexpr AxisLayout layout = result_on(rule, {layout_of<P>}).value_or(layout_of<P>);
  using type = typename Placed<typename P::axis, layout.kind, layout.dim>::type;
};
template <const OperationRule& rule, class P>
using result_t = typename ResultPlacement<rule, P>::type;

// The rules. `rank` is the number of dims of the operand, or any larger number: further dims do not change the result's.

/// f(x, ...) element by element, of operands with equal shapes. `linear` as in OperationRule.
constexpr OperationRule elementwise_rule(int rank, int operands, unsigned linear, unsigned also = 0) {
  OperationRule rule{.count = operands, .result = alphabet(rank), .linear = {linear, also}};
  for (int i = 0; i < operands; ++i) rule.operands[std::size_t(i)] = alphabet(rank);
  return rule;
}
/// A reduction over the dims whose bits are set; with `kept`, the result has these dims with one element.
constexpr OperationRule reduction_rule(int rank, unsigned dims, bool kept, Reduction reduced) {
  OperationRule rule{.operands = {alphabet(rank)}, .linear = {reduced == Reduction::sum ? 1u : 0u}, .reduced = reduced};
  for (int dim = 0; dim < rank; ++dim)
    if (!(dims >> dim & 1u)) rule.result.append(alphabet(rank)[dim]);
    else if (kept) rule.result.append('.');
  return rule;
}
/// A function along `dim` that needs all of its elements (softmax, slice, concat).
constexpr OperationRule along_rule(int rank, int dim, unsigned linear) {
  OperationRule rule = elementwise_rule(rank, 1, linear);
  rule.operands[0][dim] = rule.result[dim] = '.';
  return rule;
}
/// Dim d of the result is the operand's dim dims[d].
constexpr OperationRule permutation_rule(std::span<const int> dims) {
  OperationRule rule{.operands = {alphabet(int(dims.size()))}, .linear = {1}, .moves = true};
  for (const int from : dims) rule.result.append(alphabet(int(dims.size()))[from]);
  return rule;
}
/// Dims first to last become one, whose cuts are those of `first`.
constexpr OperationRule flatten_rule(int rank, int first, int last) {
  OperationRule rule = elementwise_rule(rank, 1, 1);
  rule.moves = true;
  rule.result = {};
  for (int dim = 0; dim < rank; ++dim) {
    if (dim > first && dim <= last) rule.operands[0][dim] = '.';
    else rule.result.append(rule.operands[0][dim]);
  }
  rule.even.append(rule.operands[0][first]);
  return rule;
}
/// `dim` becomes `count` dims, of which an axis cuts the outermost.
constexpr OperationRule unflatten_rule(int rank, int dim, int count) {
  OperationRule rule = elementwise_rule(rank, 1, 1);
  rule.moves = true;
  rule.result = {};
  for (int from = 0; from < rank; ++from) {
    rule.result.append(rule.operands[0][from]);
    for (int inner = 1; from == dim && inner < count; ++inner) rule.result.append('.');
  }
  rule.even.append(rule.operands[0][dim]);
  return rule;
}
/// [m, k] by [k, n]; each batch dim of [..., m, k] is also one of the right factor, or with `shared`, of none.
constexpr OperationRule matmul_rule(int batch, bool shared) {
  OperationRule rule{.operands = {alphabet(batch), shared ? Letters() : alphabet(batch)},
                     .count = 2,
                     .result = alphabet(batch),
                     .linear = {0b01, 0b10}};
  rule.operands[0].append('m').append('k');
  rule.operands[1].append('k').append('n');
  rule.result.append('m').append('n');
  return rule;
}

// The examples of the opening comment, and one row of each kind.
static_assert(result_on(matmul_rule(0, false), {{Kind::shard, 1}, {Kind::shard, 0}}) == AxisLayout{Kind::partial});
static_assert(result_on(matmul_rule(0, false), {{Kind::shard, 0}, {Kind::replicated}}) == AxisLayout{Kind::shard, 0});
static_assert(!result_on(matmul_rule(0, false), {{Kind::partial}, {Kind::partial}}));
static_assert(result_on(reduction_rule(3, 0b010, false, Reduction::sum), {{Kind::shard, 2}}) == AxisLayout{Kind::shard, 1});
static_assert(!result_on(along_rule(2, 1, 0), {{Kind::shard, 1}}) && !result_on(along_rule(2, 1, 0), {{Kind::partial}}));

}  // namespace weft::detail
