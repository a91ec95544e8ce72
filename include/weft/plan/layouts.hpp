// SPDX-License-Identifier: Apache-2.0
#pragma once
// The layouts of any program on a number of ranks: each choice of degrees for the axes that its meshes name, and of ZeRO's stage
// and the schedule if options choose them, is rehearsed. The program needs no change: as in a proof, meshes have these degrees in
// place of the program's. For models of language plan/choose.hpp searches more, by formulas.
//
//   WEFT_REHEARSE=64 WEFT_MACHINE=h100 WEFT_REHEARSE_MEMORY=80GB WEFT_REHEARSE_LAYOUTS=10 ./program   // includes this header
//   const Layouts found = plan::layouts({.ranks = 64}, plan::known_machine("h100"), {.memory = 80e9}, [](World& world) {
//   train(world); }); std::puts(plan::table_of(found).c_str());   // found.fitting[0].layout.degree("dx")

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <weft/device/proof.hpp>
#include <weft/plan/estimate.hpp>
#include <weft/plan/machine.hpp>
#include <weft/runtime/rehearse.hpp>

namespace weft::plan {

/// The limits of a search of layouts.
struct LayoutLimits {
  double memory = 0;        ///< bytes of a device; 0: unlimited
  double seconds = 30;      ///< of the search; the layouts that cut along fewest axes are rehearsed first
  std::size_t listed = 10;  ///< layouts in the table
};

/// A layout of a program, rehearsed.
struct ProgramLayout {
  weft::detail::ProofLayout layout;
  double memory = 0;  ///< bytes of the fullest rank, at most
  Estimate step;
};

/// The result of a search of layouts.
struct Layouts {
  std::vector<ProgramLayout> fitting;  ///< most samples or tokens per second first
  LayoutLimits limits;
  std::size_t all = 0, refused = 0, too_large = 0;  ///< numbers of layouts; `refused`: by weft or by the program
  bool complete = true;                             ///< false: time ran out before every layout was rehearsed
};

/// Rehearses `f(world)` in the layouts of `of.ranks` ranks, for three optimizer steps unless `of.steps` is set. Batches must
/// follow from the mesh, as in a proof (mesh.rank(dx{}), data::share_of(mesh)). Throws LayoutError with the first refusal if no
/// layout is possible, MemoryError with the smallest need if none fits; else throws as rehearse does.
Layouts layouts(RehearsedStages of, const Machine& machine, const LayoutLimits& limits, const std::function<void(World&)>& f);

/// A text table of the best layouts: memory, time of a step, samples or tokens per second, share of the peak.
std::string table_of(const Layouts& found);
/// The same as one JSON object, with all layouts that fit in "layouts": the ranks of each axis in "degrees", the stage of ZeRO
/// and the schedule where they vary, "memory_bytes" and "seconds".
std::string json_of(const Layouts& found);

namespace detail {
/// Texts for programs run with WEFT_REHEARSE_LAYOUTS.
runtime::detail::EstimateTexts layouts_for_people(const RehearsedStages& of, std::string_view machine, double memory,
                                                  std::size_t listed, const std::function<void(World&)>& f);
inline const bool people_may_search = (runtime::detail::layouts_for_people = &layouts_for_people) != nullptr;
}  // namespace detail

}  // namespace weft::plan

#ifndef WEFT_COMPILED
#include <weft/plan/layouts_impl.hpp>
#endif
