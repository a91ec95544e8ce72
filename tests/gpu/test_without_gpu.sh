# SPDX-License-Identifier: Apache-2.0
# Without a GPU, programs that need one print one line with this reason and end with 2, whatever else is missing.
. "$WEFT_SOURCE/tests/support/environment.sh"

if nvidia-smi -L 2>/dev/null | grep -q '^GPU '; then skip "this machine has a GPU"; fi
for command in "tests/run --gpu" "bench/run gpu"; do
  # shellcheck disable=SC2086
  text=$("$WEFT_SOURCE"/$command 2>&1)
  code=$?
  echo "$command: $code, $text"
  [ $code -eq 2 ] || fail "$command ended with $code"
  [ "$(printf '%s\n' "$text" | wc -l)" -eq 1 ] || fail "$command said more than one line"
  case "$text" in *"needs an NVIDIA GPU"*) ;; *) fail "$command does not say what is missing" ;; esac
done
# Only building, without a Kokkos for CUDA.
text=$(unset Kokkos_ROOT Kokkos_DIR; cp -r "$WEFT_SOURCE/cmake" "$scratch/"; mkdir -p "$scratch/tests/gpu"; cp "$WEFT_SOURCE/tests/run" "$scratch/tests/"; cp "$WEFT_SOURCE/tests/gpu/run.sh" "$scratch/tests/gpu/"; WEFT_GPU_BUILD=1 "$scratch/tests/run" --gpu 2>&1)
code=$?
echo "$text"
[ $code -eq 2 ] || fail "building without a Kokkos for CUDA ended with $code"
case "$text" in *"needs a Kokkos built for CUDA in Kokkos_ROOT"*) ;; *) fail "it does not say that Kokkos is missing" ;; esac
