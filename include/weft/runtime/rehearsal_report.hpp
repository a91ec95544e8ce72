// SPDX-License-Identifier: Apache-2.0
#pragma once
// The reports of rehearsals: a text table, and JSON.
//
//   std::puts(table_of(rehearse_stages({.ranks = 2048}, program)).c_str());   // a column for each stage of the pipeline

#include <string>
#include <string_view>
#include <vector>

#include <weft/core/inline.hpp>
#include <weft/device/rehearsal.hpp>

namespace weft::runtime {

/// A rank that is rehearsed for all similar ranks: those of its stage, whose shards differ only by padding.
struct RehearsedStage {
  int rank = 0, stage = 0;  ///< its number in the world, and along pp
  Rehearsal notes;
  std::size_t least_peak = 0;  ///< the peak with early messages, if `notes` has late ones; 0: not requested
};

/// A text table of the notes: memory, and the work of the last step, or of the whole program if no optimizer took a step.
std::string table_of(const Rehearsal& notes);
/// A text table with one column per stage.
std::string table_of(const std::vector<RehearsedStage>& stages);
/// The notes as one JSON object: numbers of the whole program; kernels, messages and axes as lists; and "last_step".
std::string json_of(const Rehearsal& notes);
/// A JSON list of such objects, with the stage and the least peak.
std::string json_of(const std::vector<RehearsedStage>& stages);

/// Parses a number of bytes such as "80GB", "1.5 TiB" or "8e10". `name` appears in errors. Throws UsageError.
double bytes_of(std::string_view name, std::string_view text);
/// A number of bytes as text: "185.0 GB".
std::string bytes_text(double bytes);
/// Among the ranks that may need more than `memory` bytes, the one that needs most; null if all fit.
const RehearsedStage* too_large(const std::vector<RehearsedStage>& stages, double memory);
/// The rank's need and the available memory: "stage 2 of the pipeline (rank 512) needs 79.1 GB to 81.3 GB and has 80.0 GB: ...".
std::string need_text(const RehearsedStage& stage, double memory);
/// Throws MemoryError unless all ranks fit into `memory` bytes. The error names the rank that needs most, and a remedy.
void require_memory(const std::vector<RehearsedStage>& stages, double memory);

namespace detail {
/// table_of and json_of for one rank, without copying its notes.
std::string table_of_rank(const RehearsedStage& stage);
std::string json_of_rank(const RehearsedStage& stage, bool of_many);
}  // namespace detail

}  // namespace weft::runtime

namespace weft {
using runtime::RehearsedStage;
}  // namespace weft

#ifndef WEFT_COMPILED
#include <weft/runtime/rehearsal_report_impl.hpp>
#endif
