# SPDX-License-Identifier: Apache-2.0
# The readers of data files under AddressSanitizer and UBSan, with files that are cut off or damaged.
. "$WEFT_SOURCE/tests/support/environment.sh"

must "$WEFT_BUILD/tests/program_damaged_files"
