// SPDX-License-Identifier: Apache-2.0
#pragma once
// The notes of a rehearsal: the work of one rank of a program, recorded while it runs without peers, memory and arithmetic.
// Kernels return once they are noted, and memory consists of addresses that must not be accessed.
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
struct ProofLayout;  // device/proof.hpp

/// The description of a kernel launch: its kind, the bytes that it reads and writes if it touches each element of its operands
/// once, and the number of exponential functions, which take cores as much time as the bytes do.
struct Traffic {
  const char* kind = "other";
  std::size_t bytes;
  std::size_t exponentials = 0;
};
}  // namespace detail

/// The work of a rank in some part of a program: arithmetic, launches, messages. Bytes are those that the real rank would use and
/// send.
struct RehearsedWork {
  /// Messages of one operation on one axis. Bytes are those of the whole buffer: all ranks' pieces if the operation gathers or
  /// scatters them, one rank's elements if it reduces or broadcasts them, the message in a send or recv.
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
    /// Threads of the launch with the fewest threads, on devices other than hosts: shows kernels that are not parallel. 0 on a
    /// host.
    std::size_t least_threads = 0;
  };

  double product_flops = 0;    ///< of matrix products and convolutions, two per multiplication and addition
  double product_bytes = 0;    ///< read and written by products if each matrix is touched once
  double attention_flops = 0;  ///< half of all pairs of queries and keys if attention is causal
  std::uint64_t products = 0, attentions = 0;
  std::uint64_t launches = 0;      ///< of kernels, including products and attention
  double kernel_bytes = 0;         ///< read and written by kernels if each element of their operands is touched once
  std::uint64_t copies = 0;        ///< between the host and the device
  double offloaded_bytes = 0;      ///< read from and written to an offload store
  double activation_bytes = 0;     ///< the part of these that are activations (ModelOptions::activations)
  std::vector<Kernels> kernels;    ///< by kind, in the order of their first launches
  std::vector<Messages> messages;  ///< by axis and operation, in the order of their first calls

  /// The launches of one kind; zero launches if there were none.
  Kernels of(std::string_view kind) const;
  /// The messages of one operation on one axis; zero calls if there were none.
  Messages of(std::string_view axis, std::string_view operation) const;
  /// Notes a message.
  void sent(std::string_view axis, std::string_view operation, double bytes);
  /// The work since `before`, an earlier state of this object. Kinds without work since then are omitted.
  RehearsedWork since(const RehearsedWork& before) const;
};

/// The notes of one rehearsed rank: the work of the whole program, and of its last step.
struct Rehearsal : RehearsedWork {
  /// The ranks of one communicator of the program's mesh, along one axis or several ("dp-cp"), and this rank's number among them.
  struct Axis {
    /// Neighbours along one axis.
    struct Line {
      std::size_t size, stride;  ///< number of ranks, and the distance of their world ranks
      friend bool operator==(const Line&, const Line&) = default;
    };
    std::string name;
    std::size_t size = 1, rank = 0;
    std::vector<Line> lines;  ///< those with more than one rank, the fastest first
    friend bool operator==(const Axis&, const Axis&) = default;
  };

  int rank = 0, ranks = 1;
  int ranks_per_node = 0;  ///< 0: unknown
  /// True: buffers of messages live as short as possible. All operations complete when they start, but received data arrives when
  /// it is waited for. False: buffers live as long as possible. Collectives complete when they are waited for, sent tensors stay
  /// until the other stage has certainly received them, and received data arrives as early as possible. The real peak is between
  /// the two.
  bool early = false;
  std::uint64_t steps = 0;  ///< of all optimizers
  /// From the beginning of the last training step to the end of its optimizer's step. With several optimizers that step in turn,
  /// a step contains one step of each: it ends when one of them steps again.
  RehearsedWork last_step;
  MemoryUse kept;                         ///< after the last optimizer's step; without one, before the last forward
  std::size_t peak = 0, reserved = 0;     ///< at the end of the program
  std::size_t host_activation_bytes = 0;  ///< host memory of activations (ModelOptions::activations)
  std::size_t elastic_bytes = 0;          ///< host memory of the copies of an elastic run (elastic/copies.hpp)
  /// The communicators' axes, in the order of their creation; with several meshes, the distinct ones.
  std::vector<Axis> axes;
  /// Names of the units that this rank trains, as traces have them ("block 3"), chunk by chunk. Empty for a custom training
  /// loop.
  std::vector<std::string> units;
  /// The rank of this stage that needs the most memory for its work on whole matrices (Muon); -1: all ranks need the same.
  int fullest = -1;
  /// The program ends after this number of steps (with several optimizers in turn, steps of all of them), before it begins
  /// another one. If 0 it ends by itself; a program with more than `most_steps` training steps throws UsageError. Ranges of
  /// weft's batches (data::Batches, data::Loader) end after `range_steps()`.
  std::uint64_t wanted_steps = 0;
  static constexpr std::uint64_t most_steps = 1000;
  static constexpr std::uint64_t most_runs = 10000;
  static constexpr std::uint64_t most_messages = 1000000, most_copies = 1000000;
  std::uint64_t range_steps() const { return wanted_steps == 0 ? 3 : wanted_steps; }
  /// Load of a mixture's busiest expert, relative to the mean. The choice of experts is a value, so the others share the rest
  /// evenly. At most all tokens choose it.
  double expert_skew = 1;

