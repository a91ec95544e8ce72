// SPDX-License-Identifier: Apache-2.0
#pragma once
// The threads of a batch. Definitions for data/sample_threads.hpp.

#include <algorithm>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include <weft/core/inline.hpp>
#include <weft/data/sample_threads.hpp>

namespace weft::data::detail {

WEFT_INLINE void for_each_sample(std::size_t samples, std::size_t threads, const std::function<void(std::size_t)>& load) {
  if (threads <= 1 || samples <= 1) {
    for (std::size_t i = 0; i < samples; ++i) load(i);
    return;
  }
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::size_t failed = samples;  // the smallest sample with an error
  std::exception_ptr error;
  // Samples are taken in their order, so all before a failed one are complete or fail themselves.
  const auto work = [&] {
    for (std::size_t i = 0; (i = next++) < samples;) try {
        load(i);
      } catch (...) {
        next = samples;
        const std::lock_guard lock(mutex);
        if (i < failed) failed = i, error = std::current_exception();
      }
  };
  std::vector<std::thread> others;
  others.reserve(std::min(threads, samples) - 1);
  try {
    while (others.size() + 1 < std::min(threads, samples)) others.emplace_back(work);
  } catch (const std::system_error&) {}
  work();
  for (std::thread& thread : others) thread.join();
  if (error) std::rethrow_exception(error);
}

}  // namespace weft::data::detail
