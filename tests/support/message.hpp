// SPDX-License-Identifier: Apache-2.0
#pragma once
// The whole text of an exception; empty if no exception of this type is thrown.

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
