// SPDX-License-Identifier: Apache-2.0
#pragma once
// The addresses of the tensors that a function makes and does not end, such as those that a layer keeps for its backward inside
// of values whose types only the layer can name (pipeline/host_activations.hpp).
//
//   MadeTensors made;
//   layer.forward(...);
//   for (operations::Elements* one : made.stop()) ...

#include <unordered_set>
#include <utility>

#include <weft/core/standard.hpp>

namespace weft::operations {
class Elements;
}  // namespace weft::operations

namespace weft::detail {

/// Lists the tensors of its thread until `stop`. The thread is a rank; tensors of other threads are not listed.
class MadeTensors {
 public:
  using List = std::unordered_set<operations::Elements*>;

  MadeTensors() : before_(std::exchange(current_, this)) {}
  MadeTensors(const MadeTensors&) = delete;
  MadeTensors& operator=(const MadeTensors&) = delete;
  ~MadeTensors() { end(); }

  const List& stop() {
    end();
    return all_;
  }

  static void made(operations::Elements* tensor) noexcept {
    if (current_ != nullptr) [[unlikely]]
      current_->all_.insert(tensor);
  }
  static void ended(operations::Elements* tensor) noexcept {
    if (current_ != nullptr) [[unlikely]]
      current_->all_.erase(tensor);
  }

 private:
  void end() {
    if (current_ == this) current_ = before_;
  }

  inline static constinit thread_local MadeTensors* current_ = nullptr;
  MadeTensors* before_;
  List all_;
};

}  // namespace weft::detail
