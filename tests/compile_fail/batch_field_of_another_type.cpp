// SPDX-License-Identifier: Apache-2.0
// A label that the model needs as an integer and the batch has as a float: another field.
// expect: the batch has no such field: ask for one of those that its FieldBatch names
// mention: float
#include <weft/data/fields.hpp>

#ifdef WEFT_FAIL
inline constexpr weft::data::Field<"label", float> given;
#else
inline constexpr weft::data::Field<"label", std::int32_t> given;
#endif
inline constexpr weft::data::Field<"label", std::int32_t> label;

void go(const weft::FieldBatch<given>& batch) { batch[label].check_labels(10); }
