// SPDX-License-Identifier: Apache-2.0
// Options of a model between processes connected by TCP: stages that differ, sums in pieces, gradients summed as integers.

#include "support/process_options.hpp"

#include <weft/comm/tcp.hpp>

using namespace weft_test;

namespace {

std::size_t processes() { return std::size_t(runtime::launch_from_environment().world); }

}  // namespace

TEST_CASE("every schedule with stages that differ is one rank") { check_uneven_processes<comm::Tcp>(processes()); }
TEST_CASE("pieces of sums give the bits of whole sums") { check_piece_processes<comm::Tcp>(processes()); }
TEST_CASE("sums as integers have the bits of thread ranks") { check_quantised_processes<comm::Tcp>(processes()); }
