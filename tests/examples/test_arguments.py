# SPDX-License-Identifier: Apache-2.0
"""Random command lines of all examples. Every run ends in bounded time with 0, 1, 2, 3 or 130, never by a signal, and a refused one
prints at most one line on standard error. Also causes beyond random values: environment, special files, full disks, signals.

    tests/examples/test_arguments.py [--seed N] [--runs N]       both are printed with every failure; the test runs a short form
"""
import argparse
import gzip
import json
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.environ.get("WEFT_SOURCE", "."), "tests", "support"))
from checks import check, finish

options = argparse.ArgumentParser()
options.add_argument("--seed", type=int, default=12)
options.add_argument("--runs", type=int, default=90)
options = options.parse_args()

EXAMPLES, SOURCE = os.environ["WEFT_EXAMPLES"], pathlib.Path(os.environ["WEFT_SOURCE"])
LIMIT_S = 60
scratch = pathlib.Path(tempfile.mkdtemp(prefix="weft-arguments-"))
# Variables of the test's machine that no example may see.
FOREIGN = ("WEFT_", "OMP_NUM", "KOKKOS_", "RANK", "WORLD_SIZE", "MASTER_", "OMPI_COMM", "PMI", "SLURM_", "TORCHELASTIC")
clean = {k: v for k, v in os.environ.items() if not k.startswith(FOREIGN)}


def path_of(name):
    return os.path.join(EXAMPLES, name)


def run(name, arguments, environment=None, limits=None, stdout=subprocess.PIPE):
    """Exit code, standard output, lines of standard error that are an error's; None as the code if it did not end."""
    process = subprocess.Popen([path_of(name), *arguments], stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.PIPE, text=True,
                               errors="replace", cwd=scratch, env=clean | (environment or {}), preexec_fn=limits)
    try:
        out, err = process.communicate(timeout=LIMIT_S)
        code = process.returncode
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        code = None
    # libgomp itself prints a warning about a variable that it cannot parse, and goes on.
    return code, out or "", [line for line in err.split("\n") if line.strip() and "libgomp: Invalid value" not in line]


def ended_well(name, arguments, environment=None):
    code, out, lines = run(name, arguments, environment)
    what = f"{name} {' '.join(map(repr, arguments))} {environment or ''} (--seed {options.seed})"
    check(code is not None, f"{what}: it did not end in {LIMIT_S} s")
    if code is None:
        return
    check(code in (0, 1, 2, 3, 130), f"{what}: exit code {code}: {lines[-3:]}")
    errors = [line for line in lines if "is not finite: every rank skips it" not in line]
    check(len(errors) <= (0 if code == 0 else 1), f"{what}: exit code {code}, more than one line: {errors[:4]}")
    check(not any(ord(letter) < 32 or ord(letter) == 127 for line in errors for letter in line), f"{what}: letters that steer a terminal: {errors}")
    if code in (1, 2):
        check(len(errors) == 1 and errors[0].startswith("weft: "), f"{what}: exit code {code}: {errors[:4]}")


# ---- random values ---------------------------------------------------------------------------------------------------------
text = scratch / "text.txt"
text.write_bytes(b"".join(b"%d times %d is %d.\n" % (a, b, a * b) for a in range(40) for b in range(40)))
tokens = scratch / "tokens.bin"
tokens.write_bytes(bytes(range(200)) * 40)
csv = scratch / "own.csv"
csv.write_text("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n")
many = scratch / "many.csv"
many.write_text("0F0,0B0\n" * 40000)
fifo = scratch / "fifo"
os.mkfifo(fifo)
sparse = scratch / "sparse.bin"
with open(sparse, "wb") as file:
    file.truncate((1 << 43) + 1)
empty = scratch / "empty"
empty.write_bytes(b"")

NUMBERS = ["0", "1", "2", "3", "4", "8", "-1", "-2", "1.5", "1e3", "1e30", "-1e30", "1e400", "nan", "inf", "-inf", "", " ", "x", "2x", "0x10",
           "007", "+4", "4294967296", "4294967297", "9223372036854775807", "9223372036854775808", "-9223372036854775808",
           "18446744073709551615", "99999999999999999999999", "1,5", "é", "%s%n", "'", "--steps"]
REALS = [*NUMBERS, "0.5", "0.1", "1e-3", "1e-300", "1e38", "-0", "1e5"]
FILES = [str(text), str(tokens), str(csv), str(many), str(fifo), str(sparse), str(empty), str(scratch), "/dev/zero", "/dev/null", "/dev/full",
         "/proc/self/mem", "/no/such/file", "", ".", "a" * 300]
WORDS = ["", "x", "adamw", "gpt", "none", "A" * 5000, "--", "-", "\n", "\x1b[31m", "\u2028"]
SMALL = ["1", "1", "2", "2", "3", "4"]

