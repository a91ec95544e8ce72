// SPDX-License-Identifier: Apache-2.0
// The definitions of machines, replays, estimates of time and choices of layouts.
#include <weft/plan/balanced_stages_impl.hpp>
#include <weft/plan/byte_costs_impl.hpp>
#include <weft/plan/candidate_cost_impl.hpp>
#include <weft/plan/candidate_impl.hpp>
#include <weft/plan/choose_impl.hpp>
#include <weft/plan/choose_report_impl.hpp>
#include <weft/plan/estimate_impl.hpp>
#include <weft/plan/layouts_impl.hpp>
#include <weft/plan/machine_impl.hpp>
#include <weft/plan/piece_impl.hpp>
#include <weft/plan/rehearsed_costs_impl.hpp>
#include <weft/plan/replay_impl.hpp>
#include <weft/plan/this_machine_impl.hpp>
