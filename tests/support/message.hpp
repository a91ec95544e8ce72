// SPDX-License-Identifier: Apache-2.0
#pragma once
// The text of an exception, to be compared whole; empty if none of this type is thrown.

#include <string>
#include <utility>

namespace weft_test {

template <class E, class F>
std::string message(F&& f) {
  try {
    std::forward<F>(f)();
  } catch (const E& error) {
    return error.what();
  }
  return "";
}

}  // namespace weft_test
