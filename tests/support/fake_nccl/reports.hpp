// SPDX-License-Identifier: Apache-2.0
#pragma once
// Violations of the rules of CUDA and NCCL that the double found. Each is printed at once. A program that ends with unexpected
// violations fails with exit code 3.

#include <string>
#include <vector>

namespace fake_nccl {

void report(const std::string& text);
/// All since the last call, each text once.
std::vector<std::string> take_reports();

}  // namespace fake_nccl
