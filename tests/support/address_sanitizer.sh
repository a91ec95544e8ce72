# SPDX-License-Identifier: Apache-2.0
# Runs a program of tests ($1) that is built with AddressSanitizer and UBSan, with a look for leaks at the end.
. "$WEFT_SOURCE/tests/support/environment.sh"

export ASAN_OPTIONS=detect_leaks=1
# It must find a leak that is there, or it finds none at all.
echo 'int main() { char* volatile lost = new char[100]; lost = nullptr; }' >"$scratch/leak.cpp"
must "$WEFT_CXX" -fsanitize=address "$scratch/leak.cpp" -o "$scratch/leak"
"$scratch/leak" >"$scratch/output" 2>&1 && fail "a leak was not found: LeakSanitizer does nothing here"
grep -q "100 byte(s) leaked" "$scratch/output" || { cat "$scratch/output"; fail "LeakSanitizer cannot run here"; }
must "$WEFT_BUILD/tests/$1"
