// SPDX-License-Identifier: Apache-2.0
#pragma once
// A whole run of the trainer: what main calls.

#include "options.hpp"

namespace train_gpt {

/// Reads the command line over these defaults, starts the ranks or joins those of a launcher, and trains. The exit code.
int run_program(const Options& defaults, int argc, char** argv);

}  // namespace train_gpt