TRAIN = {
    **dict.fromkeys(["--tp", "--pp", "--dp", "--cp", "--ep", "--etp", "--vpp", "--ranks", "--replicate", "--micro-batch", "--global-batch", "--kv-heads",
                     "--experts", "--top-k", "--warmup", "--validate-every", "--sample", "--seed", "--vocabulary", "--zero", "--layers", "--heads",
                     "--width", "--sequence", "--steps", "--piece-bytes", "--loss-chunks"], (NUMBERS, SMALL)),
    **dict.fromkeys(["--learning-rate", "--min-learning-rate", "--beta1", "--beta2", "--weight-decay", "--clip", "--ema", "--dropout", "--validation-fraction"],
                    (REALS, ["0.1", "0", "1e-3"])),
    **dict.fromkeys(["--data", "--validation"], (FILES, [str(text)])),
    "--chat": (WORDS, ["auto", "chatml", "llama3"]),
    "--schedule": ([*FILES, "gpipe", "zbv", "interleaved"], [str(csv), "1f1b", "zb-h1", "dualpipev"]),
    "--offload": ([*FILES, "none", "host"], ["none", "host"]),
    "--prompt": (WORDS, ["a"]),
    "--optimizer": (WORDS, ["adamw", "muon"]),
    "--model": (WORDS, ["gpt", "llama", "mixtral"]),
    "--precision": (WORDS, ["fp32", "bf16", "fp16"]),
    "--recompute": (WORDS, ["none", "selective", "full"]),
    "--activations": (WORDS, ["device", "host"]),
    "--context": (WORDS, ["ring", "ulysses"]),
    "--token-type": (WORDS, ["uint16", "uint32"]),
}
SMALL_RUN = {"--data": str(text), "--layers": "2", "--width": "16", "--heads": "4", "--sequence": "8", "--global-batch": "8", "--steps": "2", "--sample": "2",
             "--ranks": "2", "--output": "out"}
CLASSIFY = {
    **dict.fromkeys(["--dp", "--tp", "--pp", "--zero", "--epochs", "--steps", "--batch", "--micro-batches", "--seed", "--print-every"], (NUMBERS, SMALL)),
    "--learning-rate": (REALS, ["1e-3"]),
    "--data": (FILES, [str(scratch)]),
    "--model": (WORDS, ["cnn", "vit"]),
}
IMAGENET = {
    **dict.fromkeys(["--dp", "--pp", "--zero", "--epochs", "--steps", "--batch", "--micro-batches", "--seed", "--print-every", "--every", "--keep",
                     "--size", "--resize", "--warmup-epochs", "--loader-threads"], (NUMBERS, SMALL)),
    **dict.fromkeys(["--learning-rate", "--momentum", "--weight-decay", "--label-smoothing", "--ema", "--colour-jitter", "--hue"], (REALS, ["0.1", "0"])),
    **dict.fromkeys(["--train", "--validation", "--load", "--output", "--checkpoint"], (FILES, [str(scratch)])),
    "--model": (WORDS, ["resnet18", "resnet50"]),
    "--schedule": (WORDS, ["step", "cosine"]),
}
FIELDS = {
    **dict.fromkeys(["--dp", "--tp", "--pp", "--dx", "--dy", "--dz", "--zero", "--batch", "--micro-batches", "--seed", "--print-every"], (NUMBERS, SMALL)),
    **dict.fromkeys(["--learning-rate", "--ema"], (REALS, ["1e-3", "0"])),
    "--dims": (NUMBERS, ["2", "3"]),
    "--output": (FILES, ["out"]),
    "--partition": (WORDS, ["blocks"]),
    "--model": (WORDS, ["unet", "pinn", "mesh", "fno", "potential", "diffusion"]),
}
GPT_60 = {"--tp": (NUMBERS, SMALL), "--pp": (NUMBERS, SMALL), "--steps": (NUMBERS, ["1"]), "--data": (FILES, [str(text)])}
COUNTS = (NUMBERS, SMALL)
PLAN = {
    "groups": dict.fromkeys(["--world", "--tp", "--pp", "--cp", "--ep", "--etp"], COUNTS),
    "validate": dict.fromkeys(["--nodes", "--ranks-per-node", "--tp", "--pp", "--cp", "--ep", "--vpp", "--world", "--dp", "--edp", "--global-batch",
                               "--micro-batch", "--layers", "--heads", "--kv-heads", "--experts", "--intermediate"], COUNTS),
    "schedule": {**dict.fromkeys(["--stages", "--micro-batches", "--chunks"], COUNTS),
                 **dict.fromkeys(["--forward", "--backward-input", "--backward-weight"], (REALS, ["1"])),
                 "--csv": (FILES, [str(csv)]), "--kind": (WORDS, ["1f1b", "zbv", "gpipe"])},
    "memory": {**dict.fromkeys(["--layers", "--width", "--heads", "--dp", "--tp", "--pp", "--zero", "--sequence", "--micro-batch"], COUNTS),
               "--model": (WORDS, ["gpt", "llama", "mixtral"])},
}


