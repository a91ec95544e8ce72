// SPDX-License-Identifier: Apache-2.0
#pragma once
// The reports of a choice: a text table, and JSON.
//
//   std::puts(table_of(chosen).c_str());   // the tree's answer, the ten best, and the code to paste

#include <string>

#include <weft/core/inline.hpp>
#include <weft/plan/choose.hpp>

namespace weft::plan {

std::string table_of(const Chosen& chosen);
std::string json_of(const Chosen& chosen);

namespace detail {
/// The reason why one layout is faster than another, from the parts of their times.
std::string why_of(const RankedLayout& layout, const RankedLayout* other, const char* name);
}  // namespace detail

}  // namespace weft::plan

#ifndef WEFT_COMPILED
#include <weft/plan/choose_report_impl.hpp>
#endif
