// SPDX-License-Identifier: Apache-2.0
#pragma once
// The account of operations on DTensors: which placements they took, gave and changed, and the bytes that moved. And the scope in
// which nothing moves without a call of redistribute.
//
//   std::puts(dtensor::explain(grid, [&] { matmul(x, w); }).c_str());
//   // matmul [8, 4] [shard(0)] -> [replicate], [4, 6] [shard(1)]: [8, 6] [shard(1)], 64 bytes
//
//   const dtensor::RefuseMoves strict(grid);
//   matmul(x, w);   // throws UsageError

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <weft/dtensor/choose.hpp>
#include <weft/dtensor/device_mesh.hpp>

namespace weft::dtensor {

namespace detail {
/// "matmul of [8, 4] [shard(0)] and [4, 6] [shard(1)]", for messages.
std::string call_text(std::string_view operation, std::span<const OperandInfo> operands);
/// Explains an operation on this mesh. Throws UsageError if it moves operands within RefuseMoves.
void note_operation(const DeviceMesh& mesh, std::string_view operation, std::span<const OperandInfo> operands,
                    const Choice& choice, const Shape& result);
void note_redistribution(const DeviceMesh& mesh, const OperandInfo& x, const Placements& to);
/// Explains the move of a leaf's gradient to the leaf's placements. Throws UsageError if it moves within RefuseMoves.
void note_gradient(const DeviceMesh& mesh, const OperandInfo& gradient, const Placements& to);
/// An operation's own communication.
void note_inside(const DeviceMesh& mesh, std::string_view operation, std::string_view axis, double bytes);

class LinesScope {
 public:
  LinesScope(const DeviceMesh& mesh, std::vector<std::string>& lines)
      : mesh_(mesh), before_(std::exchange(mesh_.state().lines, &lines)) {}
  ~LinesScope() { mesh_.state().lines = before_; }
  LinesScope(const LinesScope&) = delete;
  LinesScope& operator=(const LinesScope&) = delete;

 private:
  DeviceMesh mesh_;
  std::vector<std::string>* before_;
};
}  // namespace detail

/// Calls f, and returns a line for each operation and redistribution that it made on tensors of `mesh`, its copies and
/// sub-meshes: the operation, each operand's shape and placements (with those it was moved to), the result, and the bytes that
/// the busiest rank received (moved_bytes). The same text on every rank.
template <class F>
std::string explain(const DeviceMesh& mesh, F&& f) {
  std::vector<std::string> lines;
  {
    const detail::LinesScope scope(mesh, lines);
    f();
  }
  std::string all;
  for (const std::string& line : lines) all += line + "\n";
  return all;
}

/// While it exists, an operation on tensors of `mesh`, its copies and its sub-meshes throws UsageError instead of redistributing
/// an operand, before anything moves, and backward instead of redistributing a leaf's gradient to the leaf's placements. Steps
/// that only drop or label elements are refused as well.
class RefuseMoves {
 public:
  explicit RefuseMoves(const DeviceMesh& mesh) : mesh_(mesh), before_(std::exchange(mesh_.state().refusing, true)) {}
  ~RefuseMoves() { mesh_.state().refusing = before_; }
  RefuseMoves(const RefuseMoves&) = delete;
  RefuseMoves& operator=(const RefuseMoves&) = delete;

 private:
  DeviceMesh mesh_;
  bool before_;
};

}  // namespace weft::dtensor

#ifndef WEFT_COMPILED
#include <weft/dtensor/explain_impl.hpp>
#endif
