// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for parallel/model_options.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <weft/core/inline.hpp>
#include <weft/parallel/model_options.hpp>

namespace weft {

WEFT_INLINE void ModelOptions::check() const {
  lora.check();
  if (loss.chunks == 0)
    throw_error<UsageError>({"ModelOptions::loss.chunks is 0: the loss is computed in 1 part (all logits at once) or more"});
  const auto& reproducible = numerics.reproducible;
  const auto& reduce = numerics.reduce;
  const auto& gradient = numerics.gradient;
  if (const std::size_t degree = numerics.reproducible_degree; degree != 0) {
    if ((degree & (degree - 1)) != 0)
      throw_error<UsageError>({"ModelOptions::numerics.reproducible_degree is ", degree,
                               ": the terms of a sum are added in a binary tree, so it is a ", "power of two, or 0 for off"});
    if (!reproducible)
      throw_error<UsageError>(
          {"ModelOptions::numerics.reproducible_degree is ", degree,
           " without numerics.reproducible, which fixes the sums over data ranks: set both, or leave the degree out"});
    if (tensor.piece_bytes != 0)
      throw_error<UsageError>(
          {"ModelOptions: numerics.reproducible_degree sums each product over tp at once, so it cannot go with "
           "tensor.piece_bytes; leave one of them out"});
  }
  if (data.hook && reproducible)
    throw_error<UsageError>(
        {"ModelOptions: numerics.reproducible fixes how gradients are added, so it cannot go with a communication hook; leave "
         "one of them out"});
  if (gradient && size_of(*gradient) == 2 && reproducible)
    throw_error<UsageError>(
        {"ModelOptions: numerics.reproducible adds gradients in float32, so it cannot go with numerics.gradient in ",
         name_of(*gradient), "; leave one of them out"});
  if (shard.quantised_reduce_bits != 8 && shard.quantised_reduce_bits != 4)
    throw_error<UsageError>(
        {"ModelOptions::shard.quantised_reduce_bits is ", shard.quantised_reduce_bits, ": integers have 8 or 4 bits"});
  if (shard.quantised_reduce != 0 && (reproducible || reduce == DataType::bfloat16))
    throw_error<UsageError>({"ModelOptions: shard.quantised_reduce sums gradients as integers, so it cannot go with ",
                             reproducible ? "numerics.reproducible" : "numerics.reduce in bfloat16", "; leave one of them out"});
  if (reduce && *reduce != DataType::bfloat16 && *reduce != DataType::float32)
    throw_error<UsageError>(
        {"ModelOptions::numerics.reduce is ", name_of(*reduce), ": gradients are reduced in bfloat16 or float32"});
  if (reduce != DataType::bfloat16) return;
  if (reproducible)
    throw_error<UsageError>(
        {"ModelOptions: numerics.reproducible adds gradients in their own type, so it cannot go with numerics.reduce in "
         "bfloat16; leave one of them out"});
  if (data.hook)
    throw_error<UsageError>(
        {"ModelOptions: a communication hook chooses the type in which gradients are sent; leave numerics.reduce or the hook "
         "out"});
}

}  // namespace weft