def some(draw, table, wild, always=None):
    """A command line: options that mostly fit, and `wild` of them with any value."""
    chosen = dict(always or {})
    names = list(table)
    for name in draw.sample(names, draw.randint(0, min(4, len(names)))):
        chosen[name] = draw.choice(table[name][1])
    for name in draw.sample(names, min(wild, len(names))):
        chosen[name] = draw.choice(table[name][0])
    words = [word for name, value in chosen.items() for word in (name, value)]
    if draw.random() < 0.15:
        words.insert(draw.randint(0, len(words)), draw.choice(["--frobnicate", "stray", "--", "-h", "--json", "--quiet", "--tp", "=", "--tp=2", *WORDS]))
    return words


draw = random.Random(options.seed)
available = {name for name in os.listdir(EXAMPLES) if os.access(path_of(name), os.X_OK) and not os.path.isdir(path_of(name))
             and not name.endswith("_proof")}  # built by ./examples/run prove, with the arguments of its program
for number in range(options.runs):
    wild = draw.choice([1, 1, 1, 2, 5])
    candidates = [("04_train_gpt", lambda: some(draw, TRAIN, wild, SMALL_RUN)), ("04_train_gpt", lambda: some(draw, TRAIN, wild, SMALL_RUN)),
                  ("06_classify", lambda: some(draw, CLASSIFY, wild, {"--data": str(scratch)})),
                  ("08_imagenet", lambda: some(draw, IMAGENET, wild, {"--train": str(scratch)})),
                  ("fields", lambda: some(draw, FIELDS, wild, {"--steps": "1", "--batch": "4"})),
                  ("gpt_60", lambda: some(draw, GPT_60, wild, {"--data": str(text), "--steps": "1"})),
                  ("plan", lambda: (lambda command: [command, *some(draw, PLAN[command], wild)])(draw.choice(list(PLAN)))),
                  ("02_collectives", lambda: [draw.choice(["--mismatch", *WORDS])]), ("in_situ", lambda: [draw.choice(["--steps", "x"]), draw.choice(["0", "-1", "x", ""])])]
    name, make = candidates[number % len(candidates)]
    arguments = make()
    if name in available:
        arguments = [word.replace("\0", "") for word in arguments]
        environment = {} if name in ("04_train_gpt", "plan", "06_classify", "08_imagenet", "fields") else {"WEFT_RANKS": "2"}
        ended_well(name, arguments, environment)

# ---- the environment: a number with its range, one line ----------------------------------------------------------------------
base = [word for item in SMALL_RUN.items() for word in item]
# Each variable that docs/building.md lists, but for names of files that are written, and of jobs; also where nothing uses it.
VARIABLES = {"WEFT_STORE_PORT": ["abc", "0", "65536"], "WEFT_SECRET": ["short"], "WEFT_SECRET_FILE": ["/no/such/file", str(fifo)], "WEFT_HEARTBEAT_S": ["abc", "-1", "nan"],
             "WEFT_RENDEZVOUS_S": ["abc", "0"], "WEFT_REHEARSE": ["abc", "0", "2:2", "2:x", "4:1:late"], "WEFT_REHEARSE_STEPS": ["abc", "0", "1.5"], "WEFT_REHEARSE_LAYOUTS": ["abc", "0", "1001"],
             "WEFT_REHEARSE_EXPERT_SKEW": ["abc", "0.5"], "WEFT_RANKS_PER_NODE": ["abc", "0"], "WEFT_REHEARSE_MEMORY": ["much", "-1"], "WEFT_FLIGHT_DIR": ["/no/such/folder", str(text)],
             "WEFT_TRACE": [str(text), ":2", "traces:5-2"],
             "WEFT_PROVE": ["abc", "1", "65", "2.5"], "WEFT_PROVE_STEPS": ["abc", "0"], "WEFT_PROVE_PROCESSES": ["0"], "WEFT_PROVE_SECONDS": ["abc", "0"],
             "WEFT_PROVE_LAYOUT_SECONDS": ["abc", "-1"],
             "WEFT_SHARED_MEMORY": ["abc", "2"], "WEFT_FINGERPRINTS": ["yes"], "WEFT_SHARE_GPUS": ["-1"],
             "WEFT_IGNORE_LAUNCHER": ["yes"]}
