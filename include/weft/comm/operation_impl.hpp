// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for comm/operation.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <numeric>

#include <weft/comm/operation.hpp>
#include <weft/core/inline.hpp>

namespace weft::comm {

WEFT_INLINE double message_bytes(const Call& call, int size) {
  const auto total = [](std::span<const std::size_t> counts) {
    return std::accumulate(counts.begin(), counts.end(), std::size_t(0));
  };
  std::size_t elements = call.count;
  switch (call.operation) {
    case Operation::all_gather:
    case Operation::reduce_scatter:
    case Operation::gather:
    case Operation::scatter:
    case Operation::all_to_all: elements *= std::size_t(size); break;
    case Operation::all_gather_v:
    case Operation::reduce_scatter_v: elements = total(call.receive_counts); break;
    case Operation::all_to_all_v: elements = total(call.send_counts); break;
    default: break;
  }
  return double(elements) * double(size_of(call.type));
}

WEFT_INLINE std::unique_ptr<std::size_t[]> keep_counts(Call& call) {
  const std::size_t receives = call.receive_counts.size(), sends = call.send_counts.size();
  if (receives + sends == 0) return nullptr;
  std::unique_ptr<std::size_t[]> counts(new std::size_t[receives + sends]);
  std::copy(call.receive_counts.begin(), call.receive_counts.end(), counts.get());
  std::copy(call.send_counts.begin(), call.send_counts.end(), counts.get() + receives);
  call.receive_counts = {counts.get(), receives};
  call.send_counts = {counts.get() + receives, sends};
  return counts;
}

WEFT_COLD WEFT_INLINE std::string describe(std::uint64_t signature, std::size_t count) {
  const auto op = static_cast<Operation>(signature & 0xff);
  const auto purpose = static_cast<Purpose>(signature >> 24 & 0x3);
  if (purpose == Purpose::split) return "split()";
  if (purpose == Purpose::end) return "the end of the program";
  std::string text(name_of(op));
  if (op == Operation::barrier || op == Operation::split) return text += "()";
  if (reduces(op)) weft::detail::append_to(text, {"(", name_of(static_cast<Reduction>(signature >> 16 & 0xff)), ")"});
  if (op != Operation::all_gather_v && op != Operation::reduce_scatter_v && op != Operation::all_to_all_v)
    weft::detail::append_to(text, {" of ", count});
  weft::detail::append_to(text, {" ", name_of(static_cast<DataType>(signature >> 8 & 0xff))});
  if (has_root(op) || is_point_to_point(op))
    weft::detail::append_to(text, {has_root(op) ? " with root " : " with tag ", static_cast<std::int32_t>(signature >> 32)});
  return text;
}

WEFT_COLD WEFT_INLINE std::string describe(const Call& call) {
  std::string text = describe(signature(call), call.count);
  if (call.operation == Operation::send) weft::detail::append_to(text, {" to rank ", call.root});
  if (call.operation == Operation::recv) weft::detail::append_to(text, {" from rank ", call.root});
  return text;
}

WEFT_COLD WEFT_INLINE std::string functions_of(std::string_view one, std::uint64_t its_signature, std::string_view other,
                                               std::uint64_t signature) {
  if (((its_signature | signature) & function_bits) == 0) return {};
  return weft::detail::joined(
      {" (", one, " in ", name_of(function_of(its_signature)), ", ", other, " in ", name_of(function_of(signature)), ")"});
}

}  // namespace weft::comm
