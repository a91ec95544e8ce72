// SPDX-License-Identifier: Apache-2.0
#pragma once
// One collective as a value: the typed layer hands it to a backend, a fingerprint compares it, an error prints it. With the types
// erased here, a backend needs one function for all operations and types.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <weft/comm/program_function.hpp>
#include <weft/core/scalar.hpp>

namespace weft {

/// The reduction of the ranks' values, always in rank order. `average` is the sum divided by the number of ranks and is refused
/// for integers; bfloat16 and float16 are combined in float and rounded once. max and min propagate a NaN.
enum class Reduction : std::uint8_t { sum, max, min, average };

constexpr std::string_view name_of(Reduction reduction) {
  constexpr std::string_view names[] = {"sum", "max", "min", "average"};
  const auto number = static_cast<std::size_t>(reduction);
  return number < sizeof names / sizeof names[0] ? names[number] : "an unknown reduction";
}

}  // namespace weft

namespace weft::comm {

enum class Operation : std::uint8_t {
  all_reduce,
  all_gather,
  all_gather_v,
  reduce_scatter,
  reduce_scatter_v,
  broadcast,
  reduce,
  gather,
  scatter,
  all_to_all,
  all_to_all_v,
  barrier,
  split,
  send,
  recv
};

inline constexpr std::size_t operation_count = 15;

constexpr std::string_view name_of(Operation operation) {
  constexpr std::string_view names[operation_count] = {
      "all_reduce",   "all_gather", "all_gather_v", "reduce_scatter", "reduce_scatter_v",
      "broadcast",    "reduce",     "gather",       "scatter",        "all_to_all",
      "all_to_all_v", "barrier",    "split",        "send",           "recv"};
  const auto number = static_cast<std::size_t>(operation);  // may come from another rank
  return number < operation_count ? names[number] : "an unknown operation";
}

constexpr bool reduces(Operation operation) {
  return operation == Operation::all_reduce || operation == Operation::reduce || operation == Operation::reduce_scatter ||
         operation == Operation::reduce_scatter_v;
}
constexpr bool has_root(Operation operation) {
  return operation == Operation::broadcast || operation == Operation::reduce || operation == Operation::gather ||
         operation == Operation::scatter;
}
constexpr bool is_point_to_point(Operation operation) { return operation == Operation::send || operation == Operation::recv; }

/// The memory of a message's bytes: `host` is readable by any thread of the process, `device` only by the device.
enum class MemoryKind : std::uint8_t { host, device };

constexpr std::string_view name_of(MemoryKind kind) { return kind == MemoryKind::host ? "host" : "device"; }

/// Device memory, for programs whose ranks compute on devices: a test whether an address is in it, and a copy within it in the
/// order of a queue (a cudaStream_t).
struct DeviceMemory {
  bool (*holds)(const void* address);
  void (*copy)(void* stream, void* to, const void* from, std::size_t bytes);
};

/// The execution-space instance on which a message is produced and used. A backend that works on host memory calls `fence` before
/// it reads; one that launches on a device's queue uses `stream` instead, if the instance has one (a cudaStream_t).
struct StreamOrder {
  const void* instance = nullptr;
  void (*wait)(const void*) = nullptr;
  void* (*stream)(const void*) = nullptr;
  const DeviceMemory* device = nullptr;  ///< null: all memory is host memory, except a View's with another memory space
  void fence() const {
    if (wait != nullptr) wait(instance);
  }
};

/// An elementwise reduction: outputs[j][i] = reduction over k, in order, of inputs[k][i], for begin <= i < end and every j. An
/// output may be one of the inputs.
using Combine = void (*)(Reduction, std::span<const void* const> inputs, std::span<void* const> outputs, std::size_t begin,
                         std::size_t end);

/// Elements whose type is a value, for functions that would compile slower as templates (comm/reduce.hpp: elements_of).
struct Elements {
  DataType type;
  MemoryKind memory;
  void* data;
  std::size_t count;
  Combine combine;
};

/// The purpose of a call, where the operation alone does not show it: ranks in a split, or at the program's end, disagree with
/// ranks that call all_gather or barrier themselves.
enum class Purpose : std::uint8_t { of_program, split, end };

/// A collective call of one rank. `count` is in elements: of the buffer (all_reduce, broadcast, reduce, send, recv) or of one
/// rank's piece (all_gather, gather, scatter, reduce_scatter, all_to_all). The `_v` operations do not use it; their pieces are
/// `send_counts` (all_to_all_v) and `receive_counts`, one number a rank. Pieces lie in rank order without gaps.
struct Call {
  Operation operation = Operation::barrier;
  DataType type = DataType::uint8;
  Reduction reduction = Reduction::sum;
  MemoryKind memory = MemoryKind::host;
  Purpose purpose = Purpose::of_program;
  ProgramFunction function = ProgramFunction::none;  ///< in which the rank makes the call: for errors, not compared
  int root = 0;                                      ///< or the peer of a send or recv
  int tag = 0;
  std::size_t count = 0;
  const void* input = nullptr;
  void* output = nullptr;
  std::span<const std::size_t> send_counts = {};
  std::span<const std::size_t> receive_counts = {};
  StreamOrder order = {};
  /// The arithmetic of operations that reduce; set by the typed layer, so that no other type's arithmetic is compiled.
  Combine combine = nullptr;

