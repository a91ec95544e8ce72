# SPDX-License-Identifier: Apache-2.0
# Runs the sanitized program of a folder of tests ($1), with the arguments after it. GCC 12's ThreadSanitizer refuses the address layout of newer kernels, so the
# layout is fixed where that is allowed.
. "$WEFT_SOURCE/tests/support/environment.sh"

program="$WEFT_BUILD/tests/program_sanitized_$1"
shift
[ -x "$program" ] || skip "the compiler has no ThreadSanitizer"
fixed=()
if setarch "$(uname -m)" -R true 2>/dev/null; then fixed=(setarch "$(uname -m)" -R); fi
"${fixed[@]}" "$program" "$@" >"$scratch/output" 2>&1
status=$?
grep -q "unexpected memory mapping" "$scratch/output" && skip "ThreadSanitizer does not run on this kernel"
head -100 "$scratch/output" | cut -c1-400
[ "$status" = 0 ] || fail "the sanitized program returned $status"
