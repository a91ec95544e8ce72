# SPDX-License-Identifier: Apache-2.0
# The plan tool from its command line: JSON, tables, and one line with exit code 2 for impossible options.

import json
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

PLAN = os.path.join(os.environ["WEFT_EXAMPLES"], "plan")
failures = 0


def run(arguments):
    return subprocess.run([PLAN, *arguments.split()], capture_output=True, text=True, timeout=60)


def check(condition, text):
    global failures
    if not condition:
        failures += 1
        print("FAILED:", text)


def as_json(arguments):
    result = run(arguments + " --json")
    check(result.returncode == 0 and result.stderr == "", f"{arguments}: {result.returncode} {result.stderr}")
    return json.loads(result.stdout)


def refused(arguments, *parts):
    result = run(arguments)
    text = result.stderr
    check(result.returncode == 2, f"{arguments}: exit code {result.returncode}")
    check(result.stdout == "" and text.count("\n") == 1 and text.startswith("weft: "), f"{arguments}: not one line: {text!r}")
    for part in parts:
        check(part in text, f"{arguments}: {part!r} not in {text!r}")


groups = as_json("groups --world 16 --tp 2 --pp 4")
check(set(groups) == {"dp", "tp", "pp", "cp", "ep", "etp", "edp", "dp-cp", "tp-pp"}, "keys of groups")
check(groups["tp"] == [[r, r + 1] for r in range(0, 16, 2)], "tp")
check(groups["dp"] == [[0, 2], [1, 3], [4, 6], [5, 7], [8, 10], [9, 11], [12, 14], [13, 15]], "dp")
check(groups["pp"] == [[0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15]], "pp")
check(groups["tp-pp"] == [[0, 1, 4, 5, 8, 9, 12, 13], [2, 3, 6, 7, 10, 11, 14, 15]], "tp-pp")
check(groups["dp-cp"] == groups["dp"] and groups["cp"] == [[r] for r in range(16)], "dp-cp, cp")
groups = as_json("groups --world 16 --tp 2 --pp 4 --order tp-cp-ep-pp-dp")
check(groups["pp"] == [[0, 2, 4, 6], [1, 3, 5, 7], [8, 10, 12, 14], [9, 11, 13, 15]], "pp before dp")
groups = as_json("groups --world 16 --tp 2 --cp 2 --pp 2 --ep 4 --etp 1")
check(groups["ep"][0] == [0, 1, 2, 3] and groups["edp"][0] == [0, 4] and groups["etp"][3] == [3], "expert groups")
check(groups["dp-cp"][0] == [0, 2, 4, 6], "dp-cp varies cp first")
table = run("groups --world 16 --tp 2 --pp 4")
check(table.returncode == 0 and "tp(2) * dp(2) * pp(4)" in table.stdout and "[0 4 8 12]" in table.stdout, "table of groups")

layout = "validate --nodes 2 --ranks-per-node 8 --tp 2 --etp 1 --cp 2 --ep 4 --pp 2 --vpp 3 --global-batch 32 --micro-batch 2 --layers 12 --heads 8 --kv-heads 2"
check(as_json(layout + " --sequence-parallel --overlap-p2p") == {"dp": 2, "edp": 2, "micro_batches": 8}, "validate")
table = run(layout)
check(table.returncode == 0 and "micro-batches" in table.stdout, "table of validate")

ONE_F_ONE_B = [
    "0F0 0F1 0F2 0F3 0B0 0F4 0B1 0F5 0B2 0F6 0B3 0F7 0B4 0B5 0B6 0B7",
    "1F0 1F1 1F2 1B0 1F3 1B1 1F4 1B2 1F5 1B3 1F6 1B4 1F7 1B5 1B6 1B7",
    "2F0 2F1 2B0 2F2 2B1 2F3 2B2 2F4 2B3 2F5 2B4 2F6 2B5 2F7 2B6 2B7",
    "3F0 3B0 3F1 3B1 3F2 3B2 3F3 3B3 3F4 3B4 3F5 3B5 3F6 3B6 3F7 3B7",
]
schedule = as_json("schedule --kind 1f1b --stages 4 --micro-batches 8")
check(schedule["makespan"] == 33 and schedule["bubble"] == 9, "1f1b: makespan and bubble")
check(schedule["peak_activations"] == [4, 3, 2, 1], "1f1b: peaks")
check(schedule["actions"] == [line.split() for line in ONE_F_ONE_B], "1f1b: actions")
for kind, bubble, peaks in [
    ("gpipe", 9, [8, 8, 8, 8]),
    ("interleaved", 9, [11, 9, 7, 5]),
    ("interleaved-zb", 3, [8, 8, 8, 8]),
    ("zb-h1", 3, [4, 4, 4, 4]),
    ("zbv", 3, [8, 8, 8, 8]),
    ("dualpipev", 6, [9, 9, 9, 9]),
]:
    schedule = as_json(f"schedule --kind {kind} --stages 4 --micro-batches 8")
    check(schedule["bubble"] == bubble and schedule["peak_activations"] == peaks, f"{kind}: {schedule['bubble']} {schedule['peak_activations']}")
    work = 8 * 3 * (1 if kind in ("gpipe", "zb-h1") else 2)
    check(schedule["makespan"] == work + bubble, f"{kind}: makespan {schedule['makespan']}")
