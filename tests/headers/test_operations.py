# SPDX-License-Identifier: Apache-2.0
"""Every operation on Variables has a line in operations/refused.hpp: without one, a call with other arguments is a list of candidates.

    python3 tests/headers/test_operations.py
"""
import pathlib
import re
import sys

FOLDER = pathlib.Path(__file__).resolve().parent.parent.parent / "include/weft/operations"
# A function of a Variable by its type, or of a tensor or a Variable by a concept.
FUNCTION = re.compile(r"^(?:[\w:<>., ()]+ |    )(\w+)\((?:(?:const )?Variable<C|const X& x, W&& w)"
                      r"|detail::ImageOperand X>\nauto (\w+)\(const X& x", re.MULTILINE)
LINE = re.compile(r"WEFT_(?:OPERATION|CONVOLUTION|UNARY|OPERATION_OF|ORDERED|REFUSED_AS)\((?:(?:int(?:\.\.\.)?|class), )?(?:as_)?(\w+)")
# Refused by separate overloads, or no function of a forward.
OTHERS = {"to", "to_layout_of", "sum_losses", "record_attention", "record_by_gradient", "record_by_operand", "record_by_result", "record_ordered", "record_pairs", "refuse_cache", "RecordedAttention",
          # inside of grad(f, x): rules, and gradients as operations
          "batched_contract", "broadcasting", "contract", "add_row", "einsum_of", "joined_parts", "over_rows", "viewed", "within_zeros", "permute_back", "sum_all_gradient",
          "sum_columns_gradient", "sum_gradient", "segment_mean_gradient", "sum_rows_gradient", "moved_along_edges", "moved_cut"}

found = {name: path.name for path in FOLDER.glob("*.hpp") if path.name != "refused.hpp" for names in FUNCTION.findall(path.read_text()) for name in names if name}
listed = set(LINE.findall((FOLDER / "refused.hpp").read_text()))
missing = [f"{file}: {name} has no line WEFT_OPERATION({name}, ...) in refused.hpp" for name, file in sorted(found.items())
           if name not in listed | OTHERS and not name.startswith("operator")]
print("\n".join(missing) or f"{len(found)} names, {len(listed)} lines")
if len(found) < 50:
    missing.append("few operations are found")
sys.exit(1 if missing else 0)
