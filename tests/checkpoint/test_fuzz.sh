# SPDX-License-Identifier: Apache-2.0
# Headers and indexes made by libFuzzer, under AddressSanitizer and UndefinedBehaviorSanitizer: 30 s, or as long as WEFT_FUZZ_S says.
. "$WEFT_SOURCE/tests/support/environment.sh"

clang=$(command -v clang++-14 || command -v clang++) || skip "clang is not installed"
[ -e /usr/include/xxhash.h ] || skip "xxhash.h is not installed"
printf 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }' >"$scratch/none.cpp"
"$clang" -fsanitize=fuzzer "$scratch/none.cpp" -o "$scratch/none" 2>/dev/null || skip "this clang has no libFuzzer"
cp "$(g++ -print-file-name=include/omp.h)" "$scratch" 2>/dev/null
includes=(-I "$WEFT_SOURCE/include" -idirafter "$scratch")
IFS=: read -ra folders <<<"$WEFT_INCLUDES"
for folder in "${folders[@]}"; do [ "$folder" = "$WEFT_SOURCE/include" ] || includes+=(-isystem "$folder"); done
must "$clang" -std=c++20 -O1 -g -fopenmp -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all "${includes[@]}" \
  "$WEFT_SOURCE/tests/checkpoint/programs/fuzz_files.cpp" -o "$scratch/fuzz" -L "$Kokkos_DIR/../.." -Wl,-rpath,"$Kokkos_DIR/../.." -lkokkoscore

mkdir "$scratch/corpus"
printf 's{"__metadata__":{"by":"weft"},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[],"data_offsets":[8,9]}}\3' >"$scratch/corpus/header"
printf '%s' '1,"step":3,"world":2,"seed":1,"chunk_bytes":1048576,"optimizer_steps":3,"loss_scale":[65536,2],"begun":{"a":1},"notes":{"x":"y"},' \
  '"files":[{"name":"rank-00000.safetensors","bytes":200,"header_bytes":100,"header_xxh3":"0123456789abcdef","xxh3":"0123456789abcdef"}],' \
  '"tensors":{"a":{"kind":"parameter","type":"F32","of":"BF16","shape":[2,4],"pieces":[' \
  '{"file":0,"first":0,"run":2,"runs":2,"stride":4,"offset":100,"xxh3":["0123456789abcdef"]},' \
  '{"file":0,"first":2,"run":2,"runs":2,"stride":4,"offset":116,"xxh3":["0123456789abcdef"]}]}}' >"$scratch/corpus/index"
seconds=${WEFT_FUZZ_S:-30}
ASAN_OPTIONS=detect_leaks=1 timeout $((seconds + 60)) "$scratch/fuzz" -max_total_time="$seconds" -max_len=4096 -rss_limit_mb=600 -timeout=5 \
  -artifact_prefix="$scratch/" "$scratch/corpus" >"$scratch/output" 2>&1 || { tail -40 "$scratch/output"; for found in "$scratch"/crash-* "$scratch"/timeout-* "$scratch"/oom-*; do [ -e "$found" ] && head -c 400 "$found"; done; fail "the fuzzer found something"; }
tail -2 "$scratch/output"