schedule = as_json("schedule --kind 1f1b --stages 2 --micro-batches 2 --forward 1.5 --backward-input 2 --backward-weight 0.25")
check(schedule["bubble"] == 3.75 and schedule["makespan"] == 11.25, "costs that are no whole numbers")
check(len(as_json("schedule --kind interleaved --stages 2 --micro-batches 4 --chunks 3")["actions"][0]) == 24, "chunks")
with tempfile.TemporaryDirectory() as folder:
    svg, trace, csv = (os.path.join(folder, name) for name in ("s.svg", "s.json", "s.csv"))
    check(run(f"schedule --kind dualpipev --stages 2 --micro-batches 4 --svg {svg} --trace {trace}").returncode == 0, "pictures")
    check(xml.etree.ElementTree.parse(svg).getroot().tag.endswith("svg"), "SVG")
    events = json.load(open(trace))["traceEvents"]
    own = as_json("schedule --kind dualpipev --stages 2 --micro-batches 4")
    actions = sum(len(cell.split(";")) for line in own["actions"] for cell in line)
    check(sum(event["ph"] == "X" for event in events) == actions, "one event an action")
    open(csv, "w").write("\n".join(",".join(line) for line in own["actions"]))
    check(as_json(f"schedule --csv {csv}") == own, "a schedule from a file is the one it was written from")
    open(csv, "w").write("0F0,0B0\n1B0,1F0\n")
    refused(f"schedule --csv {csv}", "is out of order")
    open(csv, "w").write("0F0,zzz\n")
    refused(f"schedule --csv {csv}", "line 1", "'zzz' is no action")
    open(csv, "w").write("")
    refused(f"schedule --csv {csv}", "is not complete")
table = run("schedule --kind zbv --stages 2 --micro-batches 4")
check(table.returncode == 0 and "makespan 25, bubble 1" in table.stdout, "table of a schedule")

for stage, total in enumerate([120e9, 31.4e9, 16.6e9, 1.88e9]):
    memory = as_json(f"memory --parameters 7.5e9 --dp 64 --zero {stage}")
    check(list(memory) == ["parameters", "gradients", "optimizer", "activations", "total"], "keys of memory")
    check(abs(memory["total"] - total) < 0.005 * total, f"ZeRO stage {stage}: {memory['total']}")
    check(sum(memory.values()) == 2 * memory["total"], "kinds add up")
