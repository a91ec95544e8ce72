// SPDX-License-Identifier: Apache-2.0
#pragma once
// The result of a trained model on samples that it has not seen: an error, and a picture.

#include <cmath>
#include <cstddef>
#include <string>

#include "picture.hpp"

namespace fields {

struct Report {
  std::string measure;  ///< the error's name
  double error = 0;
  Picture picture = {};
};

/// |found - wanted| / |wanted|, as root mean squares.
double relative_error(const auto& found, const auto& wanted) {
  double off = 0, all = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const double true_value = double(wanted[i]), difference = double(found[i]) - true_value;
    off += difference * difference;
    all += true_value * true_value;
  }
  return std::sqrt(off / all);
}

}  // namespace fields
