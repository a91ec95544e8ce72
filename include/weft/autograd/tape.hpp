// SPDX-License-Identifier: Apache-2.0
#pragma once
// The tape of one call of a Module: the operations of its forward, in order, which backward runs in reverse. Each value has a
// node, typed by the value, which holds the sum of its gradient's contributions; an operation's node also holds a function for
// each of its operands. There is one tape for each call, and it is the call's saved state: a pipeline keeps as many in flight as
// its schedule wants. Nodes are in blocks of memory that the device keeps, so a step allocates nothing once it is warm.
//
//   TapePointer tape = make_tape(context, true);   // forward records in it; backward(context), then weights(context)

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <new>
#include <string_view>
#include <type_traits>
#include <utility>

#include <weft/core/text.hpp>
#include <weft/engine/engine_state.hpp>
#include <weft/engine/layer_error.hpp>
#include <weft/tensor/add.hpp>
#include <weft/tensor/tensor.hpp>
#include <weft/tensor/to.hpp>

namespace weft::detail {

/// Blocks of host memory for tapes, kept for the next ones; each device has its own (Device::cache).
class TapeMemory {
 public:
  static constexpr std::size_t block_size = 16 * 1024;

  struct Block {
    Block* next;
  };
  Block* take() {
    if (free_ == nullptr) return ::new (::operator new(block_size)) Block{nullptr};
    return std::exchange(free_, free_->next);
  }
  void give(Block* block) {
    block->next = free_;
    free_ = block;
  }
  TapeMemory() = default;
  TapeMemory(const TapeMemory&) = delete;
  TapeMemory& operator=(const TapeMemory&) = delete;
  ~TapeMemory() {
    while (free_ != nullptr) ::operator delete(std::exchange(free_, free_->next));
  }

 private:
  Block* free_ = nullptr;
};

/// Objects of any type in blocks of a TapeMemory, one after the other. The maker of an object destroys it.
class TapeArena {
 public:
  explicit TapeArena(TapeMemory& memory) : memory_(&memory) {}
  TapeArena(const TapeArena&) = delete;
  TapeArena& operator=(const TapeArena&) = delete;
  ~TapeArena() {
    while (blocks_ != nullptr) memory_->give(std::exchange(blocks_, blocks_->next));
  }

  template <class T, class... A>
  T& make(A&&... arguments) {
    static_assert(sizeof(T) + alignof(T) <= TapeMemory::block_size - sizeof(TapeMemory::Block),
                  "weft: an operation in a Module's forward saves more than 16 KiB in an object: save tensors");
    return *::new (allocate(sizeof(T), alignof(T))) T(std::forward<A>(arguments)...);
  }
  /// A copy of a text of at most 1 KiB; the rest of a longer one is left out.
  std::string_view copy(std::string_view text) {
    const std::size_t size = std::min<std::size_t>(text.size(), 1024);
    char* const characters = static_cast<char*>(allocate(size, 1));
    std::copy_n(text.data(), size, characters);
    return {characters, size};
  }
  /// True if an object at `address` is in a block of this arena.
  bool holds(const void* address) const {
    for (const TapeMemory::Block* block = blocks_; block != nullptr; block = block->next) {
      const auto* const begin = reinterpret_cast<const std::byte*>(block);
      if (!std::less<>{}(address, begin) && std::less<>{}(address, begin + TapeMemory::block_size)) return true;
    }
    return false;
  }

 private:
  WEFT_OUT_OF_LINE void* allocate(std::size_t size, std::size_t alignment) {
    at_ = (at_ + alignment - 1) / alignment * alignment;
    if (blocks_ == nullptr || at_ + size > TapeMemory::block_size) {
      TapeMemory::Block* block = memory_->take();
      block->next = blocks_;
      blocks_ = block;
      at_ = (sizeof(TapeMemory::Block) + alignment - 1) / alignment * alignment;
    }
    return reinterpret_cast<std::byte*>(blocks_) + std::exchange(at_, at_ + size);
  }

  TapeMemory* memory_;
  TapeMemory::Block* blocks_ = nullptr;
  std::size_t at_ = 0;
};

/// A context without its type. Each step of a tape casts it back to the type with which the step was recorded.
class AnyContext {
 public:
  template <class Context>
  AnyContext(const Context& context) : context_(&context), engine_(&context.engine) {}
  template <class Context>
  const Context& as() const {
    return *static_cast<const Context*>(context_);
  }
  const EngineState& engine() const { return *engine_; }

 private:
  const void* context_;
  const EngineState* engine_;
};

class Tape;

/// Computes a value again that is not kept until backward (autograd/recompute.hpp).
template <class X>
struct ValueSource {
  X (*again)(ValueSource&) = nullptr;
};

/// The gradient of a value of type X: a sum of contributions, each brought to the dual of X's layout. A value may be a tensor or
/// a loss.
template <class X>
class ValueNode {
 public:
  using value_type = X;
  using gradient_type = gradient_t<X>;