check(as_json("memory --parameters 1e9 --dp 4 --zero 3 --gradient-bytes 4")["total"] == 4500000000, "gradients in float")
check(as_json("memory --parameters 1e9 --world 4 --zero 2 --precision fp32")["total"] == 7000000000, "fp32")
memory = as_json("memory --model llama --layers 32 --width 4096 --heads 32 --intermediate 11008 --sequence 4096 --vocabulary 32000 --precision bf16 --zero 3 --dp 8")
check(abs(memory["parameters"] * 8 / 4 - 6738415616) < 1e6, "the parameters of Llama 7B, as master copies")
memory = as_json("memory --model llama --layers 28 --width 1024 --heads 16 --kv-heads 8 --head-width 128 --query-key-norm --intermediate 3072 --sequence 512 --vocabulary 151936 --tied")
check(0 <= memory["parameters"] - 4 * 596049920 < 1e5, "the parameters of Qwen3 0.6B")
memory = as_json("memory --model llama --layers 24 --width 896 --heads 14 --kv-heads 2 --attention-bias qkv --intermediate 4864 --sequence 512 --vocabulary 151936 --tied")
check(0 <= memory["parameters"] - 4 * 494032768 < 1e5, "the parameters of Qwen2 0.5B")
refused("memory --model gpt --head-width 8", "--head-width, --attention-bias and --query-key-norm are llama's and mixtral's")
refused("memory --model llama --attention-bias some", "unknown attention bias 'some'; it can be none, qkv or all")
memory = as_json("memory --model gpt --layers 8 --heads 8 --world 16 --tp 2 --pp 4 --zero 1 --micro-batch 2 --global-batch 32 --sequence-parallel")
check(len(memory["stages"]) == 4 and memory["total"] == max(stage["total"] for stage in memory["stages"]), "stages of memory")
activations = [stage["activations"] for stage in memory["stages"][:3]]
check(activations == sorted(activations, reverse=True), "1f1b: the first stages keep more")
full = as_json("memory --model gpt --micro-batch 8 --recompute full")
check(full["activations"] < 0.3 * as_json("memory --model gpt --micro-batch 8")["activations"], "recomputation")
table = run("memory --model gpt --pp 2 --vpp 3 --global-batch 4 --layers 6")
check(table.returncode == 0 and "pp rank 1, stages 1 3 5" in table.stdout, "table of memory")
memory = as_json("memory --model mixtral --layers 32 --width 4096 --heads 32 --kv-heads 8 --intermediate 14336 --sequence 4096 --vocabulary 32000 --precision bf16 --zero 3 --dp 8 --ep 8")
dense = 32000 * 4096 * 2 + 32 * (2 * 4096 + 2 * 4096 * 4096 + 2 * 4096 * 1024 + 8 * 4096) + 4096
check(abs(memory["parameters"] / 4 - dense / 8 - 32 * 3 * 4096 * 14336) < 1e5, "the parameters of Mixtral 8x7B, an expert and an eighth of the rest a rank")
check(as_json("memory --model llama --sequence 4096 --cp 4")["activations"] < 0.3 * as_json("memory --model llama --sequence 4096")["activations"], "cp cuts activations")
check(as_json("memory --model gpt --dp 8 --zero 3 --replicate 2")["optimizer"] > 1.9 * as_json("memory --model gpt --dp 8 --zero 3")["optimizer"], "hybrid sharding")
memory = as_json("memory --model gpt --dp 8 --zero 3 --offload host")
check(memory["optimizer"] == memory["parameters"] == 0 < memory["gradients"], "offload")
memory = as_json("memory --model gpt --dp 4 --zero 2 --elastic")
check(memory["elastic_copies"] > 0 and abs(memory["elastic_copies"] - 3 * memory["parameters"]) < 0.01 * memory["elastic_copies"],
      "copies of an elastic run: two steps of two parts of four, of values and two moments")
check("elastic: the copies of two steps take" in run("memory --model gpt --dp 4 --elastic").stdout, "the line about copies")
refused("memory --model gpt --precision fp64", "no composition in fp64")
refused("memory --model llama --precision fp16", "gpt without --sequence-parallel")
check(as_json("memory --model gpt --precision bf16 --dp 2 --zero 1 --float-gradients")["gradients"] == 2 * as_json("memory --model gpt --precision bf16 --dp 2 --zero 1")["gradients"], "gradients in float")
check(as_json("memory --model gpt --dp 2 --global-batch 6 --reproducible")["total"] > as_json("memory --model gpt --dp 2 --global-batch 6")["total"], "reproducible")
memory = as_json("memory --model gpt --layers 32 --pp 32 --global-batch 100")  # two seconds; run() waits a minute
kept = [stage["activations"] for stage in memory["stages"]]
check(len(kept) == 32 and len({kept[rank] - kept[rank + 1] for rank in range(1, 29)}) == 1, "under 1F1B a rank keeps one micro-batch more than the next")
check(all(stage["least_total"] <= stage["total"] for stage in memory["stages"]), "both peaks")
memory = as_json("memory --model llama --layers 8 --heads 8 --world 16 --tp 2 --pp 4 --ranks-per-node 4")
check(memory["nodes"]["tp"] == 1 and memory["nodes"]["pp"] == 4 and [stage["rank"] for stage in memory["stages"]] == [0, 4, 8, 12], "nodes, and the ranks of the stages")
# The trainer's rehearsal gives the same.
TRAIN = os.path.join(os.environ["WEFT_EXAMPLES"], "04_train_gpt")
with tempfile.TemporaryDirectory() as folder:
    notes = os.path.join(folder, "notes.json")
    layout = "--model llama --layers 8 --width 64 --heads 8 --sequence 128 --tp 2 --pp 4 --zero 1 --micro-batch 1 --global-batch 8"
    result = subprocess.run([TRAIN, *layout.split(), "--optimizer", "adamw", "--rehearse", "16", "--ranks-per-node", "4", "--output", folder], capture_output=True, text=True, timeout=60, env={**os.environ, "WEFT_REHEARSE_JSON": notes})
    check(result.returncode == 0 and result.stdout.startswith("rehearsal of the ranks that differ, of 16\n") and "tp 2 (inside of a node)" in result.stdout, f"train_gpt --rehearse: {result}")
    there, here = json.load(open(notes)), as_json(f"memory {layout} --world 16 --vocabulary 256")["stages"]
    check(len(there) == 4 and [rank["peak_bytes"] for rank in there] == [stage["total"] for stage in here], "plan memory and train_gpt --rehearse")
    check([rank["least_peak_bytes"] for rank in there] == [stage["least_total"] for stage in here], "and the least")
    check(os.listdir(folder) == ["notes.json"], "a rehearsal writes no report of a run")
    # Its time is that of plan estimate.
    result = subprocess.run([TRAIN, *layout.split(), "--optimizer", "adamw", "--rehearse", "16", "--machine", "h100", "--output", folder], capture_output=True, text=True, timeout=60, env={**os.environ, "WEFT_REHEARSE_JSON": notes})
    check(result.returncode == 0 and "estimate of a step of 16 ranks on h100\n" in result.stdout, f"train_gpt --machine: {result}")
    timed, estimated = json.load(open(notes)), as_json(f"estimate {layout} --dp 2 --precision fp32 --vocabulary 256 --machine h100")
    check(len(timed["stages"]) == 4 and abs(timed["estimate"]["seconds"] / estimated["seconds"] - 1) < 1e-12, f"plan estimate and train_gpt --machine: {timed['estimate']}, {estimated}")
    check("norm" in estimated["kernels"][0] and len(estimated["kernels"]) == 4, "kernels by kind")
    result = subprocess.run([TRAIN, *layout.split(), "--machine", "h100"], capture_output=True, text=True, timeout=60)
    check(result.returncode == 2 and "--machine without --rehearse" in result.stderr, f"train_gpt --machine alone: {result}")
    # A device that is too small: the stage, its bytes, and changes that are enough, which they are.
    needed = here[0]["total"]
    result = run(f"memory {layout} --world 16 --memory {needed - 1}")
    check(result.returncode == 1 and result.stdout == "" and result.stderr.count("\n") == 1, f"a device that is too small: {result}")
    check("out of memory: stage 0 of the pipeline (rank 0) needs " in result.stderr and "it fits with " in result.stderr, result.stderr)
    check("--recompute full" in result.stderr and run(f"memory {layout} --world 16 --memory {needed - 1} --recompute full").returncode == 0, "a change that is enough")
    result = run(f"memory {layout} --world 16 --memory {needed // 3}")
    check(result.returncode == 1 and "it fits with" in result.stderr, f"changes that are enough together: {result.stderr}")
    check(run(f"memory {layout} --world 16 --memory {needed}").returncode == 0, "a device that is large enough")
