// SPDX-License-Identifier: Apache-2.0
#pragma once
// The notes of a rehearsal: what one rank of a program would do, noted while it runs without peers, memory and arithmetic. Its
// kernels return once they are noted, and its memory is addresses that nobody may touch.
//
//   Rehearsal notes;
//   device.rehearse(notes);   // before anything is allocated
//   ...
//   notes.product_flops

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <weft/core/inline.hpp>
#include <weft/device/memory_use.hpp>
#include <weft/device/rehearsal_trace.hpp>

namespace weft {

namespace detail {
/// What a launch of a kernel says of itself: its kind, the bytes that it reads and writes if it touches each element of its
/// operands once, and how many exponential functions it computes, which cost cores as much time as the bytes do.
struct Traffic {
  const char* kind;
  std::size_t bytes;
  std::size_t exponentials = 0;
};
}  // namespace detail

/// What a rank does in some span of a program: arithmetic, launches, messages. Bytes are those that the real rank would use and
/// send.
struct RehearsedWork {
  /// Messages of one operation on one axis. Bytes are of the whole buffer that the operation is about: of all ranks' pieces where
  /// it gathers or scatters them, of one rank's elements where it reduces or broadcasts them, of the message in a send or recv.
  struct Messages {
    std::string axis;
    std::string_view operation;
    std::uint64_t calls = 0;
    double bytes = 0;
  };
  /// Launches of kernels of one kind ("norm", "product", "optimizer", ...).
  struct Kernels {
    std::string_view kind;
    std::uint64_t launches = 0;
    double bytes = 0;
    /// Of the launch with the fewest threads, on devices that are no host: whether one thread does what many could. On a host 0.
    std::size_t least_threads = 0;
  };

  double product_flops = 0;    ///< of matrix products and convolutions, two for each multiplication and addition
  double product_bytes = 0;    ///< that products read and write if each matrix is touched once
  double attention_flops = 0;  ///< half of all pairs of queries and keys where attention is causal
  std::uint64_t products = 0, attentions = 0;
  std::uint64_t launches = 0;      ///< of kernels, those of products and attention among them
  double kernel_bytes = 0;         ///< that they read and write if each element of their operands is touched once
  std::uint64_t copies = 0;        ///< between the host and the device
  double offloaded_bytes = 0;      ///< read from and written to an offload store
  std::vector<Kernels> kernels;    ///< by kind, in the order of their first launches
  std::vector<Messages> messages;  ///< by axis and operation, in the order of their first calls

  /// Those of one kind; without launches if there were none.
  Kernels of(std::string_view kind) const;
  /// Those of one operation on one axis; without calls if there were none.
  Messages of(std::string_view axis, std::string_view operation) const;
  /// Notes a message.
  void sent(std::string_view axis, std::string_view operation, double bytes);
  /// What was done since `before`, which is an earlier state of this one. Kinds of which nothing was done since are left out.
  RehearsedWork since(const RehearsedWork& before) const;
};

/// The notes of one rehearsed rank: what the whole program does, and what its last step does.
struct Rehearsal : RehearsedWork {
  /// The ranks of one communicator of the program's mesh, of one axis or of several ("dp-cp"), and this rank's number among them.
  struct Axis {
    /// Neighbours along one axis.
    struct Line {
      std::size_t size, stride;  ///< ranks, and how far apart their numbers in the world are
      friend bool operator==(const Line&, const Line&) = default;
    };
    std::string name;
    std::size_t size = 1, rank = 0;
    std::vector<Line> lines;  ///< those with more than one rank, the fastest first
    friend bool operator==(const Axis&, const Axis&) = default;
  };

  int rank = 0, ranks = 1;
  int ranks_per_node = 0;  ///< 0: not known
  /// Buffers of messages live as short as they can: all is complete as soon as it starts, but what is received comes when it is
  /// waited for. Else as long as they can: collectives are complete when they are waited for, what goes to another stage when
  /// that is known to have taken it, and what is received is there as soon as it may be. The real peak is not outside of the two.
  bool early = false;
  std::uint64_t steps = 0;  ///< of optimizers
  /// From the beginning of the last training step to the end of its optimizer's. Of several optimizers that step in turn it has
  /// one step of each: another one ends with the first that has stepped in it before.
  RehearsedWork last_step;
  MemoryUse kept;                      ///< after the last optimizer's step; without one, before the last forward
  std::size_t peak = 0, reserved = 0;  ///< at the end of the program
  /// Of the meshes over all ranks, in the order in which their communicators were made; of several meshes, those that differ.
  std::vector<Axis> axes;
  /// Of the ranks of this one's stage, the one that needs the most memory for its share of the work on whole matrices (Muon's);
  /// -1: they are alike.
  int fullest = -1;
  /// The program ends after so many steps (of several optimizers in turn: of all of them), before it begins another one; 0: by
  /// itself, and one that trains more than `most_steps` times is refused. Ranges of weft's own batches (data::Batches,
  /// data::Loader) end after `range_steps()`.
  std::uint64_t wanted_steps = 0;
  static constexpr std::uint64_t most_steps = 1000;
  static constexpr std::uint64_t most_runs = 10000;
  static constexpr std::uint64_t most_messages = 1000000, most_copies = 1000000;
  std::uint64_t range_steps() const { return wanted_steps == 0 ? 3 : wanted_steps; }
  /// How many times the mean load the busiest expert of a mixture has: which experts tokens choose is a value, so the others
  /// share the rest evenly. At most all tokens choose it.
  double expert_skew = 1;