  /// Degrees of the program's meshes in place of its own, and a stage of ZeRO and a schedule if options choose them; null: the
  /// program is rehearsed in the layout that it asks for.
  const detail::ProofLayout* layout = nullptr;
  bool stage_is_open = false, schedule_is_open = false;  ///< with a layout: whether options choose them, and not a type
  bool over_domain = false;  ///< with a layout: ranks of domain axes share the state that the stage cuts

  /// The order of the last step, if requested. Collectives then complete when they are waited for, and sends at once, so peaks
  /// are between the early and the late ones.
  std::shared_ptr<RehearsedTrace> trace;

  /// The axis with that name, or null; with several meshes, the one with the most ranks.
  const Axis* axis(std::string_view name) const;
  /// Upper bound of the nodes that one group along the axis spans: 1 if messages stay inside nodes, 0 if the ranks per node are
  /// unknown. Nodes hold ranks in the order of their numbers.
  std::size_t nodes_of(const Axis& axis) const;

  /// A model is called, in a training step or outside one. Throws UsageError after `most_runs` calls since an optimizer's step.
  void before_run(const MemoryUse& use);
  /// Model `model` begins a training step with `rows` rows. Throws RehearsalEnd after `wanted_steps`, UsageError after
  /// `most_steps`.
  void before_step(const void* model, std::size_t rows);
  /// More rows enter the model in its step.
  void entered(const void* model, std::size_t rows);
  /// A unit takes part in a training step. Models whose units have equal names share these.
  void trains(std::string_view unit);
  /// Optimizer `optimizer` has ended the step.
  void stepped(const void* optimizer, const MemoryUse& use);
  /// A message is sent, or a collective called. Throws UsageError after `most_messages` consecutive messages without other work.
  void sent(std::string_view axis, std::string_view operation, double bytes);
  /// Notes a launch of a kernel; `threads`: on a device other than a host.
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
  /// `products`: number of products of [queries, head_width] with [keys, head_width].
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
  /// Throws UsageError after `most_copies` copies without a call of a model.
  void copied() {
    if (++copies - copies_before_ > most_copies) refuse_copies();
    if (trace) trace->add({.kind = RehearsedTrace::Kind::copy});
  }
  void offloaded(std::size_t bytes) { offloaded_bytes += double(bytes); }
  /// A copy of activations to host memory or back begins, beside computation. Returns its number for RehearsedTrace::wait.
  std::uint64_t moves_activations(bool to_host, std::size_t bytes);

 private:
  [[noreturn]] static void refuse_copies();

  std::uint64_t trained_ = 0, runs_ = 0;  // training steps begun by models, and calls of models since an optimizer's step
  std::vector<const void*> models_;       // models that have begun a training step
  // Since the last optimizer step: the first model that has begun a step, or null, and the state of the notes before it.
  const void* first_model_ = nullptr;
  RehearsedWork before_part_;
  // The last step: its optimizers so far, the notes before it, its number, and the largest number of optimizers in a step.
  std::vector<const void*> stepped_;
  RehearsedWork before_step_;
  std::uint64_t step_ = 0;
  std::size_t most_optimizers_ = 0;
  std::uint64_t copies_before_ = 0;        // copies before the last call of a model
  std::uint64_t done_ = 0, in_a_row_ = 0;  // launches, copies and calls of models; messages since the last of them
};

namespace detail {

/// Thrown through the program once it has taken the requested steps. Not a std::exception, so programs do not catch it.
struct RehearsalEnd {};

/// While it exists, noted work is not part of the program, and no order is recorded; afterwards the notes are restored.
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
  /// The next `bytes` bytes, or null if none are left.
  static void* take(std::size_t bytes);
  static void give_back(void*) {}
  static bool holds(const void* address);

  /// Held while a rehearsal runs. If no other rehearsal runs, addresses start again: a program can rehearse any number of times.
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