# Sequences of 131,072 tokens of a Llama of 8B on eight devices of 80 GB (docs/planning.md), and logits in parts.
LONG = "--model llama --layers 32 --width 4096 --heads 32 --kv-heads 8 --intermediate 14336 --vocabulary 128256 --sequence 131072 --precision bf16 --world 8 --cp 2 --tp 4 --sequence-parallel --zero 3"
result = run(f"memory {LONG} --memory 80GB")
check(result.returncode == 1 and "needs 137.1 GB" in result.stderr and "--recompute full (42.7 GB)" in result.stderr, f"128k tokens: {result}")
fits = as_json(f"memory {LONG} --recompute full --loss-chunks 32 --memory 80GB")
check(fits["parameters"] == 8031059968 and 40e9 < fits["total"] < 43e9, f"128k tokens fit: {fits}")
LOGITS = "--model gpt --layers 1 --width 64 --heads 4 --vocabulary 50000 --sequence 4096 --world 1"
on_host = as_json(f"memory {LONG} --activations host --loss-chunks 32")["total"]
kept = as_json(f"memory {LONG} --loss-chunks 32")["total"]
check(on_host < 0.6 * kept, f"activations on the host: {on_host} of {kept}")
refused("memory --model gpt --activations disk", "plan: --activations 'disk': it can be device or host")
refused("choose --world 8 --dx 2", "plan: --dx cuts fields, and plan lays out language models; a program on fields lists its layouts itself, with WEFT_REHEARSE_LAYOUTS=10 (docs/planning.md)")
whole, parts = as_json(f"memory {LOGITS}")["total"], as_json(f"memory {LOGITS} --loss-chunks 4")["total"]
check(parts < 0.6 * whole, f"logits in parts: {parts} of {whole}")
result = run(f"memory {LOGITS} --memory {int(0.9 * whole)}")
check(result.returncode == 1 and "--loss-chunks 2 (" in result.stderr, f"advice: {result}")
refused("memory --model gpt --loss-chunks 0", "loss-chunks(0)")
refused("memory --model gpt --memory much", "expected a size such as 80GB")
refused("memory --model gpt --ranks-per-node 0", "ranks-per-node(0)")
refused("memory --model gpt --dp 8 --zero 3 --secondary 3", "dp / replicate(8) % secondary(3) != 0")
refused("memory --model gpt --dp 8 --zero 2 --quantised-gather", "zero(2) with --quantised-gather or --secondary")
refused("memory --model gpt --dp 8 --zero 3 --quantised-reduce 3", "dp / replicate(8) % quantised-reduce(3) != 0")
refused("memory --model gpt --dp 8 --quantised-reduce 2", "--quantised-reduce with zero(0)")
refused("memory --model gpt --dp 8 --zero 3 --replicate 3", "dp(8) % replicate(3) != 0")
refused("memory --model gpt --dp 8 --replicate 2", "replicate(2) with zero(0)")
refused("memory --model gpt --ep 2", "has none")
refused("memory --model mixtral --experts 6 --world 4 --ep 4", "experts(6) % ep(4) != 0")
refused("memory --model mixtral --experts 2 --top-k 3", "top-k(3) > experts(2)")
refused("memory --model gpt --sequence 12 --cp 4", "sequence(12) % (2 * cp(4)) != 0")
refused("memory --model gpt --heads 6 --cp 4 --context ulysses", "heads / tp(6) % cp(4) != 0")
refused("memory --model gpt --context star", "ring or ulysses")
result = subprocess.run([PLAN, "memory", "--model", "gpt", "--offload", ""], capture_output=True, text=True)
check(result.returncode == 2 and "--offload is empty" in result.stderr, f"no name to offload to: {result}")
refused("memory --model gpt --model llama", "--model is given 2 times, it takes one value")
refused("groups --world 8 --world 4", "--world is given 2 times")
refused("memory", "--parameters N, or --model")
refused("memory --parameters x", "--parameters")
refused("memory --parameters 0", "at least 1")
refused("memory --parameters 1e9 --zero 4", "zero(4)")
refused("memory --parameters 1e9 --tp 2", "--model and its sizes")
refused("memory --parameters 1e9 --layers 4", "--layers goes with --model")
refused("memory --parameters 1e30", "at least 1 and below 1e18")
refused("memory --parameters 1e9 --dp 4 --world 8", "dp(4) != world(8)")
refused("memory --model gpt --layers 10000000", "a rehearsal takes at most")
refused("memory --parameters 1e9 --model gpt", "excludes")
refused("memory --parameters 1e9 --dp 0", "dp(0)")
refused("memory --model bert", "unknown model 'bert'")
refused("memory --model gpt --heads 5", "width(384) % heads(5) != 0")
refused("memory --model gpt --heads 6 --tp 4", "heads(6) % tp(4) != 0")
refused("memory --model gpt --world 8 --tp 3 --heads 6", "world(8) % (tp(3)")
refused("memory --model gpt --layers 2 --pp 4", "layers(2) < pp(4)")
refused("memory --model gpt --layers 6 --pp 4 --pp-layers 1,2,3", "layers of the stages (1, 2, 3): 3 numbers, but the pipeline has 4 stages")
refused("memory --model gpt --layers 6 --pp 2 --pp-layers some", "--pp-layers 'some': whole numbers with commas between them, or auto")