  /// The order of the last step, if it was asked for. Collectives are then complete when they are waited for, and what is sent at
  /// once, so peaks are between the two.
  std::shared_ptr<RehearsedTrace> trace;

  /// The axis of that name, or null; of several meshes' the one with the most ranks.
  const Axis* axis(std::string_view name) const;
  /// The nodes on which the ranks of one group along the axis lie, at most: 1 if messages stay inside of nodes, 0 if it is not
  /// known how many ranks a node has. Nodes have ranks in the order of their numbers.
  std::size_t nodes_of(const Axis& axis) const;

  /// A model is called: in a step of training, or without one. Throws UsageError after `most_runs` since an optimizer's step.
  void before_run(const MemoryUse& use);
  /// A model begins a step of training over so many rows; `model`: which one. Throws RehearsalEnd after `wanted_steps`,
  /// UsageError after `most_steps`.
  void before_step(const void* model, std::size_t rows);
  /// More rows enter it in its step.
  void entered(const void* model, std::size_t rows);
  /// An optimizer has ended it; `optimizer`: which one.
  void stepped(const void* optimizer, const MemoryUse& use);
  /// A message is sent, or a collective called. Throws UsageError after `most_messages` in a row, with nothing between them.
  void sent(std::string_view axis, std::string_view operation, double bytes);
  /// Notes a launch of a kernel; `threads`: those of a device that is no host.
  void launched(const detail::Traffic& traffic, std::size_t threads = 0);
  void product(double m, double n, double k, double bytes, DataType type) {
    ++products;
    product_flops += 2 * m * n * k;
    product_bytes += bytes;
    if (trace)
      trace->add({.kind = RehearsedTrace::Kind::product,
                  .type = type,
                  .a = std::int64_t(m),
                  .b = std::int64_t(n),
                  .c = std::int64_t(k),
                  .amount = bytes});
  }
  /// `products`: of [queries, head_width] with [keys, head_width].
  void attention(double products, double pairs, double head_width, DataType type) {
    ++attentions;
    const double flops = 2 * products * pairs * head_width;
    attention_flops += flops;
    if (trace)
      trace->add({.kind = RehearsedTrace::Kind::attention,
                  .type = type,
                  .a = std::int64_t(products),
                  .b = std::int64_t(head_width),
                  .amount = flops});
  }
  /// Throws UsageError after `most_copies` between which no model was called.
  void copied() {
    if (++copies - copies_before_ > most_copies) refuse_copies();
    if (trace) trace->add({.kind = RehearsedTrace::Kind::copy});
  }
  void offloaded(std::size_t bytes) { offloaded_bytes += double(bytes); }

 private:
  [[noreturn]] static void refuse_copies();

  std::uint64_t trained_ = 0, runs_ = 0;  // times that a model began a step, and calls of models since an optimizer's step
  std::vector<const void*> models_;       // that have begun one
  // What ends with an optimizer's step: the first model that began it, if one did, and what was done before.
  const void* first_model_ = nullptr;
  RehearsedWork before_part_;
  // The last step: the optimizers that have stepped in it, what was done before it, steps so far, optimizers of the longest.
  std::vector<const void*> stepped_;
  RehearsedWork before_step_;
  std::uint64_t step_ = 0;
  std::size_t most_optimizers_ = 0;
  std::uint64_t copies_before_ = 0;        // the last call of a model
  std::uint64_t done_ = 0, in_a_row_ = 0;  // launches, copies and calls of models; messages since the last of them
};

namespace detail {

/// Thrown through the program when it has taken the steps that a rehearsal wanted. No std::exception: programs do not catch it.
struct RehearsalEnd {};

/// While it lives, what is noted is beside the program, and no order is kept: afterwards the notes are as they were.
class NotesAside {
 public:
  explicit NotesAside(Rehearsal& notes);
  ~NotesAside();
  NotesAside(const NotesAside&) = delete;
  NotesAside& operator=(const NotesAside&) = delete;

 private:
  Rehearsal& notes_;
  std::unique_ptr<Rehearsal> before_;
};

/// The memory of rehearsals: 64 TiB of addresses for this process, which no thread may read or write.
struct RehearsedMemory {
  /// The next `bytes` bytes, or null if there are no more.
  static void* take(std::size_t bytes);
  static void give_back(void*) {}
  static bool holds(const void* address);

  /// Held while a rehearsal runs. When no other does, addresses start anew: a program may rehearse any number of times.
  class Use {
   public:
    Use();
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
  };
};

}  // namespace detail

}  // namespace weft

#ifndef WEFT_COMPILED
#include <weft/device/rehearsal_impl.hpp>
#endif
