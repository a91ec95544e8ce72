// SPDX-License-Identifier: Apache-2.0
#pragma once
// Communication hooks: user-defined sums of DataParallel's gradient buckets over data ranks, in place of a plain all-reduce. A
// hook is a type:
//
//   struct Watched {
//     Request start(hook::Bucket& bucket, const Communicator& data_ranks) {   // this rank's gradients are in the bucket
//       return data_ranks.all_reduce_async(bucket.all());                     // or bucket.span<float>(), bucket.visit(...)
//     }
//     void finish(hook::Bucket& bucket, const Communicator& data_ranks);      // the request is complete: leave the sums there
//   };
//   // A hook with state from step to step names it for checkpoints: void keep(hook::Bucket& bucket, hook::Keeper& keeper);
//   DataParallel<M, Watched> model(mesh, config);
//   DataParallel<M> other(mesh, config, {.data = {.hook = hook::make<Watched>()}});   // the same, as a value
//
// A hook leaves the sum over the ranks in the bucket, not the mean: the loss is already divided by the tokens of the global
// batch. The first step checks the sums (hook_check.hpp).

#include <concepts>
#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>

#include <weft/core/has_member.hpp>
#include <weft/device/device.hpp>
#include <weft/engine/hook/bucket.hpp>
#include <weft/parallel/hook/hook_check.hpp>
#include <weft/parallel/reproducible/tree_exchange.hpp>

namespace weft::hook {

/// The members of a hook type; `finish` may be left out. Both are called in the same order on all data ranks, so both may
/// communicate; `start` must not wait for other ranks.
template <class H>
concept Hook = requires(H& hook, Bucket& bucket, const Communicator& comm) {
  { hook.start(bucket, comm) } -> std::same_as<Request>;
};

namespace detail {

WEFT_HAS_MEMBER(start)
WEFT_HAS_MEMBER(finish)
WEFT_HAS_MEMBER(keep)

enum class HookFault { none, no_start, start, start_returns, finish, keep };

template <class H>
constexpr HookFault fault_of_hook() {
  if constexpr (!requires(H & hook, Bucket & bucket, const Communicator& comm) { hook.start(bucket, comm); })
    return has_start<H>() ? HookFault::start : HookFault::no_start;
  else if constexpr (!Hook<H>) return HookFault::start_returns;
  else if constexpr (!requires(H & hook, Bucket & bucket, const Communicator& comm) { hook.finish(bucket, comm); } &&
                     has_finish<H>())
    return HookFault::finish;
  else if constexpr (!requires(H & hook, Bucket & bucket, Keeper & keeper) { hook.keep(bucket, keeper); } && has_keep<H>())
    return HookFault::keep;
  else return HookFault::none;
}

/// Reports why H is not a communication hook.
template <class H>
struct RefusedHook {
  static constexpr bool said = true;
  static constexpr HookFault fault = fault_of_hook<H>();
  static_assert(
      fault != HookFault::no_start,
      "weft: this communication hook has no start: write `Request start(hook::Bucket& bucket, const Communicator& data_ranks)`, "
      "which begins to add this rank's gradients to the others'; see H in this class's template arguments");
  static_assert(fault != HookFault::start,
                "weft: this communication hook's start cannot be called with a bucket and the data ranks: write `Request "
                "start(hook::Bucket& bucket, const Communicator& data_ranks)`, public; see H in this class's template arguments");
  static_assert(fault != HookFault::start_returns,
                "weft: this communication hook's start returns no Request, so it is never waited for: return that of an "
                "operation, such as `return data_ranks.all_reduce_async(bucket.all());`, or Request() where nothing is under "
                "way; see H in this class's template arguments");
  static_assert(
      fault != HookFault::finish,
      "weft: this communication hook's finish cannot be called with a bucket and the data ranks, so it is never called: write "
      "`void finish(hook::Bucket& bucket, const Communicator& data_ranks)`, public, or leave it out; see H "
      "in this class's template arguments");
  static_assert(fault != HookFault::keep,
                "weft: this communication hook's keep cannot be called with a bucket and a keeper, so checkpoints would lack its "
                "state: write `void keep(hook::Bucket& bucket, hook::Keeper& keeper)`, public, or leave it out; see H in this "
                "class's template arguments");
};

}  // namespace detail

/// Makes a hook for each rank.
class Factory {
 public:
  virtual ~Factory() = default;
  virtual std::unique_ptr<AnyHook> make(DefaultDevice& device) const = 0;
};

namespace detail {

template <Hook H>
class Holds final : public AnyHook {
 public:
  template <class... A>
  explicit Holds(DefaultDevice& device, const A&... arguments) : hook_(built(device, arguments...)) {}
  Request start(Bucket& bucket, const Communicator& comm) override { return hook_.start(bucket, comm); }
  void finish(Bucket& bucket, const Communicator& comm) override {
    if constexpr (requires { hook_.finish(bucket, comm); }) hook_.finish(bucket, comm);
  }
  void keep([[maybe_unused]] Bucket& bucket, [[maybe_unused]] Keeper& keeper) override {
    if constexpr (requires { hook_.keep(bucket, keeper); }) hook_.keep(bucket, keeper);
  }