# Stages of different numbers of layers, given or by cost: a large vocabulary leaves the last stage fewer.
large = "--model llama --layers 14 --width 256 --heads 4 --sequence 256 --vocabulary 65536 --pp 4 --global-batch 8"
stages = [stage["layers"] for stage in as_json(f"memory {large}")["stages"]]
check(stages == [[3], [4], [3], [4]], f"equal stages: {stages}")
given = as_json(f"memory {large} --pp-layers 5,4,4,1")["stages"]
check([stage["layers"] for stage in given] == [[5], [4], [4], [1]] and given[1]["parameters"] == given[2]["parameters"], f"given stages: {given}")
by_cost = [stage["layers"][0] for stage in as_json(f"memory {large} --pp-layers auto")["stages"]]
check(sum(by_cost) == 14 and by_cost[3] < by_cost[1], f"stages by cost: {by_cost}")
times = [as_json(f"estimate {large} --machine h100 {words}")["seconds"] for words in ("", "--pp-layers auto")]
check(times[1] < times[0], f"stages by cost take less time: {times}")
chosen = as_json("choose --model llama --layers 7 --width 256 --heads 2 --sequence 256 --vocabulary 65536 --machine h100 --world 8 --ranks-per-node 2 --global-batch 4")
check(all(sum(one["stage_layers"]) in (0, 7) for one in chosen["best"]), f"stages of the chosen layouts: {chosen['best']}")
check(all(("--pp-layers " + ",".join(map(str, one["stage_layers"])) in one["command"]) == bool(one["stage_layers"]) for one in chosen["best"]), "their commands")
refused("memory --model gpt --sequence-parallel", "tp(1)")
refused("memory --model gpt --precision int8", "precision 'int8'")
refused("memory --model gpt --schedule dualpipev --pp 2 --global-batch 2", "micro-batches >= 2 * pp")
refused("memory --model gpt --recompute some", "none, selective or full")
refused("memory --model gpt --micro-batch 2 --global-batch 3", "global batch(3) % micro-batch(2) != 0")

