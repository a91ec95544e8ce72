# SPDX-License-Identifier: Apache-2.0
# The trainer from its command line: its files, the same losses in every layout, threads and MPI, and how it ends where it
# cannot go on.

import json
import math
import os
import pathlib
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.environ.get("WEFT_SOURCE", "."), "tests", "support"))
from checks import check, finish

TRAIN = os.path.join(os.environ["WEFT_EXAMPLES"], "04_train_gpt")
os.environ.pop("WEFT_RANKS", None)  # it stands for --ranks
MPIRUN = os.environ.get("WEFT_MPIRUN", "")
scratch = pathlib.Path(tempfile.mkdtemp(prefix="weft-train-"))
text = scratch / "text.txt"
text.write_bytes(b"".join(b"%d times %d is %d.\n" % (a, b, a * b) for a in range(40) for b in range(40)))
SMALL = f"--data {text} --layers 4 --width 32 --heads 4 --sequence 16 --global-batch 8 --steps 6 --validate-every 3 --sample 8 --learning-rate 3e-3"


def run(arguments, launcher=(), environment=None, timeout=120):
    return subprocess.run([*launcher, TRAIN, *arguments.split()], capture_output=True, text=True, errors="replace", timeout=timeout,
                          env=os.environ | (environment or {}), cwd=scratch)


