// SPDX-License-Identifier: Apache-2.0
#pragma once
// The reports of rehearsals: a table for people, and JSON.
//
//   std::puts(table_of(rehearse_stages({.ranks = 2048}, program)).c_str());   // a column for each stage of the pipeline

#include <string>
#include <string_view>
#include <vector>

#include <weft/core/inline.hpp>
#include <weft/device/rehearsal.hpp>

namespace weft::runtime {

/// A rank that is rehearsed for all that do as it does: those of its stage, whose shards are padded a little differently.
struct RehearsedStage {
  int rank = 0, stage = 0;  ///< its number in the world, and along pp
  Rehearsal notes;
  std::size_t least_peak = 0;  ///< with early messages, where `notes` has late ones; 0: not asked for
};

/// The notes as a table for people: memory, and the work of the last step, or of the whole program if it took none.
std::string table_of(const Rehearsal& notes);
/// Side by side, a column for each.
std::string table_of(const std::vector<RehearsedStage>& stages);
/// The notes as one JSON object: numbers of the whole program, kernels, messages and axes as lists, and its "last_step".
std::string json_of(const Rehearsal& notes);
/// A list of such objects, with the stage and the least peak.
std::string json_of(const std::vector<RehearsedStage>& stages);

/// The bytes that "80GB", "1.5 TiB" or "8e10" are; `name` is for errors. Throws UsageError.
double bytes_of(std::string_view name, std::string_view text);
/// "185.0 GB".
std::string bytes_text(double bytes);
/// The rank that needs the most of those that may not fit into `memory` bytes; null if all fit.
const RehearsedStage* too_large(const std::vector<RehearsedStage>& stages, double memory);
/// What it needs and has, in words: "stage 2 of the pipeline (rank 512) needs 79.1 GB to 81.3 GB and has 80.0 GB: ...".
std::string need_text(const RehearsedStage& stage, double memory);
/// Throws MemoryError, which names the rank that needs the most and what to change, unless all fit into `memory` bytes.
void require_memory(const std::vector<RehearsedStage>& stages, double memory);

namespace detail {
/// table_of and json_of of one rank's notes, which are not copied.
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