listed = set(re.findall(r"WEFT_\w+", "".join(line for line in (SOURCE / "docs/building.md").read_text().splitlines(keepends=True) if line.startswith("| `"))))
cmake = "".join(path.read_text() for path in [SOURCE / "CMakeLists.txt", *(SOURCE / "cmake").glob("Find*.cmake")])
listed -= {name for name in listed if name in cmake}  # options of CMake
unread = {"WEFT_JOB", "WEFT_REHEARSE_JSON", "WEFT_PROVE_CERTIFICATE", "WEFT_ESTIMATE_SVG", "WEFT_MACHINE", "WEFT_RANKS", "WEFT_TIMEOUT_S", "WEFT_STOP_S"}  # the last three are below
check(listed == set(VARIABLES) | unread, f"docs/building.md lists {listed ^ (set(VARIABLES) | unread)}, this test does not, or the reverse")
bases = {"04_train_gpt": base, "gpt_60": ["--data", str(text), "--steps", "1"], "01_hello_mesh": [], "02_collectives": []}
for name, arguments in bases.items():
    for variable, values in {"WEFT_RANKS": ["abc", "0", "1e9", "2.5", "-1", "nan"], "WEFT_TIMEOUT_S": ["abc", "-3", "nan"], "WEFT_STOP_S": ["abc", "0"],
                             "KOKKOS_NUM_THREADS": ["abc", "0", "-1"], "OMP_NUM_THREADS": ["100000", "4,x"], "KOKKOS_DEVICE_ID": ["x", ""],
                             "KOKKOS_DISABLE_WARNINGS": ["on"], "KOKKOS_MAP_DEVICE_ID_BY": ["x"], **VARIABLES}.items():
        for value in values if name in ("04_train_gpt", "02_collectives") else values[:1]:
            if name in available:
                code, out, lines = run(name, arguments, {variable: value})
                check(code == 2 and len(lines) == 1 and f"environment variable {variable}" in lines[0] and out == "", f"{name}, {variable}={value}: {code} {lines} {out[:80]}")

if "04_train_gpt" in available:  # a program that can estimate its time
    code, out, lines = run("04_train_gpt", base, {"WEFT_MACHINE": "abacus"})
    check(code == 2 and len(lines) == 1 and "no machine is called 'abacus'" in lines[0] and out == "", f"WEFT_MACHINE=abacus: {code} {lines}")

# ---- the table of exit codes in docs/errors.md, each kind of mistake with every program ------------------------------------------
table = {}  # a phrase of the column "meaning": its code
for code, meaning in re.findall(r"^\| (\d+) \| ([^|]*) \|", (SOURCE / "docs/errors.md").read_text().split("## Exit codes")[1].split("\n## ")[0], re.MULTILINE):
    for phrase in re.split(r"[;,:] |, or ", meaning):
        table.setdefault(phrase.strip(), int(code))
short = ["--data", str(text), "--layers", "1", "--width", "16", "--heads", "2", "--sequence", "8", "--global-batch", "4", "--steps", "1", "--sample", "0"]
folder, images, weak = str(scratch / "folder_of_a_model"), str(scratch / "images"), {"WEFT_RANKS": "2"}
if "04_train_gpt" in available and "generate" in available:
    code, _, lines = run("04_train_gpt", [*short, "--quiet", "--export", folder])
    check(code == 0 and not lines, f"an export: {code} {lines}")
os.mkdir(images)
for part in ("train", "t10k"):
    for kind, header, size in (("images-idx3", b"\0\0\x08\x03" + struct.pack(">3I", 64, 28, 28), 64 * 784), ("labels-idx1", b"\0\0\x08\x01" + struct.pack(">I", 64), 64)):
        (pathlib.Path(images) / f"{part}-{kind}-ubyte.gz").write_bytes(gzip.compress(header + bytes(i % 10 for i in range(size))))
pictures = str(scratch / "pictures")
os.makedirs(scratch / "pictures/a_class")
for name in ("full.jpg", "colours.png"):
    shutil.copy(SOURCE / "tests/golden/pictures" / name, scratch / "pictures/a_class" / name)