def all_records(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def records(folder):
    """Those of steps; validations have their own."""
    return [record for record in all_records(folder) if "validation_loss" not in record]


def close(a, b, tolerance):
    return len(a) == len(b) and all(abs(x - y) <= tolerance * max(1, abs(y)) for x, y in zip(a, b))


def trained(name, arguments, launcher=()):
    folder = scratch / name
    optimizer = "" if "--optimizer" in arguments else "--optimizer adamw"  # Muon's orthogonal matrices magnify rounding
    result = run(f"{SMALL} {optimizer} {arguments} --output {folder}", launcher)
    check(result.returncode == 0, f"{name}: exit code {result.returncode}: {result.stdout} {result.stderr}")
    if result.returncode != 0:
        return None, []
    last = [line for line in result.stdout.splitlines() if line.strip()][-1]
    check(last.startswith("validation loss "), f"{name}: the last line is {last!r}")
    return float(last.split()[-1]), records(folder)


# --- its files
loss, one = trained("one", "--ranks 1")
check([r["step"] for r in one] == list(range(6)), "a line a step")
MEASURED = {"share_of_peak", "computing_ms", "waiting_ms", "message_bytes", "memory_bytes", "memory_peak_bytes", "slow_ranks"}
check(all(set(r) - MEASURED == {"step", "loss", "gradient_norm", "learning_rate", "tokens_per_s", "ms"} for r in one), f"keys of the records: {one[:1]}")
validations = [r for r in all_records(scratch / "one") if "validation_loss" in r] if one else []
check([set(r) for r in validations[-1:]] == [{"step", "validation_loss"}] and validations[-1]["step"] == 5 and
      abs(validations[-1]["validation_loss"] - loss) < 1e-5, f"the last validation is recorded: {validations}")
check(one and abs(one[0]["loss"] - math.log(256)) < 0.3 and one[-1]["loss"] < one[0]["loss"], "the loss starts at log(256) and falls")
if one:
    layout = json.loads((scratch / "one/layout.json").read_text())
    check(layout["world"] == 1 and layout["dp"] == 1 and layout["micro_batches"] == 1 and layout["peak_flops"] > 1e9, f"layout.json: {layout}")
    check((scratch / "one/loss.svg").read_text().startswith("<svg"), "loss.svg")
    sample = (scratch / "one/sample.txt").read_bytes()
    check(len(sample) == 4 + 8 and sample.startswith(b"/// "), f"sample.txt: {sample!r}")

# --- an untrained model may write any bytes: the terminal gets UTF-8, the file the bytes
odd = ["é€😀", b"\xf4\x90\x80\x80", b"\xed\xa0\x80", b"\xe0\x80\x80", b"\xf0\x80\x80\x80", b"\xc0\x80", b"\xf5\x80\x80\x80", b"\xc2\x9b", b"\x1b[31m", b"\xe2\x82"]
prompt = b"<".join(piece.encode() if isinstance(piece, str) else piece for piece in odd) + b">"
result = subprocess.run([TRAIN, *f"{SMALL} --ranks 1 --output {scratch}/odd".split(), "--prompt", prompt], capture_output=True, timeout=120, cwd=scratch)
shown = result.stdout.decode("utf-8")  # throws where it is not
check(result.returncode == 0 and "é€😀<????<???<???<????<??<????<?" in shown and "\x9b" not in shown and "\x1b[31m" not in shown, f"odd bytes: {shown}")
check((scratch / "odd/sample.txt").read_bytes().startswith(prompt), "sample.txt holds the bytes themselves")

# --- the same run in every layout
own = scratch / "own.csv"
own.write_text("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n")
for name, arguments in [
    ("dp2", "--ranks 2"),
    ("tp2", "--tp 2"),
    ("pp2", "--pp 2 --micro-batch 2"),
    ("gpipe", "--pp 2 --micro-batch 2 --schedule gpipe"),
    ("dp2tp2pp2", "--dp 2 --tp 2 --pp 2"),
    ("accumulated", "--ranks 1 --micro-batch 2"),
    ("zero1", "--ranks 2 --zero 1"),
    ("zero2", "--ranks 2 --zero 2 --micro-batch 2"),
    ("hybrid", "--ranks 4 --zero 3 --replicate 2"),
    ("offload_host", "--ranks 2 --zero 3 --offload host"),
    ("offload_file", f"--ranks 2 --zero 2 --offload {scratch}/state"),
    ("zero3pp2", "--dp 2 --pp 2 --zero 3 --schedule zb-h1"),
    ("sequence_parallel", "--tp 2 --sequence-parallel --zero 3 --dp 2"),
    ("pieces", "--tp 2 --piece-bytes 1024"),
    ("loss_chunks", "--tp 2 --loss-chunks 3"),
    ("interleaved", "--pp 2 --micro-batch 2 --schedule interleaved --vpp 2"),
    ("interleaved_zb", "--pp 2 --micro-batch 2 --schedule interleaved-zb"),
    ("zbv", "--pp 2 --micro-batch 2 --schedule zbv --tp 2 --sequence-parallel"),
    ("dualpipev", "--pp 2 --micro-batch 2 --schedule dualpipev"),
    ("cp2", "--cp 2"),
    ("cp4", "--cp 4 --sequence-parallel --tp 2"),
    ("selective", "--ranks 2 --recompute selective"),
    ("full", "--pp 2 --recompute full --schedule zb-h1"),
    ("activations_on_host", "--ranks 2 --zero 3 --activations host"),
    ("ulysses", "--cp 2 --context ulysses --dp 2 --zero 2"),
    ("cp2pp2tp2", "--cp 2 --pp 2 --tp 2 --schedule interleaved"),
    ("own", f"--pp 2 --micro-batch 4 --schedule {own}"),
    ("stages_of_1_and_3", "--pp 2 --micro-batch 2 --pp-layers 1,3"),
    ("stages_by_cost", "--pp 2 --micro-batch 2 --schedule zbv --pp-layers auto"),
]:
    other_loss, other = trained(name, arguments)
    check(close([r["loss"] for r in other], [r["loss"] for r in one], 2e-4), f"{name}: losses {[r['loss'] for r in other]} are not those of one rank {[r['loss'] for r in one]}")
    check(close([r["gradient_norm"] for r in other], [r["gradient_norm"] for r in one], 2e-3), f"{name}: gradient norms")
    check(other_loss is not None and abs(other_loss - loss) < 2e-3, f"{name}: validation loss {other_loss}, not {loss}")
    timeline = scratch / name / "timeline.json"
    check(timeline.exists() == ("--pp" in arguments), f"{name}: timeline.json is written where there is a pipeline")
    if timeline.exists():
        events = [e for e in json.loads(timeline.read_text())["traceEvents"] if e["ph"] == "X"]
        check({e["tid"] for e in events} == {0, 1} and all(e["dur"] > 0 for e in events), f"{name}: the timeline as measured")
        check((timeline.parent / "timeline.svg").read_text().startswith("<svg"), f"{name}: timeline.svg")
if MPIRUN and shutil.which(os.environ.get("WEFT_MPIRUN_EXECUTABLE") or "mpirun"):
    _, other = trained("mpi", "--tp 2", (MPIRUN, "4"))
    check(close([r["loss"] for r in other], [r["loss"] for r in one], 2e-4), "under mpirun: losses are not those of one rank")
    result = run(f"{SMALL} --ranks 8 --output {scratch}/more", (MPIRUN, "2"))
    check(result.returncode == 2 and "ranks(8) > 2 started by the launcher" in result.stderr, f"more ranks than the launcher started: {result.returncode} {result.stderr}")
    check(not (scratch / "more").exists(), "more ranks than started: something was written")
# --ema: the same training; the averages are validated and exported, and a checkpoint keeps them for another layout.
averages = f"--ema 0.8 --checkpoint {scratch}/ema_checkpoint --export {scratch}/ema_export"
ema_loss, other = trained("ema", f"{averages} --ranks 1 --every 3")
check([r["loss"] for r in other] == [r["loss"] for r in one], f"ema: losses {other} are not those without averages {one}")
check(ema_loss is not None and ema_loss - loss > 1e-3, f"ema: the averages' validation loss {ema_loss} is not above {loss}, which falls")
result = run(f"--data {text} --load {scratch}/ema_export --sequence 16 --global-batch 8 --steps 1 --learning-rate 0 --sample 0 --ranks 1 --output {scratch}/ema_read")
read = re.search(r"validation loss ([\d.]+)\s*\Z", result.stdout)
check(read and abs(float(read[1]) - ema_loss) < 1e-4, f"ema: the export's validation loss is not {ema_loss}: {result.stdout} {result.stderr}")
shutil.rmtree(scratch / "ema_checkpoint/step-00000006", ignore_errors=True)
other_loss, _ = trained("ema_resumed", f"{averages} --dp 2 --tp 2 --zero 3 --resume")
check(other_loss is not None and abs(other_loss - ema_loss) < 2e-3, f"ema: after a resume the averages' validation loss is {other_loss}, not {ema_loss}")
for name, arguments in [("llama", "--model llama --kv-heads 2 --ranks 1"), ("llama_tp2pp2", "--model llama --kv-heads 2 --tp 2 --pp 2")]:
    other_loss, other = trained(name, arguments)
    if name == "llama":
        llama = other
    else:
        check(close([r["loss"] for r in other], [r["loss"] for r in llama], 2e-4), "llama: losses are not those of one rank")
_, one = trained("muon", "--optimizer muon --ranks 1")
check(one and one[-1]["loss"] < one[0]["loss"], "muon: the loss falls")
for name, arguments in [("muon_tp2zero3", "--optimizer muon --dp 2 --tp 2 --zero 3"), ("muon_pp2cp2", "--optimizer muon --pp 2 --cp 2")]:
    _, other = trained(name, arguments)
    check(close([r["loss"] for r in other], [r["loss"] for r in one], 2e-3), f"{name}: losses {[r['loss'] for r in other]} are not those of one rank {[r['loss'] for r in one]}")
refused = run(f"{SMALL} --optimizer muon --offload host --ranks 1")
check(refused.returncode != 0 and "needs whole matrices and the state of" in refused.stderr, f"muon with offload: {refused.returncode} {refused.stderr}")
_, one = trained("mixtral", "--model mixtral --experts 4 --ranks 1")
check(one and one[-1]["loss"] < one[0]["loss"], "mixtral: the loss falls")
for name, arguments in [("mixtral_ep2", "--ep 2"), ("mixtral_ep4", "--ep 4"), ("mixtral_folded", "--tp 2 --ep 4 --etp 1 --dp 2 --sequence-parallel --zero 3"), ("mixtral_etp2", "--tp 2 --dp 2 --ep 2"), ("mixtral_pp2cp2", "--pp 2 --cp 2 --ep 2 --schedule zbv")]:
    _, other = trained(name, f"--model mixtral --experts 4 {arguments}")
    check(close([r["loss"] for r in other], [r["loss"] for r in one], 2e-4), f"{name}: losses {[r['loss'] for r in other]} are not those of one rank {[r['loss'] for r in one]}")
    check(close([r["gradient_norm"] for r in other], [r["gradient_norm"] for r in one], 2e-3), f"{name}: gradient norms")
for arguments in ["--precision fp16 --tp 2 --dp 2 --zero 1", "--precision bf16 --model mixtral --ep 2", "--precision bf16 --ranks 2", "--precision bf16 --model llama --tp 2", "--dropout 0.1 --tp 2"]:
    _, other = trained("variant", arguments)
    check(other and other[-1]["loss"] < other[0]["loss"], f"{arguments}: the loss falls")

# --- the same bits
_, bits = trained("bits", "--reproducible --ranks 1")
for name, arguments in [("bits_dp4", "--dp 4 --zero 2"), ("bits_pp2", "--dp 2 --pp 2 --schedule zbv --zero 3"), ("bits_pp4", "--pp 4 --schedule gpipe")]:
    _, other = trained(name, f"--reproducible {arguments}")
    check([(r["loss"], r["gradient_norm"]) for r in other] == [(r["loss"], r["gradient_norm"]) for r in bits], f"{name}: not the same bits")
_, bits = trained("bits", "--model mixtral --experts 4 --reproducible --ranks 1")
_, other = trained("bits_experts", "--model mixtral --experts 4 --reproducible --dp 4 --ep 2 --zero 3")
check([(r["loss"], r["gradient_norm"]) for r in other] == [(r["loss"], r["gradient_norm"]) for r in bits], "experts over data ranks: not the same bits")

# --- token files
numbers = [(i * i + 3 * i) % 300 for i in range(6000)]
raw, llama3, wide = scratch / "raw.bin", scratch / "llama3.bin", scratch / "wide.bin"
raw.write_bytes(struct.pack("<6000H", *numbers))
llama3.write_bytes(struct.pack("<256I", 20240801, 7, 6000, *[0] * 253) + struct.pack("<6000I", *numbers))
wide.write_bytes(struct.pack("<6000I", *numbers))
BYTES = SMALL
TOKENS = SMALL.split(" ", 2)[2] + " --vocabulary 300 --prompt 5"
SMALL = f"--data {raw} {TOKENS}"
loss, one = trained("tokens", "--ranks 1")
check(one and abs(one[0]["loss"] - math.log(300)) < 0.3 and one[-1]["loss"] < one[0]["loss"], "tokens: the loss starts at log(300) and falls")
if one:
    found = [int(word) for word in (scratch / "tokens/sample.txt").read_text().split()]
    check(len(found) == 1 + 8 and found[0] == 5 and all(0 <= token < 300 for token in found), f"tokens: sample.txt: {found}")
    check(json.loads((scratch / "tokens/layout.json").read_text())["vocabulary"] == 300, "tokens: the vocabulary in layout.json")
for name, files, arguments in [("tokens_layout", raw, "--dp 2 --tp 2 --pp 2 --zero 1"), ("tokens_llama3", llama3, "--dp 2"), ("tokens_wide", wide, "--dp 2 --token-type uint32"),
                               ("tokens_recognised", wide, "--dp 2")]:
    SMALL = f"--data {files} {TOKENS}"
    other_loss, other = trained(name, arguments)
    check(close([r["loss"] for r in other], [r["loss"] for r in one], 2e-4), f"{name}: losses {[r['loss'] for r in other]} are not those of one rank {[r['loss'] for r in one]}")
    check(other_loss is not None and abs(other_loss - loss) < 2e-3, f"{name}: validation loss {other_loss}, not {loss}")
# A file of uint32 without a header: by its words, or by a vocabulary that no uint16 holds.
LARGE = f"{TOKENS} --steps 1 --sample 0".replace("--vocabulary 300 ", "--vocabulary 70000 ").replace("--steps 6 ", "").replace("--sample 8 ", "")
for files, words, expected in [(wide, TOKENS, "tokens are read as uint32 (every second word of 16 bits is 0)"), (wide, LARGE, "tokens are read as uint32 (the vocabulary is above 65536)"),
                               (raw, TOKENS, "tokens are read as uint16 (it has no header)"), (llama3, TOKENS, "tokens are read as uint32 (its header says so)")]:
    result = run(f"--data {files} {words} --output {scratch}/types")
    check(result.returncode == 0 and expected in result.stdout.splitlines(), f"{files} {expected}: {result.stdout[:600]} {result.stderr}")
(scratch / "odd.bin").write_bytes(struct.pack("<5999H", *numbers[:-1]))
(scratch / "unclear.bin").write_bytes(struct.pack("<6000I", *[70000 + i for i in numbers]))
for files, words, expected in [("odd.bin", LARGE, "its 11998 bytes are no whole tokens of uint32, which vocabulary(70000) needs: give the type of its tokens"),
                               ("raw.bin", LARGE, "of another type than uint32"), ("unclear.bin", TOKENS, "its tokens may be uint16 or uint32, no second word of 16 bits is above 1")]:
    result = run(f"--data {files} {words} --output {scratch}/types")
    check(result.returncode == 2 and expected in result.stderr and result.stderr.count("\n") == 1, f"{files} {expected}: {result.returncode} {result.stderr}")
SMALL = f"--data {raw} {raw} {TOKENS}"
other_loss, other = trained("tokens_two", "--dp 4 --optimizer muon")
check(other and other[-1]["loss"] < other[0]["loss"] and abs(other_loss - loss) < 0.2, f"two token files: {other_loss}")
# Files by weight: the same samples in each layout and after a resume, other ones than with other weights.
low, high = scratch / "low.bin", scratch / "high.bin"
low.write_bytes(struct.pack("<4000H", *[i * i % 7 for i in range(4000)]))
high.write_bytes(struct.pack("<2000H", *[290 - i % 5 for i in range(2000)]))
SMALL = f"--data {low} {high} {TOKENS}"
_, even = trained("weights_even", "--ranks 1 --weights 1 1")
_, one = trained("weights", "--ranks 1 --weights 9 1")
_, other = trained("weights_layout", "--dp 2 --tp 2 --weights 9 1")
check(close([r["loss"] for r in other], [r["loss"] for r in one], 2e-4), f"weights: losses {other} are not those of one rank {one}")
check(one and even and abs(one[-1]["loss"] - even[-1]["loss"]) > 1e-3, f"weights: other weights give other losses: {one} {even}")
saved = f"--optimizer adamw --weights 9 1 --checkpoint {scratch}/weights_checkpoint"
result = run(f"{SMALL} {saved} --ranks 1 --every 4 --output {scratch}/weights_first")
check(result.returncode == 0, f"weights: {result.stderr}")
shutil.rmtree(scratch / "weights_checkpoint/step-00000006")
result = run(f"{SMALL} {saved} --dp 2 --resume --output {scratch}/weights_resumed")
again = [r["loss"] for r in records(scratch / "weights_resumed")]
check(result.returncode == 0 and again and close(again[-2:], [r["loss"] for r in one][4:], 2e-4), f"weights: resumed: {again} {one} {result.stderr}")
result = run(f"{SMALL} {saved} --resume --output {scratch}/weights_other".replace("--weights 9 1", "--weights 8 1"))
check(result.returncode == 2 and "has weights 9,1, and this one has 8,1" in result.stderr, f"weights: resumed with other weights: {result.returncode} {result.stderr}")
for words, expected in [(f"{SMALL} --weights 1", "--weights 1: one weight for each file of --data, which has 2"), (f"{SMALL} --weights 1 0", "--weights 1,0: a weight is a number above 0"),
                        (f"{BYTES} --weights 1", "--weights is of token files: it needs --data FILE.bin... and --vocabulary")]:
    result = run(f"{words} --output {scratch}/weights_refused")
    check(result.returncode == 2 and expected in result.stderr and result.stderr.count("\n") == 1, f"{words}: {result.returncode} {result.stderr}")
SMALL = BYTES
result = run(f"--data {raw} {TOKENS} --vocabulary 200 --output {scratch}/tokens_wrong".replace("--vocabulary 300 ", ""))
check(result.returncode == 2 and "is not in the vocabulary(200)" in result.stderr and result.stderr.count("\n") == 1, f"a token above the vocabulary: {result.returncode} {result.stderr}")
numbers[-1] = 300
(scratch / "last.bin").write_bytes(struct.pack("<6000H", *numbers))
result = run(f"--data {raw} {scratch}/last.bin {TOKENS} --dp 2 --output {scratch}/tokens_last")
check(result.returncode == 2 and "last.bin': token(300) at place 5999 is not in the vocabulary(300)" in result.stderr and result.stderr.count("\n") == 1 and "step" not in result.stdout,
      f"the last token, which is for validation, is refused before the first step: {result.returncode} {result.stdout} {result.stderr}")

# --- conversations, and several validation sets
TOKENIZER = pathlib.Path(os.environ.get("WEFT_SOURCE", ".")).resolve() / "tests/hugging_face/tokenizers/qwen3.json"
if TOKENIZER.exists():
    def conversations(name, numbers):
        lines = [json.dumps({"messages": [{"role": "user", "content": f"{i} plus {i}?"}, {"role": "assistant", "content": f"It is {2 * i}.{' Really.' * (i % 8)}"}]}) for i in numbers]
        (scratch / name).write_text("\n".join(lines))
        return scratch / name

    chat, first, second = conversations("chat.jsonl", range(200)), conversations("first.jsonl", range(200, 230)), conversations("second.jsonl", range(900, 950))
    CHAT = f"{BYTES.split(' ', 2)[2].replace('--sequence 16', '--sequence 128')} --tokenizer {TOKENIZER}"
    SMALL = f"--data {chat} {CHAT}"
    loss, one = trained("chat", f"--ranks 1 --validation {first} {second}")
    check(one and one[-1]["loss"] < one[0]["loss"], f"conversations: the loss falls: {one}")
    last = [r for r in all_records(scratch / "chat") if "validation_loss" in r][-1] if one else {"validation_losses": {}}
    check(list(last["validation_losses"]) == [str(first), str(second)], f"conversations: a loss for each set: {last}")
    both = list(last["validation_losses"].values())
    check(len(both) == 2 and min(both) < last["validation_loss"] < max(both), f"conversations: the mean over all targets lies between the sets' losses: {last}")
    other_loss, other = trained("chat_layout", f"--dp 2 --tp 2 --zero 1 --validation {first} {second}")
    check(close([r["loss"] for r in other], [r["loss"] for r in one], 2e-4), f"conversations: losses {other} are not those of one rank {one}")
    check(other_loss is not None and abs(other_loss - loss) < 2e-3, f"conversations: validation loss {other_loss}, not {loss}")
    result = run(f"{SMALL} --ranks 1 --output {scratch}/chat_ends")
    check(result.returncode == 0 and "validation loss of" not in result.stdout and "validation loss " in result.stdout, f"conversations: the end of the file validates: {result.stdout} {result.stderr}")
    result = run(f"{SMALL} --ranks 1 --validation {first} {second} --output {scratch}/chat_lines")
    check(f"step 6  validation loss of {first} " in result.stdout and f"validation loss of {second} " in result.stdout, f"a line for each set: {result.stdout}")
    # The tokenizer that was used is exported, not another beside it.
    folder = scratch / "tokenizers"
    folder.mkdir()
    (folder / "mine.json").write_bytes(TOKENIZER.read_bytes())
    (folder / "tokenizer.json").write_text("{}")
    result = run(f"--data {chat} {CHAT.rsplit(' ', 1)[0]} {folder}/mine.json --ranks 1 --export {scratch}/exported --output {scratch}/chat_export")
    exported = scratch / "exported/tokenizer.json"
    check(result.returncode == 0 and exported.exists() and exported.read_bytes() == TOKENIZER.read_bytes(), f"the exported tokenizer: {result.returncode} {result.stderr}")
    rows, SMALL = SMALL, SMALL.replace("--sequence 128", "--sequence 256")
    _, given = trained("chat_given", "--ranks 1")
    _, ordered = trained("chat_ordered", "--cp 2 --balance-cp 2")
    check(given and close([r["loss"] for r in ordered], [r["loss"] for r in given], 2e-4), f"--balance-cp: losses {ordered} are not those of one rank {given}")
    result = run(f"{SMALL} --output {scratch}/chat_wrong --balance-cp 3")
    check(result.returncode != 0 and "2 * cp must divide the sequence" in result.stderr, f"--balance-cp of ranks that do not divide the sequence: {result.stderr}")
    SMALL = rows
    short_rows = SMALL.replace("--sequence 128", "--sequence 36")  # a cut conversation keeps a target
    result = run(f"{short_rows} --output {scratch}/chat_long")
    check(result.returncode == 2 and "make sequences longer (--sequence), or cut conversations" in result.stderr, f"a conversation that is too long: {result.stderr}")
    result = run(f"{short_rows} --cut --ranks 1 --output {scratch}/chat_cut")
    check(result.returncode == 0, f"--cut: {result.returncode} {result.stderr}")
    broken = scratch / "broken.jsonl"
    broken.write_text(chat.read_text().splitlines()[0] + '\n{"x": 1}\n')
    for words, expected in [(f"--data {chat} {CHAT.rsplit(' --tokenizer', 1)[0]}", "has conversations by its name: they need --tokenizer FILE"),
                            (f"--data {chat} {text} {CHAT}", "all files of a run are of one kind"),
                            (f"{SMALL} --validation {text}", "all files of a run are of one kind"),
                            (f"{BYTES} --tokenizer {TOKENIZER}", "--tokenizer is of conversations: it needs --data FILE.jsonl"),
                            (f"--data {broken} {CHAT}", "broken.jsonl' line 2: it has no list"),
                            (f"{SMALL} --learned nobody", "no message has a role that is learned (nobody)"),
                            (f"{SMALL} --vocabulary 10", "--vocabulary 10 is below the "),
                            (f"{SMALL} --validation {first} {first}", "twice"),
                            (f"{SMALL} --validation {first} --validation-fraction 0.1", "--validation-fraction beside --validation")]:
        result = run(f"{words} --output {scratch}/chat_refused")
        check(result.returncode == 2 and expected in result.stderr and result.stderr.count("\n") == 1, f"{words}: {result.returncode} {result.stderr}")
(scratch / "set.txt").write_bytes(text.read_bytes()[:4000])
SMALL = f"{BYTES} --validation {scratch}/set.txt"
loss, _ = trained("text_set", "--ranks 1")
check(loss is not None and [list(r["validation_losses"]) for r in all_records(scratch / "text_set") if "validation_loss" in r] == [[f"{scratch}/set.txt"]] * 2, "a text that validates")
SMALL = BYTES

# --- JSON
result = run(f"{SMALL} --json --output {scratch}/json")
events = [json.loads(line) for line in result.stdout.splitlines()]
kinds = [event["event"] for event in events]
check(kinds.count("step") == 6 and kinds[0] == "layout" and kinds[-1] == "end" and "sample" in kinds and kinds.count("validation") == 2, f"events: {kinds}")

# --- bad input: one line, exit code 2, nothing written
short = scratch / "short.txt"
short.write_text("too short")
empty = scratch / "empty.txt"
empty.write_text("")
blocked = scratch / "file"
blocked.write_text("a file where a folder should be")
for arguments, part in [
    ("--frobnicate", "--frobnicate"),
    ("stray", "stray"),
    ("--steps many", "--steps: 'many' is not a whole number"),
    ("--steps 0", "--steps: 0 is too small, the least is 1"),
    ("--tp -2", "--tp: -2 is too small"),
    ("--learning-rate nan", "'nan' is not a finite number"),
    ("--dropout 1", "--dropout: 1 must be at least 0 and below 1"),
    ("--schedule zigzag", "'zigzag' is not one of gpipe, 1f1b, interleaved"),
    ("--ranks 4 --zero 3 --replicate 3", "replicate(3)"),
    ("--ranks 2 --replicate 2", "--replicate 2 copies shards"),
    (f"--ranks 2 --offload {scratch}/no/such/folder/state", "offload"),
    ("--zero 4", "--zero: 4 is too large, the most is 3"),
    ("--precision fp16 --model llama", "--precision fp16 is compiled for --model gpt"),
    ("--vpp 2 --pp 2", "schedule 1f1b: chunks(2) != 1"),
    ("--pp 2 --schedule interleaved --vpp 3", "layers(4) < pp(2) * vpp(3): a stage holds at least one layer"),
    ("--pp 2 --pp-layers 1,2", "layers of the stages (1, 2): their sum is 3, but the model has 4 layers: give numbers that sum to 4"),
    ("--pp 2 --pp-layers 4", "layers of the stages (4): 1 numbers, but the pipeline has 2 stages"),
    ("--pp 4 --pp-layers 2,0,1,1", "stage 1 holds no layer"),
    ("--pp 2 --pp-layers 1,x", "--pp-layers '1,x': whole numbers with commas between them, or auto"),
    ("--pp 2 --pp-layers 1,,3", "--pp-layers '1,,3'"),
    ("--pp 2 --pp-layers 1,3,", "--pp-layers '1,3,'"),
    ("--pp 2 --pp-layers -1,5", "--pp-layers '-1,5'"),
    ("--pp 2 --pp-layers 99999999999999999999,1", "--pp-layers '99999999999999999999,1'"),
    ("--pp 2 --pp-layers=", "--pp-layers: 1 required NUMBERS missing"),
    ("--pp 2 --schedule dualpipev --micro-batch 4", "the nearest number of micro-batches that works is 4"),
    ("--sequence-parallel", "sequence parallelism with tp(1)"),
    ("--cp 3", "sequence(16) % (2 * cp(3)) != 0"),
    ("--cp 8 --context ulysses", "heads(4) / tp(1) = 4 % cp(8) != 0"),
    ("--context star", "star"),
    ("--recompute some", "some"),
    ("--ep 2", "--ep is of a mixture of experts"),
    ("--model mixtral --top-k 9", "top-k(9) > experts(8)"),
    ("--model mixtral --ep 3 --dp 3 --global-batch 9", "experts(8) % ep(3) != 0"),
    ("--model mixtral --ep 4 --ranks 2", "ep(4)"),
    ("--model mixtral --experts 4 --cp 2 --reproducible", "reproducible: dp(1) % edp(2) != 0"),
    ("--layers 1000000000", "out of memory: layers(1000000000), width(32): 1.27e+13 parameters take with gradients and optimizer state at least"),
    ("--global-batch 1073741824", "out of memory: global batch(1073741824), micro-batch(536870912), sequence(16): a step takes at least"),
    ("--ranks 1 --micro-batch 1048576 --global-batch 1048576 --sequence 1000 --recompute full", "out of memory: global batch(1048576)"),
    ("--layers 2 --layers=2", "--layers is given 2 times, it takes one value"),
    ("--model llama --width 36", "width(36) / heads(4) = 9: rotary positions need an even number"),
    (f"--pp 2 --vpp 2 --schedule {own}", "the file gives the number of stages of a rank"),
    ("--sequence-parallel --tp 2 --sequence 17", "sequence(17) % (tp(2) * cp(1)) != 0: sequence parallelism gives as many tokens"),
    (f"--schedule {scratch}/missing.csv --pp 2", "cannot read"),
    ("--ranks 3 --tp 2", "world(3)"),
    ("--tp 3", "heads(4) % tp(3) != 0"),
    ("--pp 8", "layers(4) < pp(8)"),
    ("--heads 5", "width(32) % heads(5) != 0"),
    ("--kv-heads 3", "heads(4) % kv heads(3) != 0"),
    ("--global-batch 7 --ranks 2", "global batch(7) % dp(2) != 0"),
    ("--micro-batch 3 --ranks 2", "micro-batch(3)"),
    ("--min-learning-rate 1", "--min-learning-rate"),
    (f"--data {scratch}/missing.txt", "there is no such file"),
    (f"--data {empty}", "it is empty (0 bytes)"),
    (f"--data {short}", "too short: the training part has"),
    (f"--data {scratch}", "it is a folder"),
    (f"--data {raw}", "is a token file by its name, which needs --vocabulary N"),
    (f"--data {raw} --vocabulary 0", "--vocabulary: 0 is too small"),
    (f"--data {raw} --vocabulary 300 --prompt 300", "--prompt: '300' is no token: beside token files a prompt is whole numbers below vocabulary(300)"),
    (f"--data {raw} --vocabulary 300 --prompt the", "'the' is no token"),
    (f"--data {raw} --vocabulary 300 --sequence 600", "600"),
    (f"--data {raw} --vocabulary 300 --global-batch 1024", "loader: global batch(1024) > samples(337)"),
    (f"--data {llama3} --vocabulary 300 --token-type uint16", "its header says tokens of uint32, uint16 was asked for"),
    (f"--data {scratch}/missing.bin --vocabulary 300", "there is no such file"),
    ("--token-type uint16", "--token-type is of token files: it needs --vocabulary"),
    (f"--output {blocked}/below", "--output: cannot make the folder"),
]:
    output = "" if "--output" in arguments else f"--output {scratch}/nothing"
    base = SMALL if "--data" not in arguments else SMALL.split(" ", 2)[2]
    kept = base.split()
    for option in [a for a in arguments.split() if a.startswith("--")]:  # the last word is the test's own
        if option in kept:
            at = kept.index(option)
            del kept[at : at + 2]
    result = run(f"{' '.join(kept)} {output} {arguments}", timeout=30)
    check(result.returncode == 2, f"{arguments}: exit code {result.returncode}")
    check(result.stderr.count("\n") == 1 and result.stderr.startswith("weft: ") and part in result.stderr, f"{arguments}: {result.stderr!r} lacks {part!r}")
    check(result.stdout == "" and not (scratch / "nothing").exists(), f"{arguments}: something was written: {result.stdout!r}")

for option in ["--offload", "--output", "--prompt"]:
    result = subprocess.run([TRAIN, *SMALL.split(), option, ""], capture_output=True, text=True, timeout=30, cwd=scratch)
    check(result.returncode == 2 and result.stderr.startswith(f"weft: train_gpt: {option} is empty") and result.stdout == "", f"{option} '': {result}")

# --- numbers that are not finite
result = run(f"{SMALL} --steps 40 --learning-rate 1e30 --warmup 0 --clip 0 --tp 2 --output {scratch}/diverged".replace("--steps 6 ", "").replace("--learning-rate 3e-3 ", ""))
check(result.returncode == 3, f"diverged: exit code {result.returncode}: {result.stderr}")
check("every rank skips it, 10 in a row" in result.stdout + result.stderr and "training diverged" in result.stderr, f"diverged: {result.stderr!r}")
traced = run(f"{SMALL} --learning-rate 1e30 --warmup 0 --clip 0 --dp 2 --trace-nonfinite".replace("--learning-rate 3e-3 ", ""))
check(re.search(r"every rank skips it, 1 in a row; first on rank 0 in the gradient of \S+, micro-batch 0 \(and of \d+ more\), on rank 1 in the gradient of ", traced.stdout + traced.stderr),
      f"--trace-nonfinite: {traced.stdout!r} {traced.stderr!r}")
short = run(f"{SMALL} --learning-rate 1e30 --warmup 0 --clip 0 --tp 2".replace("--learning-rate 3e-3 ", ""))  # ends before ten steps are skipped
check(short.returncode == 3 and "training diverged: the last step has the loss " in short.stderr, f"diverged at the end: {short.returncode}: {short.stderr!r}")
if (scratch / "diverged/metrics.jsonl").exists():
    check(sum("skipped" in r for r in records(scratch / "diverged")) == 10, "ten skipped steps")

# --- Ctrl-C
for ranks in (1, 4):
    folder = scratch / f"interrupted{ranks}"
    endless = SMALL.replace("--steps 6", "--steps 1000000").replace("--validate-every 3", "--validate-every 0")
    process = subprocess.Popen([TRAIN, *endless.split(), "--ranks", str(ranks), "--output", str(folder)],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.time() + 60
    while time.time() < deadline and not ((folder / "metrics.jsonl").exists() and (folder / "metrics.jsonl").stat().st_size > 1000):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    started = time.time()
    try:
        _, errors = process.communicate(timeout=30)
    except subprocess.TimeoutExpired:
        process.kill()
        errors = "it did not end"
    check(process.returncode == 130 and time.time() - started < 5 and "interrupted after step" in errors, f"Ctrl-C with {ranks} ranks: {process.returncode} {errors}")
    check((folder / "loss.svg").exists(), "Ctrl-C: the curve is written")

# A run that is killed goes on from its checkpoint with the same numbers, its records and its curve; another layout goes on, too.


def told(folder):
    return [{name: value for name, value in record.items() if name not in {"ms", "tokens_per_s"} | MEASURED} for record in all_records(folder)]


CHECKPOINTS = SMALL.replace("--steps 6", "--steps 8").replace("--sample 8", "--sample 0") + " --every 2 --keep 2"
for layout in ("--dp 2 --zero 3", "--tp 2 --pp 2"):
    name = layout.replace("-", "").replace(" ", "")
    whole, cut, kept = (scratch / f"{part}-{name}" for part in ("whole", "cut", "kept"))
    result = run(f"{CHECKPOINTS.replace('--every 2 --keep 2', '')} {layout} --output {whole}")
    check(result.returncode == 0, f"{layout}: {result.stderr}")
    process = subprocess.Popen([TRAIN, *CHECKPOINTS.split(), *layout.split(), "--output", str(cut), "--checkpoint", str(kept)],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.time() + 60
    while time.time() < deadline and not (kept / "step-00000004").exists() and process.poll() is None:
        time.sleep(0.002)
    process.kill()
    process.wait()
    result = run(f"{CHECKPOINTS} {layout} --output {cut} --checkpoint {kept} --resume")
    check(result.returncode == 0, f"{layout} resumed: {result.stderr}")
    check(told(whole) == told(cut), f"{layout}: a resumed run has other records: {told(whole)} {told(cut)}")
    check(sorted(path.name for path in kept.iterdir()) == ["latest", "step-00000006", "step-00000008"], f"{layout}: {list(kept.iterdir())}")
    for elsewhere in ("--dp 2", "--pp 2 --pp-layers 3,1"):
        other = run(f"{CHECKPOINTS} {elsewhere} --output {cut} --checkpoint {kept} --resume --quiet")
        check(close([float(result.stdout.split()[-1])], [float(other.stdout.split()[-1])], 1e-5),
              f"{layout}: {elsewhere} loads another model: {result.stdout} {other.stdout}")
# A checkpoint identifies the data of its run: another text, another order of files, another split, other token files.
other, longer, moved = scratch / "other.txt", scratch / "longer.txt", scratch / "moved.txt"
other.write_bytes(text.read_bytes().replace(b"3 times 3 is 9", b"3 times 3 is 8"))
longer.write_bytes(text.read_bytes() + b"more\n")
moved.write_bytes(text.read_bytes())
shuffled = scratch / "shuffled.bin"
shuffled.write_bytes(struct.pack("<6000H", *numbers[1000:], *numbers[:1000]))
remedy = ": its data would not go on where they ended; --allow-other-data takes them"
for begun, cases in [
    (f"--data {text}", [(f"--data {other}", "is of a run on "), (f"--data {longer}", "longer.txt ("), (f"--data {text} {text}", " and 1 more file ("),
                        (f"--data {text} --validation-fraction 0.2", "is of a run whose data has validation-fraction 0.1, and this one has 0.2")]),
    (f"--data {text} {longer}", [(f"--data {longer} {text}", "is of a run on ")]),
    (f"--data {raw} --vocabulary 301 --prompt 5", [(f"--data {shuffled} --vocabulary 301 --prompt 5", "shuffled.bin (12000 bytes, digest "),
                                                   (f"--data {raw} --vocabulary 301 --prompt 5 --validation-fraction 0.3", "has validation-fraction 0.1, and this one has 0.3")]),
]:
    place = scratch / "data_of_a_run"
    words = f"{BYTES.split(' ', 2)[2]} --sample 0 --checkpoint {place} --output {scratch}/data_output".replace("--steps 6 ", "").replace("--sample 8 ", "")
    result = run(f"{begun} {words} --steps 2")
    check(result.returncode == 0, f"{begun}: {result.stderr}")
    for given, expected in cases:
        result = run(f"{given} {words} --steps 4 --resume --dp 2")
        check(result.returncode == 2 and expected in result.stderr and remedy in result.stderr and result.stderr.count("\n") == 1, f"{begun}, then {given}: {result.returncode} {result.stderr}")
    result = run(f"{begun.replace(str(text), str(moved), 1)} {words} --steps 3 --resume")
    check(result.returncode == 0 and "goes on after step 2" in result.stdout, f"{begun}: a file that was moved is the same data: {result.stderr}")
    result = run(f"{cases[0][0]} {words} --steps 4 --resume --allow-other-data")
    check(result.returncode == 0 and "goes on after step 3" in result.stdout, f"{begun}: --allow-other-data: {result.stderr}")
    result = run(f"{cases[0][0]} {words} --steps 5 --resume")
    check(result.returncode == 0, f"{begun}: the data since then: {result.stderr}")
    shutil.rmtree(place)
# The best checkpoints stay beside the newest: rates that grow make the loss rise again.
place = scratch / "best"
result = run(f"{BYTES} --steps 8 --sample 0 --every 1 --keep 1 --keep-best 2 --learning-rate 1 --min-learning-rate 1 --warmup 6 --validate-every 0 --checkpoint {place} --output {scratch}/best_output"
             .replace("--steps 6 ", "").replace("--sample 8 ", "").replace("--validate-every 3 ", "").replace("--learning-rate 3e-3 ", ""))
validations = {record["step"] + 1: record["validation_loss"] for record in all_records(scratch / "best_output") if "validation_loss" in record}
check(result.returncode == 0 and sorted(validations) == list(range(1, 9)), f"--keep-best validates each checkpoint: {result.stderr} {validations}")
stays = {8, *sorted(validations, key=validations.get)[:2]}
check(sorted(path.name for path in place.iterdir()) == ["latest", *(f"step-{step:08}" for step in sorted(stays))] and len(stays) == 3, f"--keep-best 2: {validations} {list(place.iterdir())}")
os.mkfifo(scratch / "pipe")
for options, message in [("--checkpoint pipe", "--checkpoint pipe: is there, and is no folder"),
                         ("--output pipe --checkpoint new --export made", "--output pipe: is there, and is no folder"),
                         ("--every 2", "--every is of checkpoints: it needs --checkpoint FOLDER"),
                         ("--keep-best 2", "--keep-best is of checkpoints: it needs --checkpoint FOLDER"),
                         (f"--checkpoint {kept} --keep 0 --keep-best 2", "--keep-best 2 beside --keep 0, which keeps all checkpoints"),
                         (f"--checkpoint {kept} --validation-fraction 0 --keep-best 2", "--keep-best 2 beside --validation-fraction 0: there is no validation loss"),
                         (f"--checkpoint {kept} --allow-other-data", "--allow-other-data is of a run that goes on: it needs --resume"),
                         (f"--checkpoint {kept} --resume --seed 5", "is of a run with --seed 1, and this one has 5")]:
    result = run(f"{SMALL} {options}")
    check(result.returncode == 2 and message in result.stderr, f"{options}: {result.returncode} {result.stderr}")
check(not (scratch / "new").exists() and not (scratch / "made").exists(), "folders that were made before --output was refused")

shutil.rmtree(scratch)
finish()
