# SPDX-License-Identifier: Apache-2.0
# A program on comm::NcclOver compiles with nvcc and links with the real NCCL and CUDA runtime. Without a GPU it ends with exit
# code 2 and a line with this reason, and likewise where ranks cannot meet; with GPUs it runs the conformance suite on them.
. "$WEFT_SOURCE/tests/support/environment.sh"

nvcc=$(command -v nvcc || echo "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc")
[ -x "$nvcc" ] || skip "nvcc is not installed: nothing is linked with NCCL here"
toolkit=$(dirname "$(dirname "$nvcc")")
library=$(ls "$toolkit"/lib64/libnccl.so "$toolkit"/lib/libnccl.so /usr/lib/*/libnccl.so 2>/dev/null | head -n 1)
[ -n "$library" ] || skip "the CUDA toolkit at $toolkit has no NCCL beside it"

includes=(-I "$WEFT_SOURCE/include" -I "$WEFT_SOURCE/tests")
libraries=()
IFS=: read -ra folders <<<"$WEFT_INCLUDES"
for folder in "${folders[@]}"; do
  includes+=(-isystem "$folder")
  for place in "$folder/../../lib64" "$folder/../../lib" "$folder/../lib"; do
    if ls "$place"/libkokkoscore.* >/dev/null 2>&1; then libraries+=(-L "$place" -Xlinker "-rpath=$place"); fi
  done
done
gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')
options=(-O0)
[ "$gpus" = 0 ] || options=(-O1 -DWEFT_TEST_CONFORMANCE)
must "$nvcc" -x cu -std=c++20 "${options[@]}" --expt-relaxed-constexpr --expt-extended-lambda -ccbin "$WEFT_CXX" -Xcompiler -fopenmp "${includes[@]}" \
  "$WEFT_SOURCE/tests/comm/programs/nccl.cpp" -o "$scratch/program" "${libraries[@]}" -L "$(dirname "$library")" -lnccl -lkokkoscore -ldnnl -ldl

if [ "$gpus" != 0 ]; then
  WEFT_RANKS=$gpus must timeout 300 "$scratch/program"                                         # threads, a GPU each
  WEFT_SHARE_GPUS=1 must timeout 300 "$WEFT_SOURCE/tests/support/torchrun" 2 "$scratch/program"  # two processes on one, if there is one
  exit 0
fi
WEFT_RANKS=1 timeout 120 "$scratch/program" >"$scratch/output" 2>&1
status=$?

# told CODE TEXT [FILE...]: the last program returned this code, and one line in all of the files has the text.
told() {
  local code=$1 text=$2
  shift 2
  [ "$status" = "$code" ] || fail "the program returned $status, expected $code: $(cat "$@")"
  [ "$(cat "$@" | wc -l)" = 1 ] || fail "expected one line: $(cat "$@")"
  grep -qF "$text" "$@" || fail "expected '$text', found: $(cat "$@")"
}
told 2 "weft: nccl: rank 0 has no GPU: cuda: " "$scratch/output"

# Under torchrun's environment.
"$WEFT_SOURCE/tests/support/torchrun" 2 "$scratch/program" >"$scratch/output" 2>&1
grep -v '^torchrun:' "$scratch/output" >"$scratch/lines"
[ "$(grep -c 'weft: nccl: rank 0 has no GPU: cuda: ' "$scratch/lines")" = 1 ] || fail "two processes: expected the line once: $(cat "$scratch/lines")"

port=$((20000 + RANDOM % 10000))
alone() { env -u WEFT_SECRET WORLD_SIZE=2 MASTER_PORT=$port WEFT_RENDEZVOUS_S=0.7 "$@" timeout 60 "$scratch/program"; }
alone RANK=0 2>"$scratch/output"
status=$?
told 2 "environment variable MASTER_ADDR is missing" "$scratch/output"
alone RANK=1 MASTER_ADDR=127.0.0.1 2>"$scratch/output"
status=$?
told 1 "rank 1: no store at 127.0.0.1:$port" "$scratch/output"
alone RANK=0 MASTER_ADDR=127.0.0.1 2>"$scratch/output"
status=$?
told 1 "rank 1 of a world of 2 did not come to 127.0.0.1:$port within" "$scratch/output"
alone RANK=0 MASTER_ADDR=0.0.0.0 2>"$scratch/output"
status=$?
told 2 "give every rank one WEFT_SECRET" "$scratch/output"
alone RANK=0 MASTER_ADDR=127.0.0.1 WEFT_RENDEZVOUS_S=4 2>"$scratch/first" &
sleep 1
alone RANK=0 MASTER_ADDR=127.0.0.1 2>"$scratch/output"
status=$?
told 1 "rank 0 cannot serve the store at 127.0.0.1:$port: another process of this job has RANK 0 and serves it" "$scratch/output"
alone RANK=1 MASTER_ADDR=127.0.0.1 WEFT_SECRET=0123456789abcdef 2>"$scratch/output"
status=$?
told 1 "refused: another secret (WEFT_SECRET)" "$scratch/output"
wait