 private:
  template <class... A>
  static H built(DefaultDevice& device, const A&... arguments) {
    if constexpr (std::is_constructible_v<H, DefaultDevice&, const A&...>) return H(device, arguments...);
    else return H{arguments...};
  }
  H hook_;
};

template <Hook H, class... A>
class Makes final : public Factory {
 public:
  explicit Makes(A... arguments) : arguments_(std::move(arguments)...) {}
  std::unique_ptr<AnyHook> make(DefaultDevice& device) const override {
    return std::make_unique<Checked>(
        device, std::apply([&](const A&... arguments) { return std::make_unique<Holds<H>>(device, arguments...); }, arguments_));
  }

 private:
  std::tuple<A...> arguments_;
};

}  // namespace detail

/// A hook as a value, for ModelOptions::data.hook: each rank constructs its own H from its device (if H's constructor takes one
/// first) and these arguments.
template <class H, class... A>
std::shared_ptr<const Factory> make(A... arguments) {
  constexpr bool sound = detail::fault_of_hook<H>() == detail::HookFault::none,
                 made = requires(DefaultDevice & device, const A&... given) {
    requires std::is_constructible_v<H, DefaultDevice&, const A&...> || requires { H{given...}; };
  };
  static_assert(!sound || made,
                "weft: this communication hook cannot be made on a rank: give it a constructor that takes the arguments of "
                "hook::make<H>, after a DefaultDevice& or without one; see H and A in this function's template arguments");
  static_assert(sound || detail::RefusedHook<H>::said);
  if constexpr (sound && made) return std::make_shared<detail::Makes<H, A...>>(std::move(arguments)...);
  else return nullptr;
}

}  // namespace weft::hook

namespace weft::detail {

/// Sums buckets in the order of a tree.
template <class Exec>
class TreeHook final : public hook::AnyHook {
 public:
  TreeHook(Device<Exec>& device, const ReductionTree& tree) : device_(&device), tree_(&tree) {}
  Request start(hook::Bucket& bucket, const Communicator& comm) override {
    const std::size_t ranks = std::size_t(comm.size());
    under_way_.erase(bucket.index);  // left by a step that ended early
    std::vector<std::size_t> begins(ranks + 1);
    for (std::size_t rank = 0; rank <= ranks; ++rank) begins[rank] = rank * (bucket.elements / ranks);
    under_way_.try_emplace(bucket.index, comm, *device_, *tree_, bucket.type, bucket.storage(), std::move(begins),
                           bucket.members);
    return Request();
  }
  void finish(hook::Bucket& bucket, const Communicator& comm) override {
    const std::size_t piece = bucket.elements / std::size_t(comm.size());
    bucket.visit([&](auto all) {
      const auto mine = all.subspan(std::size_t(comm.rank()) * piece, piece);
      auto exchange = under_way_.find(bucket.index);
      exchange->second.write_sum(mine.data());
      under_way_.erase(exchange);
      comm.all_gather(mine, all);
    });
  }

 private:
  Device<Exec>* device_;
  const ReductionTree* tree_;
  std::map<std::size_t, TreeExchange<Exec>> under_way_;
};

}  // namespace weft::detail
