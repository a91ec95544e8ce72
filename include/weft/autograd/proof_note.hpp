// SPDX-License-Identifier: Apache-2.0
#pragma once
// The notes of results in a proof (device/proof.hpp): each result of a layer or an operation, with its placements over dp, cp and
// tp, by which the pieces of all ranks are put together. Only in a build with WEFT_PROVE_IN_DOUBLE; in others all of this is
// empty.
//
//   detail::note_result<F>(context, y);

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include <weft/device/proof.hpp>
#include <weft/mesh/axis.hpp>
#include <weft/tensor/tensor.hpp>
#include <weft/tensor/transfer.hpp>

namespace weft::detail {

#ifdef WEFT_PROVE_IN_DOUBLE
inline constexpr bool proves_results = true;
#else
inline constexpr bool proves_results = false;
#endif

/// The name of the first type without its arguments: "Linear"; of a lambda of an operation that operation.
template <class... T>
std::string proof_type_name() {
  std::string_view all = __PRETTY_FUNCTION__;
  constexpr std::string_view operations = "operations::";
  if (const auto at = all.find(operations); at != all.npos && all.find("<lambda") != all.npos) {
    const auto begin = at + operations.size();
    return std::string(all.substr(begin, all.find_first_of("(<[", begin) - begin));
  }
  std::string name(all);
  for (const std::string_view left_out : {"{anonymous}::", "(anonymous namespace)::"})
    for (auto at = name.find(left_out); at != name.npos; at = name.find(left_out)) name.erase(at, left_out.size());
  for (const std::string_view before : {"T = {", "T = <"})
    if (const auto at = name.find(before); at != name.npos) name.erase(0, at + before.size());
  name.resize(std::min(name.size(), name.find_first_of("<}]>;,")));
  if (const auto at = name.rfind("::"); at != name.npos) name.erase(0, at + 2);
  return name;
}

template <class P>
inline constexpr ProofPiece::Cut proof_cut{kind_of<P> == Kind::shard     ? ProofPiece::shard
                                           : kind_of<P> == Kind::partial ? ProofPiece::partial
                                                                         : ProofPiece::whole,
                                           shard_dim<P>};

/// Whether experts compute this tensor: its rows are tokens of any rank, in an order that depends on the layout.
template <class Y>
inline constexpr bool of_expert_mesh =
    kind_of<placement_t<Y, edp>> != Kind::absent || kind_of<placement_t<Y, ep>> != Kind::absent ||
    kind_of<placement_t<Y, etp>> != Kind::absent;

/// Whether domain axes cut y, or hold terms of it.
template <class Y>
inline constexpr bool in_pieces_of_space = false;
template <class T, class E, class... P>
inline constexpr bool in_pieces_of_space<Tensor<T, E, P...>> = ((is_domain_axis<typename P::axis> && !is_whole<P>) || ...);

/// Notes y, a tensor or a tuple of tensors, as a result of the first type of Named, if the rank computes a unit's training step.
/// Pieces of space are left out: they have different extents, and the parameters' gradients depend on all of them.
template <class... Named, class Context, class Y>
void note_result([[maybe_unused]] const Context& context, [[maybe_unused]] const Y& y) {
  if constexpr (!proves_results) {
    return;
  } else if constexpr (requires { std::tuple_size<Y>::value; }) {
    std::apply([&](const auto&... part) { (note_result<Named...>(context, part), ...); }, y);
  } else if constexpr (AnyTensor<Y>) {
    if constexpr (std::is_floating_point_v<typename Y::value_type> && !of_expert_mesh<Y> && !in_pieces_of_space<Y>) {
      Proof* const proof = context.device().proof();
      if (proof == nullptr || !proof->in_unit() || !y) return;
      ProofPiece piece{.over_dp = Context::has(dp{}) ? proof_cut<placement_t<Y, dp>> : ProofPiece::Cut{ProofPiece::shard, 0},
                       .over_cp = proof_cut<placement_t<Y, cp>>,
                       .over_tp = proof_cut<placement_t<Y, tp>>,
                       .dp_rank = context.rank(dp{}),
                       .cp_rank = context.rank(cp{}),
                       .tp_rank = context.rank(tp{})};
      for (std::size_t dim = 0; dim < y.shape().rank(); ++dim) piece.shape.push_back(y.shape()[dim]);
      const auto host = copy_to_host(y);
      piece.values.assign(host.begin(), host.end());
      proof->note_result(proof_type_name<Named...>(), std::move(piece));
    }
  }
}

/// While it exists, the rank computes a unit of the model for a micro-batch of a training step.
class ProofUnitScope {
 public:
  template <class Context>
  ProofUnitScope(const Context& context, bool forward, const std::string& name, int number, std::size_t first_row,
                 std::size_t length, std::size_t samples)
      : proof_(context.device().proof()) {
    if (proof_ != nullptr) proof_->enter_unit(forward, name, number, first_row / (length == 0 ? 1 : length), samples);
  }
  ~ProofUnitScope() {
    if (proof_ != nullptr) proof_->leave_unit();
  }
  ProofUnitScope(const ProofUnitScope&) = delete;
  ProofUnitScope& operator=(const ProofUnitScope&) = delete;

 private:
  Proof* proof_;
};

}  // namespace weft::detail
