// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the double found against the rules of CUDA and NCCL. Each is printed at once; a program that ends with some that no test
// has taken fails with exit code 3.

#include <string>
#include <vector>

namespace fake_nccl {

void report(const std::string& text);
/// All since the last call, each text once.
std::vector<std::string> take_reports();

}  // namespace fake_nccl
