// SPDX-License-Identifier: Apache-2.0
#pragma once
// The first micro-batch of another data rank's share, so that a rank can compute it, too (pipeline/recheck.hpp). Ranks send
// theirs round a ring.
//
//   const TokenBatch theirs = first_of_peer(data_ranks, to, from, batch);

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include <weft/comm/communicator.hpp>
#include <weft/pipeline/some_samples.hpp>

namespace weft::detail {

/// Arrays in a message, each with its length before it.
class PackedArrays {
 public:
  PackedArrays() = default;
  template <class T>
  void put(std::span<const T> values) {
    const std::uint64_t count = values.size();
    append(&count, sizeof count);
    append(values.data(), values.size_bytes());
  }
  template <class T>
  std::vector<T> take() {
    std::uint64_t count = 0;
    read(&count, sizeof count);
    std::vector<T> values(count);
    read(values.data(), count * sizeof(T));
    return values;
  }
  /// Sends these arrays to rank `to`, and returns those that rank `from` sends.
  WEFT_COLD PackedArrays exchange(const Communicator& ranks, int to, int from) const {
    if (to == ranks.rank()) return *this;
    const std::uint64_t mine = bytes_.size();
    std::uint64_t theirs = 0;
    ranks.send_recv(std::span<const std::uint64_t>(&mine, 1), to, std::span<std::uint64_t>(&theirs, 1), from);
    PackedArrays arrays;
    arrays.bytes_.resize(theirs);
    ranks.send_recv(std::span<const std::uint8_t>(bytes_), to, std::span<std::uint8_t>(arrays.bytes_), from);
    return arrays;
  }

 private:
  void append(const void* data, std::size_t bytes) {
    const auto* const from = static_cast<const std::uint8_t*>(data);
    bytes_.insert(bytes_.end(), from, from + bytes);
  }
  void read(void* data, std::size_t bytes) {
    if (bytes != 0) std::memcpy(data, bytes_.data() + at_, bytes);
    at_ += bytes;
  }

  std::vector<std::uint8_t> bytes_;
  std::size_t at_ = 0;
};

/// Sends the first micro-batch of this batch to rank `to`, and returns that of rank `from`, as a batch of one micro-batch.
WEFT_COLD inline TokenBatch first_of_peer(const Communicator& ranks, int to, int from, const TokenBatch& batch) {
  const TokenBatch mine = some_samples(batch, 0, 0, batch.micro_batch(0).sequences, 1);
  const std::uint64_t sizes[] = {mine.sequences, mine.length, mine.first_sequence};
  PackedArrays packed;
  packed.put(std::span<const std::uint64_t>(sizes));
  for (const auto* values : {&mine.tokens, &mine.targets, &mine.documents}) packed.put(std::span<const std::int32_t>(*values));
  PackedArrays come = packed.exchange(ranks, to, from);
  const auto theirs = come.take<std::uint64_t>();
  TokenBatch peer{.sequences = theirs[0], .length = theirs[1], .first_sequence = theirs[2]};
  for (auto* values : {&peer.tokens, &peer.targets, &peer.documents}) *values = come.take<std::int32_t>();
  return peer;
}
/// The same of samples.
template <auto... fields>
WEFT_COLD FieldBatch<fields...> first_of_peer(const Communicator& ranks, int to, int from, const FieldBatch<fields...>& batch) {
  FieldBatch<fields...> first = some_samples(batch, 0, 0, batch.samples_of_micro_batch(), 1);
  PackedArrays packed;
  const std::uint64_t sizes[] = {first.samples, first.first_sample};
  packed.put(std::span<const std::uint64_t>(sizes));
  first.for_each([&](auto, const auto& values) {
    std::vector<std::uint64_t> extents;
    for (std::size_t dim = 0; dim < values.shape().rank(); ++dim) extents.push_back(values.shape()[dim]);
    packed.put(std::span<const std::uint64_t>(extents));
    packed.put(values.values());
  });
  PackedArrays come = packed.exchange(ranks, to, from);
  const auto theirs = come.take<std::uint64_t>();
  first.samples = theirs[0], first.first_sample = theirs[1];
  first.for_each([&](auto field, auto& values) {
    Shape shape = values.shape();
    const auto extents = come.take<std::uint64_t>();
    for (std::size_t dim = 0; dim < shape.rank(); ++dim) shape[dim] = extents[dim];
    values.assign(come.take<typename decltype(field)::scalar>(), shape);
  });
  return first;
}

}  // namespace weft::detail
