// SPDX-License-Identifier: Apache-2.0
// The definitions of machines, replays and estimates of time.
#include <weft/plan/estimate_impl.hpp>
#include <weft/plan/machine_impl.hpp>
#include <weft/plan/replay_impl.hpp>
#include <weft/plan/this_machine_impl.hpp>