# Seconds of a step: twice the work takes twice as long, a slower link is seen, and the parts are the whole.
small = "estimate --model gpt --layers 8 --width 512 --heads 8 --sequence 512 --vocabulary 1024 --machine h100"
one = as_json(small + " --micro-batch 8")
check(one["ranks"] == 1 and 0 < one["share_of_peak"] < 1 and one["tokens"] == 8 * 512, f"estimate of one rank: {one}")
check(abs(sum(one["stages"][0].values()) / one["seconds"] - 1) < 1e-9, f"the parts of a step are the step: {one}")
two = as_json(small + " --micro-batch 8 --global-batch 16")
for part, least, most in (("products", 2 - 1e-9, 2 + 1e-9), ("attention", 2 - 1e-9, 2 + 1e-9), ("after the pipeline", 1, 1.01)):
    ratio = two["stages"][0][part] / one["stages"][0][part]
    check(least <= ratio <= most, f"of two micro-batches, {part} take {ratio} times those of one")
check(1 < two["seconds"] / one["seconds"] < 2, "two micro-batches and one optimizer's step")
here, there = (as_json(small + f" --micro-batch 8 --dp 8 --ranks-per-node {n}")["seconds"] for n in (8, 1))
check(one["seconds"] < here < there, "sums inside of a node, and between nodes")
piped = as_json(small + " --micro-batch 8 --global-batch 64 --pp 4")
check(len(piped["stages"]) == 4 and all(stage["bubble"] > 0 for stage in piped["stages"]), f"stages of a pipeline: {piped}")
with tempfile.TemporaryDirectory() as folder:
    picture, slow = os.path.join(folder, "step.svg"), os.path.join(folder, "slow.json")
    check(run(f"{small} --pp 4 --global-batch 8 --svg {picture}").stdout.startswith("estimate of a step of 4 ranks on h100"), "a table")
    xml.etree.ElementTree.parse(picture)
    json.dump({"like": "h100", "memory_bandwidth": 1e11}, open(slow, "w"))
    check(as_json(small.replace("h100", slow) + " --micro-batch 8")["seconds"] > 2 * one["seconds"], "a machine from a file")
refused("estimate --model gpt", "estimate needs --machine")
refused("estimate --machine h100", "estimate needs --model")
refused("estimate --model gpt --machine h99", "no machine is called 'h99'")
refused("estimate --model gpt --machine /nonexistent.json", "/nonexistent.json")
refused("estimate --model gpt --machine h100 --ranks-per-node 0", "ranks-per-node(0)")
refused("estimate --model gpt --machine h100 --svg /nonexistent/x.svg", "cannot write '/nonexistent/x.svg'")
refused("estimate --model gpt --machine h100 --zero 4", "zero(4)")

# The choice of a layout: the fastest first, all fit, and the printed type is that layout.
model = "--model llama --layers 4 --width 256 --heads 8 --kv-heads 4 --intermediate 768 --sequence 256"
chosen = as_json(f"choose {model} --machine h100 --world 16 --global-batch 32 --memory 2GB --limit 30")
check(len(chosen["best"]) == 10 and chosen["legal"] > 1000 and chosen["fitting"] > 100, f"choose: {chosen['legal']}, {chosen['fitting']}")
check(all(one["memory"] <= 2e9 for one in chosen["best"]), "all fit")
check([one["seconds"] for one in chosen["best"]] == sorted(one["seconds"] for one in chosen["best"]), "the fastest first")
check(chosen["tree"]["dp"] == 16 and chosen["tree"]["zero"] == 0 and chosen["reason"].startswith("DataParallel"), f"the tree: {chosen['reason']}")
check(chosen["best"][0]["seconds"] <= chosen["tree"]["seconds"], "the search is no slower than the tree")
for one in [chosen["tree"], *chosen["best"][:3]]:
    check(one["dp"] * one["tp"] * one["cp"] * one["pp"] == 16 and one["why"] and "models::BasicLlama<bfloat16>" in one["type"], f"a layout: {one}")
    parts = one["command"].split()
    check(parts[:2] == ["./examples/run", "train_gpt"], one["command"])
    with tempfile.TemporaryDirectory() as folder:
        notes = os.path.join(folder, "rank.json")
        result = subprocess.run([PLAN.replace("plan", "04_train_gpt"), *parts[2:], "--rehearse", "16:0"], capture_output=True, text=True, timeout=60,
                                env={**os.environ, "WEFT_REHEARSE_JSON": notes})
        check(result.returncode == 0, f"{one['command']}: {result.stderr}")
        axes = {axis["axis"]: axis["size"] for axis in json.load(open(notes))["axes"]}
        check(all(axes.get(axis, 1) == one[axis] for axis in ("dp", "tp", "cp", "pp")), f"{one['command']}: {axes}")
