// SPDX-License-Identifier: Apache-2.0
#pragma once
// The samples of one batch, loaded by several threads, each of which takes the next sample. The threads live for one batch: their
// start takes about 0.1 ms, and only samples that are decoded, which take longer, need more than one.
//
//   detail::for_each_sample(32, 4, [&](std::size_t i) { load(i); });

#include <atomic>
#include <cstddef>
#include <functional>

namespace weft::data::detail {

/// Calls load(i) for each i of [0, samples), on at most `threads` threads; the caller is one of them. Rethrows the exception of
/// the smallest i, after which no further sample is begun. If the system starts no thread, the others do its work.
void for_each_sample(std::size_t samples, std::size_t threads, const std::function<void(std::size_t)>& load);

}  // namespace weft::data::detail

#ifndef WEFT_COMPILED
#include <weft/data/sample_threads_impl.hpp>
#endif
