// SPDX-License-Identifier: Apache-2.0
#pragma once
// The check of a communication hook's sums. A program whose hook forgets the sum, or averages, runs but trains something else
// than one rank would. The first step in which a bucket has gradients compares the hook's result with this rank's own gradients
// and with their plain sum.
//
//   model.check_hook();   // the next step checks again

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <map>
#include <memory>
#include <span>
#include <utility>

#include <weft/core/inline.hpp>
#include <weft/engine/hook/bucket.hpp>
#include <weft/kernels/elementwise.hpp>
#include <weft/kernels/squared_norm.hpp>
#include <weft/tensor/transfer.hpp>

namespace weft::hook::detail {

/// A hook whose first sums are checked. Hooks that compress pass: a result is refused only if it lies within `tolerance`
/// (relative, in the 2-norm) of a wrong result that is itself further than this from the right one. All ranks decide alike. In a
/// checked step a bucket takes twice its size in addition, and a plain all-reduce; other steps cost nothing.
class Checked final : public AnyHook {
 public:
  Checked(DefaultDevice& device, std::unique_ptr<AnyHook> hook) : device_(&device), hook_(std::move(hook)) {}

  WEFT_INLINE Request start(Bucket& bucket, const Communicator& comm) override;
  WEFT_INLINE void finish(Bucket& bucket, const Communicator& comm) override;
  WEFT_INLINE void check_next_step() override;
  void keep(Bucket& bucket, Keeper& keeper) override { hook_->keep(bucket, keeper); }

 private:
  static constexpr double tolerance = 1.0 / 128;  // rounding to bfloat16 is a tenth of it

  struct Watched {
    bool due = true;
    weft::detail::Buffer own;  // this rank's gradients, while the bucket is being summed
  };
  enum Norm { own_norm, sum_norm, result_norm, result_less_own, result_less_mean, result_less_multiple, sum_less_own, norms };

  template <class G>
  void check(const Bucket& bucket, std::span<G> result, const Communicator& comm, Watched& watched) {
    const weft::detail::Buffer held = std::exchange(watched.own, nullptr), summed = device_->allocate(result.size_bytes()),
                               beside = device_->allocate(result.size_bytes());
    const G* own = static_cast<const G*>(held.get());
    G *sum = static_cast<G*>(summed.get()), *difference = static_cast<G*>(beside.get());
    kernels::cast<G, G>(*device_, result.size(), own, sum);
    comm.all_reduce(std::span<G>(sum, result.size()));
    Tensor<double, DefaultDevice::execution_space> squares(*device_, {std::size_t(norms), bucket.members.size()});
    const auto add_up = [&](Norm norm, const G* x) {
      for (std::size_t i = 0; i < bucket.members.size(); ++i)
        kernels::squared_norm(*device_, bucket.members[i].state->size(), x + bucket.members[i].first,
                              squares.data() + std::size_t(norm) * bucket.members.size() + i);
    };
    const auto subtract = [&](Norm norm, const G* from, const G* x, double factor) {
      kernels::cast<G, G>(*device_, result.size(), from, difference);
      kernels::axpy<G, G>(*device_, result.size(), G(-factor), x, difference);
      add_up(norm, difference);
    };
    add_up(own_norm, own);
    add_up(sum_norm, sum);
    add_up(result_norm, result.data());
    subtract(result_less_own, result.data(), own, 1);
    subtract(result_less_mean, result.data(), sum, 1.0 / comm.size());
    subtract(result_less_multiple, result.data(), sum, comm.size());
    subtract(sum_less_own, sum, own, 1);
    const auto host = copy_to_host(squares);
    std::array<double, norms> norm{};
    for (std::size_t i = 0; i < host.size(); ++i) norm[i / bucket.members.size()] += host[i];
    for (double& square : norm) square = std::sqrt(square);
    decide(bucket, comm, norm, watched);
  }

  // A fault is reported only if all ranks find it, and only if it differs from a right result.
  void decide(const Bucket& bucket, const Communicator& comm, const std::array<double, norms>& norm, Watched& watched);

  DefaultDevice* device_;
  std::unique_ptr<AnyHook> hook_;
  std::map<std::size_t, Watched> watched_;
};

}  // namespace weft::hook::detail

#ifndef WEFT_COMPILED
#include <weft/parallel/hook/hook_check_impl.hpp>
#endif