  std::size_t bytes() const { return count * size_of(type); }
};

/// The bytes of the buffer that a call is about, for `size` ranks; see RehearsedWork::Messages.
double message_bytes(const Call& call, int size);

/// Copies the counts of a `_v` operation, for an operation that outlives the caller's memory. The call's counts are then those of
/// the result, which is null if there are none.
std::unique_ptr<std::size_t[]> keep_counts(Call& call);

/// The bits of a signature with the function in which the rank makes the call; they may differ between ranks.
inline constexpr std::uint64_t function_bits = std::uint64_t(0x3f) << 26;
constexpr ProgramFunction function_of(std::uint64_t signature) { return ProgramFunction(signature >> 26 & 0x3f); }
/// True if the calls with these signatures may be of one operation.
constexpr bool same_call(std::uint64_t a, std::uint64_t b) { return ((a ^ b) & ~function_bits) == 0; }

/// The properties that must agree between ranks, besides the count, in one word: operation, type, reduction, purpose, and root or
/// tag; and the function in which the call is made.
constexpr std::uint64_t signature(const Call& call) {
  const auto op = call.operation;
  const std::uint64_t reduction = reduces(op) ? std::uint64_t(call.reduction) : 0;
  const std::uint64_t root = has_root(op)            ? std::uint64_t(std::uint32_t(call.root))
                             : is_point_to_point(op) ? std::uint32_t(call.tag)
                                                     : 0;
  return std::uint64_t(op) | std::uint64_t(call.type) << 8 | reduction << 16 | std::uint64_t(call.purpose) << 24 |
         std::uint64_t(call.function) << 26 | root << 32;
}

/// A digest of the counts that must be equal on all ranks: those of all_gather_v and reduce_scatter_v, otherwise 0.
constexpr std::uint64_t digest_of_counts(const Call& call) {
  std::uint64_t digest = 0;
  if (call.operation == Operation::all_gather_v || call.operation == Operation::reduce_scatter_v)
    for (const std::size_t count : call.receive_counts) {  // one step of splitmix64 a count
      digest = (digest ^ count) + 0x9e3779b97f4a7c15;
      digest = (digest ^ digest >> 30) * 0xbf58476d1ce4e5b9;
      digest = (digest ^ digest >> 27) * 0x94d049bb133111eb;
      digest ^= digest >> 31;
    }
  return digest;
}

/// "all_reduce(sum) of 16 float32", from a signature and a count.
std::string describe(std::uint64_t signature, std::size_t count);

std::string describe(const Call& call);

/// " (rank 0 in checkpoint::save, rank 1 in train_step)", of two ranks and the signatures of their calls; empty if both are in
/// the program's own code.
std::string functions_of(std::string_view one, std::uint64_t its_signature, std::string_view other, std::uint64_t signature);

}  // namespace weft::comm

#ifndef WEFT_COMPILED
#include <weft/comm/operation_impl.hpp>
#endif
