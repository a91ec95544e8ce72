// SPDX-License-Identifier: Apache-2.0
#pragma once
// Attention while a model decodes: the layer's keys and values go into the caller's KeyValueCache, and new tokens see those that
// are there (context/key_value_cache.hpp).

#include <weft/context/key_value_cache.hpp>
#include <weft/kernels/attention.hpp>
#include <weft/kernels/cached_attention.hpp>

namespace weft::detail {

/// Appends the keys and values of `in`, rows of this rank's whole heads, to the cache. Returns true if it has also computed the
/// attention, into `out` [rows, width]. Returns false if the sequences begin here: attention within documents is then the same,
/// and faster. Throws UsageError for a mask that allows later tokens.
template <class T, class Exec>
bool attend_cached(Device<Exec>& device, CachedTokens& tokens, const AttentionMask& mask,
                   const kernels::AttentionExtents& extents, const kernels::AttentionOperands<const T>& in, T* out) {
  if (!mask.causal)
    throw_error<UsageError>(
        {"decode: an attention layer of this model sees later tokens (causal is false), so the keys of earlier "
         "ones would change with each token"});
  const CachedLayer& layer = tokens.next_layer(device, extents.kv_heads, extents.head_width, sizeof(T));
  T *const keys = static_cast<T*>(layer.keys.get()), *const values = static_cast<T*>(layer.values.get());
  const kernels::CacheExtents shape{.rows = extents.rows(),
                                    .heads = extents.heads,
                                    .kv_heads = extents.kv_heads,
                                    .head_width = extents.head_width,
                                    .capacity = tokens.cache->capacity(),
                                    .longest = tokens.longest,
                                    .window = mask.window};
  const kernels::CachePlace place{tokens.sequences, tokens.positions};
  kernels::append_to_cache(device, shape, place, in.k, in.k_stride, in.v, in.v_stride, keys, values);
  if (tokens.first) return false;
  kernels::cached_attention(device, shape, place, in.q, in.q_stride, static_cast<const T*>(keys), static_cast<const T*>(values),
                            out);
  return true;
}

}  // namespace weft::detail
