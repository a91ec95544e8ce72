# SPDX-License-Identifier: Apache-2.0
# ./examples/run itself: names with and without number, the list, exit codes, and nothing of its own on standard output.
. "$WEFT_SOURCE/tests/support/environment.sh"
run=$WEFT_SOURCE/examples/run

out=$("$run" 2>"$scratch/errors")
[ $? -eq 2 ] || fail "without a name the exit code is not 2"
[ -z "$out" ] || fail "the list of examples went to standard output"
grep -q "01_hello_mesh  *[A-Z]" "$scratch/errors" || fail "the list lacks 01_hello_mesh and what it shows"

"$run" no_such_example 2>"$scratch/errors"
[ $? -eq 2 ] || fail "with an unknown name the exit code is not 2"
grep -q "no example is called 'no_such_example'" "$scratch/errors" || fail "the unknown name is not in the message"

for name in hello_mesh 01_hello_mesh; do
  out=$("$run" "$name" 2>"$scratch/errors") || fail "$name ended with $?: $(cat "$scratch/errors")"
  [ "$(grep -c 'rank' <<<"$out")" -ge 2 ] || fail "$name did not print a line for each of two ranks: $out"
done

out=$("$run" plan groups --world 4 --tp 2 --json 2>/dev/null) || fail "plan groups ended with $?"
python3 -c 'import json, sys; json.loads(sys.argv[1])["tp"]' "$out" || fail "the output of plan --json is not the program's alone: $out"
"$run" plan validate --nodes 1 --ranks-per-node 3 --tp 2 >/dev/null 2>&1
[ $? -eq 2 ] || fail "the exit code of the program does not pass through"

message=$(env -u Kokkos_DIR Kokkos_ROOT="$scratch" "$run" hello_mesh 2>&1) && fail "a Kokkos_ROOT without Kokkos was taken"
grep -q "Kokkos_ROOT is $scratch" <<<"$message" || fail "a Kokkos_ROOT without Kokkos: $message"

# The copies that a launcher starts: one builds, all run.
[ "$(WEFT_IGNORE_LAUNCHER=1 "$WEFT_MPIRUN" 2 "$run" hello_mesh 2>/dev/null | grep -c 'rank')" -ge 2 ] || fail "it does not run under mpirun"
exit 0
