// SPDX-License-Identifier: Apache-2.0
#pragma once
// The header of IDX files. Definitions for data/idx.hpp.

#include <weft/core/inline.hpp>
#include <weft/data/idx.hpp>

namespace weft::data {

WEFT_INLINE Idx Idx::open(const std::string& file) { return Idx(detail::FileBytes::open_unzipped(file)); }

WEFT_INLINE Idx::Header Idx::read(const detail::FileBytes& bytes) {
  const std::span<const std::uint8_t> all = bytes.bytes();
  const auto fail = [&](weft::detail::Words reason) { detail::refuse_file(bytes.file(), reason); };
  if (all.size() < 4) fail({"it has ", all.size(), " bytes, an IDX file at least 8"});
  if (all[0] != 0 || all[1] != 0)
    fail({"it is no IDX file: it begins with the bytes ", unsigned(all[0]), ", ", unsigned(all[1]), ", not 0, 0"});
  Header header;
  switch (all[2]) {
    case 0x08: header.type = {'u', 1}; break;
    case 0x09: header.type = {'i', 1}; break;
    case 0x0B: header.type = {'i', 2}; break;
    case 0x0C: header.type = {'i', 4}; break;
    case 0x0D: header.type = {'f', 4}; break;
    case 0x0E: header.type = {'f', 8}; break;
    default:
      fail({"it is no IDX file: its type of elements is ", unsigned(all[2]), ", which is none of 8, 9, 11, 12, 13 and 14"});
  }
  const std::size_t dims = all[3];
  if (dims == 0) fail({"it has no dims: an IDX file of samples has at least one"});
  if (all.size() < 4 + 4 * dims)
    fail({"it is cut off: the header of ", dims, " dims has ", 4 + 4 * dims, " bytes, the file ", all.size()});
  for (std::size_t dim = 0; dim < dims; ++dim) {
    std::size_t extent = 0;
    for (std::size_t byte = 0; byte < 4; ++byte) extent = extent << 8 | all[4 + 4 * dim + byte];
    header.shape.push_back(extent);
  }
  return header;
}

}  // namespace weft::data
