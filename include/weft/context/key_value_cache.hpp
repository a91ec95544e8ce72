// SPDX-License-Identifier: Apache-2.0
#pragma once
// The keys and values of the tokens so far, so that the next token costs one row of each layer. The caller owns it and passes it
// to Wrapper::decode; a rank keeps those of its own layers and heads.
//
//   KeyValueCache cache(prompts.size(), 256);
//   auto logits = model.decode(cache, prompts);                       // [sequences, vocabulary], the logits after the prompts
//   logits = model.decode(cache, std::vector<std::vector<std::int32_t>>{{17}, {4}});   // one more token each

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <weft/core/checked.hpp>
#include <weft/core/error.hpp>
#include <weft/core/text.hpp>
#include <weft/device/device.hpp>

namespace weft {

namespace detail {

/// The keys and values of one attention layer, [sequences, kv_heads, capacity, width] each.
struct CachedLayer {
  std::size_t kv_heads = 0, width = 0, element = 0;  ///< heads of this rank; bytes of an element
  Buffer keys, values;
};

struct CachedTokens;

}  // namespace detail

/// Room for `capacity` tokens of each of `sequences` sequences. A layer's memory is allocated when it is first used, on the
/// device of the model, which must outlive the cache. Throws UsageError if either number is 0.
class KeyValueCache {
 public:
  KeyValueCache(std::size_t sequences, std::size_t capacity) : capacity_(capacity), lengths_(sequences) {
    if (sequences == 0 || capacity == 0)
      throw_error<UsageError>({"KeyValueCache(", sequences, ", ", capacity, "): at least one sequence of one token"});
  }
  KeyValueCache(KeyValueCache&&) noexcept = default;
  KeyValueCache& operator=(KeyValueCache&&) noexcept = default;

  std::size_t sequences() const { return lengths_.size(); }
  /// Tokens of a sequence, at most.
  std::size_t capacity() const { return capacity_; }
  /// Tokens of each sequence so far.
  std::span<const std::size_t> lengths() const { return lengths_; }
  /// Forgets the tokens of a sequence from the `length`-th on. Throws UsageError if it has fewer.
  void truncate(std::size_t sequence, std::size_t length) {
    if (sequence >= lengths_.size() || length > lengths_[sequence])
      throw_error<UsageError>({"KeyValueCache::truncate(", sequence, ", ", length, "): it has ", lengths_.size(), " sequences",
                               sequence < lengths_.size() ? joined_length(lengths_[sequence]) : ""});
    lengths_[sequence] = length;
  }
  /// Bytes of this rank's layers.
  std::size_t bytes() const {
    std::size_t all = 0;
    for (const auto& layer : layers_) all += 2 * elements(layer) * layer.element;
    return all;
  }

 private:
  friend struct detail::CachedTokens;
  static std::string joined_length(std::size_t length) { return detail::joined({", and this one has ", length, " tokens"}); }
  std::size_t elements(const detail::CachedLayer& layer) const {
    return lengths_.size() * layer.kv_heads * capacity_ * layer.width;
  }

  std::size_t capacity_;
  std::vector<std::size_t> lengths_;
  std::vector<detail::CachedLayer> layers_;  // in the order in which a forward of this rank calls them
};

namespace detail {

/// The tokens of a forward that appends to a cache, as its layers see them (Environment::cached).
struct CachedTokens {
  KeyValueCache* cache = nullptr;
  const std::int32_t *sequences = nullptr, *positions = nullptr;  ///< [rows] in the device's memory; sequence -1: padding
  std::size_t longest = 0;                                        ///< tokens of the longest sequence, these included
  bool first = false;      ///< the sequences begin here, one document of the micro-batch each
  std::size_t called = 0;  ///< attention layers of this forward so far

  /// The memory of the layer that is called.
  template <class Exec>
  CachedLayer& next_layer(Device<Exec>& device, std::size_t kv_heads, std::size_t width, std::size_t element) {
    auto& layers = cache->layers_;
    const std::size_t index = called++;
    if (index == layers.size()) {
      CachedLayer layer{kv_heads, width, element, {}, {}};
      const std::size_t bytes = checked_multiply(cache->elements(layer), element);
      layer.keys = device.allocate_persistent(bytes);
      layer.values = device.allocate_persistent(bytes);
      layers.push_back(std::move(layer));
    }
    CachedLayer& layer = layers[index];
    if (layer.kv_heads != kv_heads || layer.width != width || layer.element != element)
      throw_error<UsageError>({"decode: layer ", index, " has ", kv_heads, " key-value heads of width ", width,
                               ", and the cache ", layer.kv_heads, " of width ", layer.width,
                               ": a KeyValueCache is for one model"});
    return layer;
  }
  /// All layers have the tokens.
  void commit(std::size_t sequence, std::size_t tokens) { cache->lengths_[sequence] += tokens; }
};

}  // namespace detail

}  // namespace weft
