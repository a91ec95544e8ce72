// SPDX-License-Identifier: Apache-2.0
#pragma once
// The lines of explain, and the error of RefuseMoves. Definitions for dtensor/explain.hpp.

#include <cstdint>

#include <weft/core/inline.hpp>
#include <weft/dtensor/explain.hpp>

namespace weft::dtensor::detail {

WEFT_COLD WEFT_INLINE std::string call_text(std::string_view operation, std::span<const OperandInfo> operands) {
  std::string all = std::string(operation) + " of ";
  for (std::size_t i = 0; i < operands.size(); ++i)
    all += (i == 0 ? "" : " and ") + operands[i].shape.text() + " " + text(operands[i].placements);
  return all;
}

WEFT_COLD WEFT_INLINE std::string moves_text(std::span<const OperandInfo> operands, const std::vector<Placements>& to) {
  std::string all;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    all += (i == 0 ? " " : ", ") + operands[i].shape.text() + " " + text(operands[i].placements);
    if (!(operands[i].placements == to[i])) all += " -> " + text(to[i]);
  }
  return all;
}
inline std::string bytes_text(double bytes) { return std::to_string(std::uint64_t(bytes)) + " bytes"; }

WEFT_INLINE void note_operation(const DeviceMesh& mesh, std::string_view operation, std::span<const OperandInfo> operands,
                                const Choice& choice, const Shape& result) {
  if (mesh.state().refusing)
    for (std::size_t i = 0; i < operands.size(); ++i)
      if (!(operands[i].placements == choice.operands[i]))
        throw_error<UsageError>({"dtensor: ", call_text(operation, operands), " on ", mesh.text(),
                                 " moves operands, and RefuseMoves is in force: call operand ", i + 1, "'s redistribute(",
                                 text(choice.operands[i]), ") first (", bytes_text(choice.bytes), " in all)"});
  if (mesh.state().lines != nullptr)
    mesh.state().lines->push_back(std::string(operation) + moves_text(operands, choice.operands) + ": " + result.text() + " " +
                                  text(choice.result) + ", " + bytes_text(choice.bytes));
}

WEFT_INLINE void note_redistribution(const DeviceMesh& mesh, const OperandInfo& x, const Placements& to) {
  if (mesh.state().lines == nullptr) return;
  const double bytes = moved_bytes(x.shape, x.element_bytes, mesh.places(), x.placements, to);
  mesh.state().lines->push_back("redistribute" + moves_text(std::span(&x, 1), {to}) + ", " + bytes_text(bytes));
}

WEFT_INLINE void note_gradient(const DeviceMesh& mesh, const OperandInfo& gradient, const Placements& to) {
  if (gradient.placements == to) return;
  if (!mesh.state().refusing && mesh.state().lines == nullptr) return;
  const std::string bytes =
      bytes_text(moved_bytes(gradient.shape, gradient.element_bytes, mesh.places(), gradient.placements, to));
  if (mesh.state().refusing)
    throw_error<UsageError>({"dtensor: backward moves the gradient of a tensor ", gradient.shape.text(), " on ", mesh.text(),
                             " from ", text(gradient.placements), " to the tensor's ", text(to), " (", bytes,
                             "), and RefuseMoves is in force: call backward outside of its scope"});
  mesh.state().lines->push_back("gradient" + moves_text(std::span(&gradient, 1), {to}) + ", " + bytes);
}

WEFT_INLINE void note_inside(const DeviceMesh& mesh, std::string_view operation, std::string_view axis, double bytes) {
  mesh.state().bytes += bytes;
  if (mesh.state().lines != nullptr)
    mesh.state().lines->push_back(std::string(operation) + " itself, over " + std::string(axis) + ", " + bytes_text(bytes));
}

}  // namespace weft::dtensor::detail