# Each choice can be pasted, and is in the type: a layout of each schedule, one with copies of its shards, one with offload, one with activations on the host.
few = model.replace("--layers 4", "--layers 8")
many = [one for options in ("--world 8 --global-batch 64 --memory 60MB --ranks-per-node 1", "--world 8 --global-batch 16 --memory 20MB", "--world 64 --global-batch 64 --memory 12MB",
                            "--world 8 --global-batch 16 --ranks-per-node 1")
        for one in as_json(f"choose {few} --machine h100 {options} --limit 40 --listed 500")["best"]]
asked = {name: lambda one, name=name: one["pp"] > 1 and one["schedule"] == name for name in ("1f1b", "gpipe", "interleaved", "interleaved-zb", "zb-h1", "zbv", "dualpipev")}
asked |= {"copies": lambda one: one["replicate"] > 1, "offload": lambda one: one["offload"], "host activations": lambda one: one["activations"] == "host"}
said = {"gpipe": "schedule::GPipe>", "interleaved": "schedule::Interleaved<", "interleaved-zb": "schedule::InterleavedZeroBubble<", "zb-h1": "schedule::ZeroBubbleH1>",
        "zbv": "schedule::Zbv>", "dualpipev": "schedule::DualPipeV>", "copies": "HybridSharding<"}
for name, is_asked in asked.items():
    one = next((one for one in many if is_asked(one)), None)
    if one is None:
        check(False, f"no layout with {name} among {len(many)}")
        continue
    check(said.get(name, "models::") in one["type"], f"{name}: {one['type']}")
    option = {"1f1b": "", "copies": f"--replicate {one['replicate']}", "offload": "--offload host", "host activations": "--activations host"}.get(name, f"--schedule {name}")
    check(option in one["command"] and ("--vpp" in one["command"]) == one["schedule"].startswith("interleaved"), f"{name}: {one['command']}")
    ranks = one["dp"] * one["tp"] * one["cp"] * one["pp"]
    result = subprocess.run([PLAN.replace("plan", "04_train_gpt"), *one["command"].split()[2:], "--rehearse", f"{ranks}:0"], capture_output=True, text=True, timeout=60)
    check(result.returncode == 0, f"{one['command']}: {result.stderr}")
    if os.environ.get("WEFT_TEST_LONG"):
        print(name, one["type"], one["command"], sep="\n  ")
# Another vocabulary requires a file of tokens, which a rehearsal does not read.
asked = as_json(f"choose {model} --vocabulary 512 --machine h100 --world 4 --global-batch 8 --limit 1")["best"][0]["command"]
result = subprocess.run([PLAN.replace("plan", "04_train_gpt"), *asked.split()[2:], "--rehearse", "4"], capture_output=True, text=True, timeout=60)
check("--data tokens.bin --vocabulary 512" in asked and result.returncode == 0, f"{asked}: {result.stderr}")
result = subprocess.run([PLAN.replace("plan", "04_train_gpt"), "--ranks", "4", "--rehearse", "8"], capture_output=True, text=True, timeout=60)
check(result.returncode == 2 and "train_gpt: --ranks 4 beside --rehearse 8: " in result.stderr, f"two numbers of ranks: {result}")
less = as_json(f"choose {model} --machine h100 --world 16 --global-batch 32 --memory 10MB --limit 30")
check(all(one["memory"] <= 1e7 for one in less["best"]), f"all fit into a small memory: {[one['memory'] for one in less['best']]}")
# Layouts with choices that save memory count only where they are needed, so more may fit into a little less. A busy machine may
# not have counted all.
if less["complete"] and chosen["complete"]:
    check(less["fitting"] < chosen["fitting"], f"fewer fit into a small memory: {less['fitting']} of {chosen['fitting']}")
