// SPDX-License-Identifier: Apache-2.0
// A field that the batch lacks; the compilers name it together with the existing ones.
// expect: the batch has no such field: ask for one of those that its FieldBatch names
// mention: 'w', 'e', 'i', 'g', 'h', 't'|"weight"|119, 101, 105, 103, 104, 116
#include <weft/data/fields.hpp>

inline constexpr weft::data::Field<"image", float> image;
inline constexpr weft::data::Field<"label", std::int32_t> label;
inline constexpr weft::data::Field<"weight", float> weight;

#ifdef WEFT_FAIL
std::size_t go(const weft::FieldBatch<image, label>& batch) { return batch[weight].values().size(); }
#else
std::size_t go(const weft::FieldBatch<image, label, weight>& batch) { return batch[weight].values().size(); }
#endif