generated = ["--load", folder, "--tokens", "1,2", "--quiet"]
EMPTY_ENTRY = ["--load", folder, "--tokens", "1,,2"]
# phrase: program, arguments, a part of the line (environment)
MISTAKES = {
    "unknown option": [("04_train_gpt", [*short, "--stop-after", "4"], "unknown option '--stop-after'"), ("04_train_gpt", [*short, "stray"], "unexpected argument 'stray'"),
                       ("07_finetune", ["--load", folder, "--stop-after", "4"], "unknown option '--stop-after'"), ("generate", [*generated, "--stop-after", "4"], "unknown option '--stop-after'"),
                       ("06_classify", ["--stop-after", "4"], "unknown option '--stop-after'"), ("08_imagenet", ["--stop-after", "4"], "unknown option '--stop-after'"), ("fields", ["--stop-after", "4"], "unknown option '--stop-after'"), ("plan", ["groups", "--world", "4", "--stop-after", "4"], "unknown option '--stop-after'"),
                       ("checkpoint", ["list", folder, "--stop-after", "4"], "unknown option '--stop-after'"), ("flight", ["--stop-after"], "unknown option '--stop-after'"),
                       ("gpt_60", ["--stop-after", "4"], "--stop-after"), ("in_situ", ["--stop-after", "4"], "unknown argument '--stop-after': it takes --steps N"),
                       *((name, ["--stop-after", "4"], "unknown argument '--stop-after'") for name in ("01_hello_mesh", "02_collectives", "03_custom_layer", "05_dtensor"))],
    "bad value": [("04_train_gpt", [*short[:-2], "--sample", "x"], "--sample"), ("07_finetune", ["--load", folder, "--lora", "x"], "--lora"), ("generate", [*generated, "--tp", "0"], "--tp"),
                  ("generate", EMPTY_ENTRY, "--tokens: '1,,2' has an empty entry"), ("generate", [*generated, "--stop", "1,"], "--stop: '1,' has an empty entry"),
                  ("generate", [*generated, "--max-new-tokens", "7"], "prompt 0 of 2 tokens and max_new_tokens(7) are more than the 8 tokens"),
                  ("generate", ["--load", folder, "--tokens", "1,1,1,1,1,1,1,1,1", "--logits", "logits"], "prompt 0 of 9 tokens is more than the 8 tokens"),
                  ("generate", ["--load", folder, "--tokens", "1", "--logits", "/nonexistent/x"], "cannot write '/nonexistent/x': No such file or directory"),
                  ("generate", [*generated, "--top-p", "0.5", "--temperature", "0"], "--top-p beside --temperature 0"),
                  ("06_classify", ["--zero", "9"], "--zero"), ("08_imagenet", ["--zero", "9"], "--zero"), ("fields", ["--zero", "9"], "--zero"), ("plan", ["groups", "--world", "x"], "--world"), ("checkpoint", ["frob", folder], "the commands are"), ("flight", [""], "the argument is the folder"),
                  ("gpt_60", ["--steps", "x"], "--steps"), ("in_situ", ["--steps", "0"], "--steps"), *((name, [], "WEFT_RANKS", {"WEFT_RANKS": "x"}) for name in ("01_hello_mesh", "02_collectives", "05_dtensor"))],
    "missing file": [("04_train_gpt", ["--data", "none"], "there is no such file"), ("07_finetune", ["--load", "none", "--data", str(text)], "none"), ("generate", ["--load", "none", "--tokens", "1"], "none"),
                     ("06_classify", ["--data", "none"], "there is no such file"), ("08_imagenet", ["--train", "none"], "there is no such folder"), ("plan", ["schedule", "--csv", "none"], "there is no such file"), ("checkpoint", ["list", "none"], "none"), ("flight", ["none"], "none"),
                     ("gpt_60", ["--data", "none"], "there is no such file")],
    "unreadable file": [("04_train_gpt", ["--data", str(scratch)], "it is a folder"), ("07_finetune", ["--load", str(text), "--data", str(text)], "text.txt"), ("generate", ["--load", str(text), "--tokens", "1"], "text.txt"),
                        ("generate", ["--load", folder, "--token-file", str(fifo)], "it is a FIFO"), ("06_classify", ["--data", str(text)], "text.txt"), ("08_imagenet", ["--train", str(text)], "text.txt"), ("plan", ["schedule", "--csv", str(scratch)], "it is a folder"),
                        ("checkpoint", ["show", str(text)], "text.txt"), ("flight", [str(text)], "text.txt"), ("gpt_60", ["--data", str(fifo)], "it is a FIFO")],
    "a rank threw": [("02_collectives", ["--mismatch"], "ranks disagree", weak)],
    "training diverged": [("04_train_gpt", [*short[:-4], "--steps", "12", "--sample", "0", "--learning-rate", "1e30"], "training diverged")],
    "standard output was not written": [("04_train_gpt", short), ("07_finetune", ["--load", folder, "--data", str(text), "--steps", "1"]), ("generate", generated), ("06_classify", ["--data", images, "--batch", "32", "--steps", "1"]),
                                        ("08_imagenet", ["--train", pictures, "--model", "resnet10", "--size", "32", "--batch", "2", "--steps", "1"]), ("plan", ["groups", "--world", "4"]), ("plan", ["--help"]), ("generate", ["--help"]), ("gpt_60", ["--data", str(text), "--steps", "1"], "", weak), ("in_situ", ["--steps", "1"]),
                                        *((name, [], "", weak) for name in ("01_hello_mesh", "02_collectives", "05_dtensor"))],
}
for phrase, cases in MISTAKES.items():
    check(phrase in table, f"docs/errors.md has no exit code for '{phrase}': {sorted(table)}")
    for case in cases:
        name, arguments, part, environment = case + ("", None)[len(case) - 2:]
        if name not in available or (phrase in ("missing file", "unreadable file") and name in ("checkpoint", "07_finetune") and "generate" not in available):
            continue
        closed = phrase == "standard output was not written"
        code, _, lines = run(name, arguments, environment, limits=(lambda: os.close(1)) if closed else None)
        lines = [line for line in lines if "is not finite: every rank skips it" not in line]
        check(code == table[phrase] and len(lines) == 1 and (part or phrase) in lines[0], f"{phrase}: {name} {arguments}: exit code {code}, not {table[phrase]}: {lines}")