  /// Null: whatever uses the value keeps it.
  ValueSource<X>* source = nullptr;

  template <class Context, class G>
  void add(const Context& context, G&& contribution) {
    if constexpr (!AnyTensor<G>) {
      require_gradient_of<X, G>();
    } else {
      auto placed = to_layout_of<gradient_type>(context, std::forward<G>(contribution));
      require_gradient_of<X, decltype(placed)>();
      if constexpr (std::is_same_v<decltype(placed), gradient_type>) {
        if (gradient_) gradient_ = sum_of(gradient_, std::move(placed));
        else gradient_ = std::move(placed);
      }
    }
  }

  explicit operator bool() const { return bool(gradient_); }
  gradient_type take() { return std::move(gradient_); }

 private:
  gradient_type gradient_;
};

/// A step of a tape: run once, then ended. Its function is given by the derived class, without a table of virtual functions.
struct TapeStep {
  TapeStep* next = nullptr;
  std::string_view layer_path;              ///< of the Module that made it, for errors
  void (*run)(TapeStep&, Tape&) = nullptr;  ///< runs the step, then destroys its content
  void (*end)(TapeStep&) = nullptr;
};

/// Steps of backward, newest first, and the weight gradients that they put aside, oldest first.
class Tape {
 public:
  Tape(const AnyContext& context, TapeMemory& memory, bool records)
      : context_(context), memory_(&memory), records_(records), arena_(memory) {}
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;
  ~Tape();

  /// The context of the call that is running: forward, backward or the weight gradients.
  const AnyContext& context() const { return context_; }
  /// Whether a backward follows. Otherwise nothing is recorded, and values of the forward are freed at their last use.
  bool records() const { return records_; }
  TapeMemory& memory() { return *memory_; }
  /// True if an object of one of the tape's steps is at `address`.
  bool holds(const void* address) const { return arena_.holds(address); }

  /// The path of the Module whose forward runs.
  std::string_view layer() const { return layer_; }
  void set_layer(std::string_view kept) { layer_ = kept; }
  /// A copy of the path that lasts as long as the tape.
  std::string_view keep(std::string_view path) { return arena_.copy(path); }

  template <class T, class... A>
  T& make(A&&... arguments) {
    return arena_.make<T>(std::forward<A>(arguments)...);
  }
  /// Makes a step of backward, Step(arguments...), which runs before all that were made earlier.
  template <class Step, class... A>
  Step& record(A&&... arguments) {
    Step& step = make<Step>(std::forward<A>(arguments)...);
    set_functions(step);
    step.layer_path = layer_;
    step.next = std::exchange(steps_, &step);
    return step;
  }
  /// Makes a step of the weight gradients, which runs after all that were made earlier.
  template <class Step, class... A>
  void defer(A&&... arguments) {
    Step& step = make<Step>(std::forward<A>(arguments)...);
    set_functions(step);
    step.layer_path = layer_;
    *last_deferred_ = &step;
    last_deferred_ = &step.next;
  }

  /// Runs all steps of backward. Each step and its saved values are destroyed as soon as it has run.
  void backward(const AnyContext& context);
  /// Runs the steps of the weight gradients.
  void weights(const AnyContext& context);

 private:
  void run(TapeStep& step);
  template <class Step>
  static void set_functions(Step& step) {
    step.end = [](TapeStep& base) { static_cast<Step&>(base).~Step(); };
    step.run = [](TapeStep& base, Tape& tape) {
      struct Ended {
        Step& step;
        ~Ended() { step.~Step(); }  // also if a collective throws: the tape no longer has the step
      } ended{static_cast<Step&>(base)};
      ended.step.apply(tape);
    };
  }

  AnyContext context_;
  TapeMemory* memory_;
  bool records_;
  TapeArena arena_;
  std::string_view layer_;
  TapeStep* steps_ = nullptr;
  TapeStep* deferred_ = nullptr;
  TapeStep** last_deferred_ = &deferred_;
};

/// While it lives, steps are made by the Module with this path; by the Module around it if the path is empty.
class InLayer {
 public:
  InLayer(Tape& tape, std::string_view path) : tape_(tape), around_(tape.layer()) {
    if (!path.empty() && path != around_) tape.set_layer(tape.keep(path));
  }
  InLayer(const InLayer&) = delete;
  InLayer& operator=(const InLayer&) = delete;
  ~InLayer() { tape_.set_layer(around_); }

 private:
  Tape& tape_;
  std::string_view around_;
};

/// The owner of a tape, which is in a block of that tape's memory.
struct EndTape {
  void operator()(Tape* tape) const;
};
using TapePointer = std::unique_ptr<Tape, EndTape>;

TapePointer make_tape(const AnyContext& context, TapeMemory& memory, bool records);
template <class Context>
TapePointer make_tape(const Context& context, bool records) {
  return make_tape(context, context.device().template cache<TapeMemory>(), records);
}

}  // namespace weft::detail

#ifndef WEFT_COMPILED
#include <weft/autograd/tape_impl.hpp>
#endif