check(less["tree"] is None or less["tree"]["memory"] <= 1e7, "the tree's answer fits, too")
table = run(f"choose {model} --machine h100 --world 4 --global-batch 8 --limit 1 --listed 2").stdout
check("the decision tree: DataParallel" in table and "\n2." in table and "\n3." not in table and "layouts are legal" in table, f"a table: {table}")
experts = as_json("choose --model mixtral --layers 2 --width 128 --heads 4 --sequence 128 --experts 4 --machine h100 --world 4 --global-batch 8 --limit 2")
check(experts["tree"]["ep"] == 4 and "ep for experts" in experts["reason"] and "ExpertParallel<" in experts["tree"]["type"], f"experts: {experts['tree']}")
paste = "choose --model gpt --machine h100 --world 4 --global-batch 8"
refused("choose --machine h100 --world 4 --global-batch 8", "choose needs --model")
refused("choose --model gpt --world 4 --global-batch 8", "choose needs --machine")
refused("choose --model gpt --machine h100 --global-batch 8", "choose needs --world")
refused("choose --model gpt --machine h100 --world 4", "choose needs --global-batch")
refused("choose --model gpt --machine h100 --world 0 --global-batch 8", "world(0)")
refused("choose --model gpt --machine h100 --world 7 --global-batch 4", "no layout of 7 ranks is legal")
refused("choose --model gpt --machine h99 --world 4 --global-batch 8", "no machine is called 'h99'")
refused(paste + " --tp 2", "--tp")
refused(paste + " --limit 0", "--limit")
refused(paste + " --listed 0", "listed(0)")
refused(paste + " --memory much", "--memory")
refused(paste + " --ranks-per-node 0", "ranks-per-node(0)")
none = run(paste + " --memory 1MB")
check(none.returncode != 0 and none.stderr.count("\n") == 1 and "none fits into 1.0 MB a rank" in none.stderr, f"nothing fits: {none}")

refused("schedule --stages 4 --micro-batches 8", "schedule needs --kind")
refused("schedule --kind gpipe --micro-batches 8", "schedule needs --stages")
refused("schedule --kind gpipe --stages 4", "schedule needs --micro-batches")
refused("schedule --kind gpipe --stages 100000 --micro-batches 1", "stages(100000): a pipeline has at most 4096 ranks")
refused("schedule --kind foo --stages 4 --micro-batches 8", "unknown schedule 'foo'", "gpipe")
refused("schedule --kind gpipe --stages 0 --micro-batches 8", "stages(0)")
refused("schedule --kind gpipe --stages 4 --micro-batches -1", "micro-batches(-1)")
refused("schedule --kind gpipe --stages 4 --micro-batches 8 --chunks 3", "chunks(3) != 1")
refused("schedule --kind gpipe --stages 1000000 --micro-batches 1000000", "at most")
refused("schedule --kind dualpipev --stages 4 --micro-batches 5", "micro-batches >= 2 * pp", "works is 8")
refused("schedule --kind gpipe --stages 4 --micro-batches 8 --forward 0", "costs must be above 0 and below 1e12")
refused("schedule --kind gpipe --stages 4 --micro-batches 8 --forward x", "--forward")
refused("schedule --kind gpipe --stages 4 --micro-batches 8 --svg /nonexistent/x.svg", "cannot write '/nonexistent/x.svg'")
refused("schedule --csv /nonexistent.csv", "cannot read '/nonexistent.csv'")
refused("schedule --csv /tmp", "cannot read '/tmp': it is a folder")
refused("schedule --kind gpipe --stages 4 --micro-batches 8 --svg=", "--svg")
refused("", "groups, validate, schedule, memory, estimate and choose")
refused("frobnicate", "unknown command 'frobnicate'")
refused("groups", "groups needs --world")
refused("groups --wrold 8", "--wrold")
refused("groups --world", "--world")
refused("groups --world abc", "--world", "'abc' is not a whole number")
refused("groups --world 2.5", "'2.5' is not a whole number")
refused("groups --world 99999999999999999999", "too large")
refused("groups --world 4294967296", "at most 1048576 ranks")
refused("groups --world -4", "world(-4): must be at least 1")
refused("groups --world 0", "world(0)")
refused("groups --world 16 --unknown 3", "--unknown")
refused("groups --world 16 extra", "extra")
refused("groups --world 16 --tp 2 --tp 4", "--tp")
refused("groups --world 16 --tp 3", "world(16) % (tp(3)")
refused("groups --world 16 --tp 0", "tp(0)")
refused("groups --world 16 --ep 3", "world(16) % (etp(1) * pp(1) * ep(3))")
refused("groups --world 16 --order tp-xx", "unknown axis 'xx'")
refused("groups --world 16 --order tp-tp", "twice")
refused("groups --world 16 --order tp-dp --pp 2", "add 'pp'")
refused("groups --world 16 --ep 2 --pp 2 --order tp-pp-cp-ep-dp", "dp(8) != edp(4)")
refused("validate --nodes 1", "validate needs --ranks-per-node")
refused("validate --ranks-per-node 8 --tp 4 --heads 6", "heads(6) % tp(4) != 0", "1, 2, 3 or 6")
refused("validate --ranks-per-node 8 --sequence-parallel", "tp(1)")
refused("validate --ranks-per-node 8 --overlap-p2p", "vpp(1)")

if os.path.exists("/dev/full"):
    result = subprocess.run([PLAN, "groups", "--world", "8", "--json"], stdout=open("/dev/full", "w"), stderr=subprocess.PIPE, text=True)
    check(result.returncode == 1 and result.stderr == "weft: standard output was not written: No space left on device\n", f"a full standard output: {result}")

sys.exit(1 if failures else 0)
