// SPDX-License-Identifier: Apache-2.0
#pragma once
// The equation of einsum, read at compile time: the letters of both operands and of the result, the mistakes of a text, and how
// its letters become the dims of a batch of matrix products.
//
//   constexpr auto e = read_equation("bij,bjk->bik");
//   constexpr EinsumPlan plan(e);   // batch "b", left "i", summed "j", right "k"

#include <string_view>

#include <weft/tensor/placement_rules.hpp>

namespace weft::detail {

/// The letters of each dim. A structural type, so that it is a template argument.
struct Equation {
  Letters x, y, result;
  constexpr bool operator==(const Equation& other) const = default;
};

enum class EquationFault { none, form, twice, lone };

constexpr bool has(const Letters& letters, char letter) { return letters.find(letter) >= 0; }

/// The equation of a text, and its first mistake.
struct ReadEquation {
  Equation equation;
  EquationFault fault = EquationFault::none;
};
constexpr ReadEquation read_equation(std::string_view text) {
  ReadEquation out;
  Letters* const parts[] = {&out.equation.x, &out.equation.y, &out.equation.result};
  int part = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == ' ') continue;
    if ((part == 0 && c == ',') || (part == 1 && c == '-' && i + 1 < text.size() && text[i + 1] == '>')) {
      i += part == 1;
      ++part;
    } else if (((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) && parts[part]->count < 6) {
      if (has(*parts[part], c)) out.fault = EquationFault::twice;
      parts[part]->append(c);
    } else {
      return {{}, EquationFault::form};
    }
  }
  if (part != 2 || out.equation.x.count == 0 || out.equation.y.count == 0) return {{}, EquationFault::form};
  const Equation& e = out.equation;
  for (const Letters* letters : {&e.x, &e.y, &e.result})
    for (int dim = 0; dim < letters->count; ++dim) {
      const char letter = (*letters)[dim];
      const int times = has(e.x, letter) + has(e.y, letter) + has(e.result, letter);
      if (times < 2 && out.fault == EquationFault::none) out.fault = EquationFault::lone;
    }
  return out;
}

/// The order of an operand's letters for a batch of matrix products, and whether it has that order without a copy.
struct EinsumOrder {
  Letters letters;
  bool as_it_is = false, transposed = false;
  int dims[Letters::most] = {};  ///< of the operand, for each letter
};

constexpr Letters joined(const Letters& a, const Letters& b, const Letters& c) {
  Letters out;
  for (const Letters* letters : {&a, &b, &c})
    for (int dim = 0; dim < letters->count; ++dim) out.append((*letters)[dim]);
  return out;
}
constexpr EinsumOrder order_of(const Letters& operand, const Letters& wanted, const Letters& transposed) {
  EinsumOrder out{.letters = operand == transposed ? transposed : wanted,
                  .transposed = operand == transposed && !(operand == wanted)};
  out.as_it_is = operand == wanted || operand == transposed;
  for (int dim = 0; dim < out.letters.count; ++dim) out.dims[dim] = operand.find(out.letters[dim]);
  return out;
}

/// An equation as batched products: x [batch, left, summed] times y [batch, summed, right] -> [batch, left, right], whose dims
/// are then brought into the result's order.
struct EinsumPlan {
  Letters batch, left, right, summed;
  EinsumOrder x, y, result;
  constexpr explicit EinsumPlan(const Equation& e) {
    for (int dim = 0; dim < e.result.count; ++dim) {
      const char letter = e.result[dim];
      const bool in_x = has(e.x, letter), in_y = has(e.y, letter);
      (in_x && in_y ? batch : in_x ? left : right).append(letter);
    }
    for (int dim = 0; dim < e.x.count; ++dim)
      if (!has(e.result, e.x[dim])) summed.append(e.x[dim]);
    x = order_of(e.x, joined(batch, left, summed), joined(batch, summed, left));
    y = order_of(e.y, joined(batch, summed, right), joined(batch, right, summed));
    const Letters product = joined(batch, left, right);
    result = order_of(product, e.result, e.result);
  }
  /// No dim belongs to one operand only: sums of products of elements, without matrices.
  constexpr bool elementwise() const { return left.count == 0 && right.count == 0; }
};

}  // namespace weft::detail
