// SPDX-License-Identifier: Apache-2.0
#pragma once
// The files of a source tree: a corpus that needs no download. Separate from corpus.hpp, because std::filesystem costs every
// program that includes it half a second of compile time.
//
//   data::Corpus corpus = data::Corpus::read(data::source_files("."));

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <vector>

#include <weft/core/standard.hpp>

namespace weft::data {

/// A source tree's headers (include/), documents (docs/, *.md) and examples under `folder`, sorted by path, so the order is the
/// same on every computer. Empty if there are none.
std::vector<std::filesystem::path> source_files(const std::filesystem::path& folder);

}  // namespace weft::data

#ifndef WEFT_COMPILED
#include <weft/data/source_files_impl.hpp>
#endif
