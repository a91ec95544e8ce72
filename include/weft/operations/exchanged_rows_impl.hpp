// SPDX-License-Identifier: Apache-2.0
#pragma once
// The plans of operations over cut images. Definitions for operations/exchanged_rows.hpp.

#include <algorithm>

#include <weft/core/inline.hpp>
#include <weft/operations/exchanged_rows.hpp>

namespace weft::detail {

WEFT_INLINE void require_rows_of_stride(const char* operation, std::string_view axis, NamedOperand x, std::size_t own,
                                        std::size_t stride) {
  if (own % stride != 0)
    throw_error<ShapeError>({call_text(operation, {x}), ": a window of stride ", stride, ", and a rank of ", axis, " has ", own,
                             " rows: all ranks but the last have a multiple of the stride"});
}

/// One dim of a window.
struct WindowLine {
  WindowLine(std::size_t kernel, const ConvolutionOptions& options, std::size_t dim)
      : span((std::max<std::size_t>(1, kernel) - 1) * options.dilation[dim] + 1),
        stride(options.stride[dim]),
        padding(options.padding[dim]),
        behind((options.padding_after.count() == 0 ? options.padding : options.padding_after)[dim]) {}
  std::size_t span, stride, padding, behind;
};

inline void require_short_padding(const CutDim& dim, const WindowLine& line, std::size_t padding) {
  if (padding >= line.span || line.stride == 0)
    throw_error<ShapeError>({dim.call.operation, " over images that an axis cuts: a window of ", line.span,
                             " elements with stride ", line.stride, " and padding ", padding,
                             ": the padding has fewer elements than the window"});
}

WEFT_INLINE CutPlan cut_window(const CutDim& dim, const Communicator& comm, std::size_t kernel,
                               const ConvolutionOptions& options) {
  const WindowLine line(kernel, options, dim.at);
  require_short_padding(dim, line, std::max(line.padding, line.behind));
  const std::size_t inside = line.padding + line.stride;
  const Reach reach{line.padding, line.span > inside ? line.span - inside : 0};
  const HaloRows closed(comm, reach);
  if (!closed.last && dim.rows % line.stride != 0)
    throw_error<ShapeError>({dim.call.operation, " over images that an axis cuts: a window of stride ", line.stride,
                             ", and a rank of ", dim.call.axis, " has ", dim.rows,
                             " rows: all ranks but the last have a multiple of the stride"});
  if (options.mode == PaddingMode::periodic && comm.size() > 1) return {.rows = HaloRows::of_ring(comm, reach, line.behind)};
  CutPlan plan{.rows = closed, .before = closed.first ? line.padding : 0, .after = closed.last ? line.behind : 0};
  plan.rows.beyond = {plan.before, plan.after};  // padding, or copies that are rows of the piece before the exchange
  return plan;
}

WEFT_INLINE CutPlan cut_transposed(const CutDim& dim, const Communicator& comm, std::size_t kernel,
                                   const ConvolutionOptions& options) {
  const WindowLine line(kernel, options, dim.at);
  if (comm.size() > 1) require_short_padding(dim, line, line.padding);
  // Row i reaches the outputs from i stride - padding on, `span` of them.
  const Reach reach{line.span > line.padding ? (line.span - 1 - line.padding) / line.stride : 0,
                    (line.padding + line.stride - 1) / line.stride};
  CutPlan plan{.rows = HaloRows(comm, reach)};
  plan.rows.beyond = {reach.before, reach.after};  // rows of zeros add nothing to the outputs
  plan.before = line.padding + plan.rows.before * line.stride;
  if (plan.rows.last) {
    plan.after = line.behind;
    plan.output_padding = options.output_padding[dim.at];
  } else {
    // The outputs end `stride` beyond the first one of the piece's last row.
    const std::size_t whole = line.span + plan.rows.after * line.stride, wanted = line.padding + line.stride;
    plan.after = whole > wanted ? whole - wanted : 0;
    plan.output_padding = wanted > whole ? wanted - whole : 0;
  }
  return plan;
}

}  // namespace weft::detail
