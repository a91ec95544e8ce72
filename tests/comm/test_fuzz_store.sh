# SPDX-License-Identifier: Apache-2.0
# The store's parser and server under AddressSanitizer and UBSan, with random and damaged input.
. "$WEFT_SOURCE/tests/support/environment.sh"

must "$WEFT_BUILD/tests/program_fuzz_store" "${WEFT_FUZZ_INPUTS:-200000}"
