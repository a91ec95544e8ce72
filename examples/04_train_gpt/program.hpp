// SPDX-License-Identifier: Apache-2.0
#pragma once
// A whole run of the trainer, for main.

#include "options.hpp"

namespace train_gpt {

/// Reads the command line with these defaults, starts the ranks or joins a launcher's, and trains. Returns the exit code.
int run_program(const Options& defaults, int argc, char** argv);

}  // namespace train_gpt