if "generate" in available:
    for arguments, count in [(["--tokens", "1,2"], 6), (["--tokens", "1", "--max-new-tokens", "7"], 7), (["--tokens", "1, 2 3"], 5)]:  # the model has 8 positions
        code, out, lines = run("generate", ["--load", folder, "--quiet", "--stop", "", *arguments])
        check(code == 0 and len(out.split(",")) == count, f"generate {arguments}: {code} {out} {lines}")
    greedy, drawn = (run("generate", [*generated, *more])[1] for more in ([], ["--seed", "3"]))
    check(greedy != drawn, f"--seed without --temperature draws nothing: {greedy}")
# Files are not written in place of a closed stream.
if "04_train_gpt" in available:
    code, _, lines = run("04_train_gpt", [*short, "--output", "closed"], limits=lambda: (os.close(1), os.close(2)))
    wrong = [path.name for path in (scratch / "closed").iterdir() if b"validation loss" in path.read_bytes() or b"weft:" in path.read_bytes()]
    check(code == 1 and not wrong, f"output and error closed: {code}, lines of them in {wrong}")
    shorter = scratch / "shorter.txt"
    shorter.write_bytes(text.read_bytes()[:600])  # its validation part has 60 bytes
    code, out, lines = run("04_train_gpt", ["--data", str(shorter), *short[2:8], *short[10:]])
    check(code == 0 and not lines, f"a text that is shorter than the default sequence: {code} {lines}")
    for arguments in (["--model", "mixtral", "--experts", "1"], ["--model", "llama", "--width", "50"]):
        words = [word for item in (dict(zip(short[::2], short[1::2])) | dict(zip(arguments[::2], arguments[1::2]))).items() for word in item]
        words = [word for k, word in enumerate(words) if "--heads" not in words[max(k - 1, 0):k + 1]]
        code, out, lines = run("04_train_gpt", words)
        check(code == 0 and not lines, f"{words} beside the defaults of --top-k and --heads: {code} {lines}")
if "06_classify" in available:
    for environment, arguments in [({}, ["--dp", "3"]), ({"WEFT_RANKS": "3"}, [])]:  # a default of 100 images is not for 3 ranks
        code, out, lines = run("06_classify", ["--data", images, "--steps", "1", *arguments], environment)
        check("% (micro-batches(1) * dp(3)) != 0" not in str(lines) and "global batch(102) > samples(64)" in str(lines), f"classify {arguments} {environment}: {code} {lines}")
if "gpt_60" in available:
    code, out, lines = run("gpt_60", ["--data", str(text), "--steps", "1"], {"WEFT_RANKS": "3"})
    check(code == 0 and not lines, f"gpt_60 on 3 ranks: {code} {lines}")

# ---- the end of memory, wherever it comes: an error of weft's ----------------------------------------------------------------------
ended = {}
for name, arguments, limits_mb in [("04_train_gpt", [word for item in (SMALL_RUN | {"--width": "64"}).items() for word in item], range(104, 400, 25)), ("06_classify", ["--data", images, "--batch", "32", "--steps", "1"], range(104, 400, 25)),
                                   ("generate", generated, range(72, 240, 25))]:
    for megabytes in limits_mb if name in available else []:
        code, out, lines = run(name, arguments, limits=lambda: resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20)))
        check(code == 127 or (code in (0, 1, 2) and len(lines) == (code != 0) and "".join(lines).startswith("weft: "[:6 * len(lines)])), f"{name} with ulimit -v of {megabytes} MB: {code} {lines}")
        ended[name, code] = ended.get((name, code), 0) + 1
check(all(any(of == name and code == 1 for of, code in ended) for name in ("04_train_gpt", "06_classify") if name in available), f"memory ended in no run: {ended}")
print("ulimit -v:", ended)

