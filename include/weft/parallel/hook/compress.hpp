// SPDX-License-Identifier: Apache-2.0
#pragma once
// A communication hook that sums gradients over data ranks in a narrower type: bfloat16 takes half the bytes of float.
//
//   DataParallel<models::Gpt, hook::Compress<bfloat16>> model(mesh, config);

#include <map>
#include <memory>
#include <span>

#include <weft/kernels/elementwise.hpp>
#include <weft/parallel/hook/communication_hook.hpp>
#include <weft/parallel/hook/reduce_option.hpp>

namespace weft::hook {

/// Numerics: each rank's gradients are rounded to T, added in rank order in accumulate_t<T> and rounded to T once more; the same
/// bits on every rank. Memory: a copy in T of the buckets that are being summed.
template <weft::detail::Real T>
class Compress {
 public:
  explicit Compress(DefaultDevice& device) : device_(&device) {}

  Request start(Bucket& bucket, const Communicator& comm) {
    weft::detail::Buffer& narrow = narrow_[bucket.index] = device_->allocate(bucket.elements * sizeof(T));
    bucket.visit([&]<class G>(std::span<G> gradients) {
      kernels::cast<G, T>(*device_, gradients.size(), gradients.data(), static_cast<T*>(narrow.get()));
    });
    return comm.all_reduce_async(std::span<T>(static_cast<T*>(narrow.get()), bucket.elements));
  }
  void finish(Bucket& bucket, const Communicator&) {
    weft::detail::Buffer& narrow = narrow_.at(bucket.index);
    bucket.visit([&]<class G>(std::span<G> gradients) {
      kernels::cast<T, G>(*device_, gradients.size(), static_cast<const T*>(narrow.get()), gradients.data());
    });
    narrow.reset();
  }

 private:
  DefaultDevice* device_;
  std::map<std::size_t, weft::detail::Buffer> narrow_;
};

}  // namespace weft::hook

namespace weft::detail {

template <class Device>
std::unique_ptr<hook::AnyHook> narrow_hook(Device& device) {
  return std::make_unique<hook::detail::Holds<hook::Compress<bfloat16>>>(device);
}

}  // namespace weft::detail