# ---- files that are none -------------------------------------------------------------------------------------------------------
if "04_train_gpt" in available:
    for arguments, part in [
        ({"--data": str(fifo)}, "it is a FIFO, a socket or a device"),
        ({"--data": "/dev/zero"}, "it is a FIFO, a socket or a device"),
        ({"--data": str(sparse)[:-4] + ".txt"}, "there is no such file"),
        ({"--data": str(sparse), "--vocabulary": "300"}, "a file has at most"),
        ({"--data": "/dev/zero", "--vocabulary": "300"}, "it is a FIFO, a socket or a device"),
        ({"--schedule": str(many), "--pp": "2"}, "line 4097: a schedule has a line for each rank, at most 4096"),
        ({"--schedule": f"{scratch}/folder.csv", "--pp": "2"}, "it is a folder"),
        ({"--schedule": f"{scratch}/fifo.csv", "--pp": "2"}, "it is a FIFO"),
        ({"--weight-decay": "1e30"}, "--weight-decay: 1e30 must be at least 0 and below 1e+06"),
    ]:
        (scratch / "folder.csv").mkdir(exist_ok=True)
        if not (scratch / "fifo.csv").exists():
            os.mkfifo(scratch / "fifo.csv")
        begin = time.monotonic()
        code, out, lines = run("04_train_gpt", [word for item in (SMALL_RUN | arguments).items() for word in item])
        check(code == 2 and len(lines) == 1 and part in lines[0] and out == "" and time.monotonic() - begin < 10, f"{arguments}: {code} {lines}")
    big = scratch / "big.txt"
    with open(big, "wb") as file:
        file.truncate(1 << 42)
    code, out, lines = run("04_train_gpt", [word for item in (SMALL_RUN | {"--data": str(big)}).items() for word in item])
    check(code == 2 and len(lines) == 1 and "a text file has at most" in lines[0], f"a text of 4 TiB: {code} {lines}")

    # ---- help ---------------------------------------------------------------------------------------------------------------------
    for name in sorted(set(available) - {"gpt_60"}):  # which is short, and lists its options in an error
        code, out, lines = run(name, ["--help"])
        check(code == 0 and not lines and name.lstrip("0123456789_") in out, f"{name} --help: {code} {out[:80]} {lines}")

    # ---- versions, of every example, as weft's, the compiler's and the libraries' ------------------------------------------------
    weft = re.escape(".".join(re.findall(r"#define WEFT_VERSION_\w+ (\d+)", (SOURCE / "include/weft/core/version.hpp").read_text())))
    scripts = {path.parent.name: [sys.executable, str(path)] for path in (SOURCE / "examples").glob("*/main.py")} | {"run": [str(SOURCE / "examples/run")]}
    commands = {name: [path_of(name)] for name in available} | scripts
    for name, command in sorted(commands.items()):
        found = subprocess.run([*command, "--version"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_S, cwd=scratch, env=clean)
        compiled = r"(nvcc \d+\.\d+, )?(g\+\+|clang) \d+[.\d]+.*, Kokkos \d+\.\d+\.\d+, oneDNN \d+\.\d+\.\d+"
        inside = {"run": ".+, (cmake version .+|no cmake)", "in_situ": rf"{compiled}, (Open MPI|MPICH|MPI) \d+[.\d]+.*"}.get(name, r"Python \d+[.\d]+" if name in scripts else rf"{compiled}(, .+)?")
        check(found.returncode == 0 and not found.stderr and re.fullmatch(rf"([\d_]*)?{name.lstrip('0123456789_')}, weft {weft} \({inside}\)\n", found.stdout),
              f"{name} --version: {found.returncode} {found.stdout} {found.stderr}")

    # ---- lines that are lost ------------------------------------------------------------------------------------------------------
    with open("/dev/full", "w") as full:
        code, _, lines = run("04_train_gpt", [*base, "--json"], stdout=full)
        check(code == 1 and lines == ["weft: standard output was not written: No space left on device"], f"--json into a full disk: {code} {lines}")
        code, _, lines = run("04_train_gpt", base, stdout=full)
        check(code == 1 and len(lines) == 1, f"a full disk: {code} {lines}")
        for name in ("04_train_gpt", "06_classify", "plan"):
            if name in available:
                code, _, lines = run(name, ["--help"], stdout=full)  # the reason is known if all of it fits a buffer
                check(code == 1 and len(lines) == 1 and ("No space left on device" in lines[0] or "standard output was not written" in lines[0]), f"{name} --help, a full disk: {code} {lines}")
        code, _, lines = run("01_hello_mesh", [], stdout=full)
        check(code == 1 and lines == ["weft: standard output was not written: No space left on device"], f"hello_mesh, a full disk: {code} {lines}")
    reading, writing = os.pipe()
    os.close(reading)
    code, _, lines = run("04_train_gpt", [*base, "--json"], stdout=writing)
    os.close(writing)
    check(code == 1 and lines == ["weft: standard output was not written: Broken pipe"], f"--json into a closed pipe: {code} {lines}")

    def small_files():
        resource.setrlimit(resource.RLIMIT_FSIZE, (300, 300))

    code, _, lines = run("04_train_gpt", base, limits=small_files)
    check(code == table["a disk is full"] and len(lines) == 1 and "cannot write 'out/" in lines[0] and "File too large" in lines[0], f"ulimit -f: {code} {lines}")

    for arguments in (["--checkpoint", "full"], ["--checkpoint", "full", "--every", "1"], ["--export", "full_export"], ["--offload", str(scratch / "full_state")]):
        code, _, lines = run("04_train_gpt", [*short[:4], "--width", "64", *short[6:], *arguments], limits=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000)))
        check(code == table["a disk is full"] and len(lines) == 1 and ("File too large" in lines[0]), f"{arguments}, ulimit -f: {code} {lines}")
    for arguments in (["--offload", "/no/such/place"], ["--checkpoint", f"{text}/below"]):
        code, _, lines = run("04_train_gpt", [*short, *arguments])
        check(code == table["a place that cannot be used"] and len(lines) == 1, f"{arguments}: {code} {lines}")

    # ---- outputs that are no regular files, the same in every program ---------------------------------------------------------------
    OUTPUTS = {"a FIFO": os.mkfifo, "a device": lambda path: path.symlink_to("/dev/null"), "a folder": os.mkdir,
               "a link that leads to no file": lambda path: path.symlink_to(scratch / "nowhere")}
    run("04_train_gpt", [*short, "--checkpoint", "to_merge"])
    for kind, make in OUTPUTS.items():
        place = scratch / "outputs" / kind.replace(" ", "_")
        place.mkdir(parents=True)
        for file, name, arguments, environment in [("weft_flight_0.json", "04_train_gpt", short, {"WEFT_FLIGHT_DIR": str(place)}),
                                                   ("metrics.jsonl", "04_train_gpt", [*short, "--output", str(place)], None), ("layout.json", "04_train_gpt", [*short, "--output", str(place)], None),
                                                   ("logits", "generate", [*generated, "--logits", str(place / "logits")], None), ("merged", "checkpoint", ["merge", "to_merge", str(place / "merged")], None),
                                                   ("config.json", "04_train_gpt", [*short, "--export", str(place)], None), ("generation_config.json", "04_train_gpt", ["--load", folder, *short[:2], *short[8:], "--export", str(place)], None),
                                                   ("a.svg", "plan", ["schedule", "--kind", "1f1b", "--stages", "2", "--micro-batches", "2", "--svg", str(place / "a.svg")], None)]:
            if name not in available or (name == "checkpoint" and not (scratch / "to_merge").exists()) or (folder in arguments and not os.path.exists(folder)):
                continue
            if file == "generation_config.json":
                (pathlib.Path(folder) / file).write_text("{}")
            make(place / file)
            code, _, lines = run(name, arguments, environment)
            check(code == 2 and len(lines) == 1 and f"{file}': it is {kind}, a regular file is needed" in lines[0], f"{name} {arguments} {environment}: {code} {lines}")
            check(os.path.lexists(place / file) and not (place / file).is_file() and not (scratch / "nowhere").exists(), f"{name} {arguments}: {file} was replaced")
            for path in place.iterdir():
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()

    # ---- threads that cannot be started -------------------------------------------------------------------------------------------
    def little_memory():
        resource.setrlimit(resource.RLIMIT_AS, (1500 << 20, 1500 << 20))

    code, _, lines = run("04_train_gpt", [word for item in (SMALL_RUN | {"--ranks": "300", "--global-batch": "300"}).items() for word in item], limits=little_memory)
    check(code == 2 and len(lines) == 1 and "ranks(300)" in lines[0] and "ulimit -v" in lines[0], f"300 ranks in 1.5 GB: {code} {lines}")

    # ---- signals ------------------------------------------------------------------------------------------------------------------
    for name, extra, ready in [("during the sample", {"--steps": "1", "--sample": "100000000"}, "validation"), ("while it trains", {"--steps": "100000000"}, "step")]:
        for number in (signal.SIGINT, signal.SIGTERM):
            process = subprocess.Popen([path_of("04_train_gpt"), *[word for item in (SMALL_RUN | extra).items() for word in item], "--json", "--validate-every", "0"],
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=clean, cwd=scratch)
            events = []
            for line in process.stdout:
                events.append(json.loads(line)["event"])
                if events[-1] == ready:
                    break
            time.sleep(0.3)
            begin = time.monotonic()
            process.send_signal(number)
            try:
                out, err = process.communicate(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                out, err = process.communicate()
            last = [json.loads(line) for line in out.splitlines()][-1:]
            check(process.returncode == table["Ctrl-C or SIGTERM"] and last and last[0]["event"] == "interrupted" and err == "" and time.monotonic() - begin < 10,
                  f"{number.name} {name}: {process.returncode} {last} {err}")

shutil.rmtree(scratch)
finish()
