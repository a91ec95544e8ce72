# SPDX-License-Identifier: Apache-2.0
"""The reader of flight records: of programs in which a rank stands still, disagrees, is lost or waits in a circle, as threads, under mpirun and
over TCP; and of files written here, whole and damaged."""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.environ.get("WEFT_SOURCE", "."), "tests", "support"))
from checks import check, finish

TOOL = os.path.join(os.environ["WEFT_EXAMPLES"], "flight")
if not os.path.exists(TOOL):
    print("built without nlohmann's JSON: no tool")
    sys.exit(77)
program = os.path.join(os.environ["WEFT_BUILD"], "tests", "program_ending")
foreign = ("WEFT_RANKS", "WEFT_TIMEOUT_S", "WEFT_STOP_S", "WEFT_FLIGHT", "RANK", "WORLD_SIZE", "MASTER_", "OMPI_COMM", "PMI", "SLURM_", "TORCHELASTIC")
clean = {k: v for k, v in os.environ.items() if not k.startswith(foreign)}
scratch = pathlib.Path(tempfile.mkdtemp(prefix="weft-flight-"))
symbols = subprocess.run(["nm", "-C", program], capture_output=True, text=True).stdout
launchers = {"threads": []}
if "MPI_Init_thread" in symbols:
    launchers["mpi"] = [os.environ["WEFT_MPIRUN"], "3"]
launchers["tcp"] = [os.environ["WEFT_TORCHRUN"], "3"]


def flight(folder, limit=30):
    """Exit code, lines of standard output, standard error."""
    ended = subprocess.run([TOOL, str(folder)], capture_output=True, text=True, errors="replace", timeout=limit)
    return ended.returncode, ended.stdout.splitlines(), ended.stderr


def start(backend, how, folder):
    command = [*launchers[backend], program, how, *(["3"] if backend == "threads" else [])]
    return subprocess.Popen(command, env=clean | {"WEFT_FLIGHT_DIR": str(folder), "WEFT_TIMEOUT_S": "1"}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            text=True, errors="replace", start_new_session=True)


def begun(process):
    """Returns when the ranks wait, in less time than their deadline."""
    while (line := process.stdout.readline()) and "ranks as" not in line:
        pass
    time.sleep(0.5)


def output_of(process, limit=20):
    try:
        return process.communicate(timeout=limit)[0]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return process.communicate()[0]


def ranks_of(folder):
    """The processes of the ranks of a run."""
    found = {}
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            variables = dict(part.split(b"=", 1) for part in (entry / "environ").read_bytes().split(b"\0") if b"=" in part)
        except (OSError, ValueError):
            continue
        if words and words[0] == program.encode() and variables.get(b"WEFT_FLIGHT_DIR") == str(folder).encode():
            found[int(variables.get(b"RANK", variables.get(b"OMPI_COMM_WORLD_RANK", b"0")))] = int(entry.name)
    return found


# ---- programs ---------------------------------------------------------------------------------------------------------------------
barrier = re.escape("barrier() on world[0,1,2]") + r"(\.1)?, collective \d+"
endings = {
    "absent": rf"rank 2 (stands still|has no file): .*ranks 0, 1 wait for it in {barrier}, for \d+\.\d+ s",
    "throw": rf"rank 2 stands still: ranks? [01](, 1)? waits? for it in {barrier}, for .*its file has: boom\?in two lines",
    "mismatch": r"ranks disagree at collective \d+ of world\[0,1,2\](\.\d+)?: ranks 1, 2 called all_reduce\(sum\) of 20000 float32; rank 0 called barrier\(\)",
    "circle": r"ranks wait for each other in a circle: rank 0 in barrier\(\) on tp\[0,1,2\](\.\d+)?, collective \d+, for rank 1; rank 1 in barrier\(\) on "
              r"dp\[0,1,2\](\.\d+)?, collective \d+, for rank 0 ",
}
for backend in launchers:
    together = {how: start(backend, how, scratch / f"{backend}-{how}") for how in endings}
    for how, expected in endings.items():
        folder, process = scratch / f"{backend}-{how}", together[how]
        if backend == "tcp" and how == "absent":  # rank 2 is never told: a user ends it, with the others' files there
            begin = time.monotonic()
            while len(list(folder.glob("*.json"))) < 2 and time.monotonic() - begin < 15:
                time.sleep(0.05)
            os.killpg(process.pid, signal.SIGKILL)
        out = output_of(process)
        code, lines, err = flight(folder)
        check(code == 1 and any(re.match(expected, line) for line in lines) and err == "", f"{backend}, {how}: {code} {lines} {err}\n{out}")
        check(lines and lines[0].startswith(f"3 ranks over {backend}, files of "), f"{backend}, {how}: {lines}")
        check(sum(line.startswith("oldest open call: rank ") for line in lines) == 1, f"{backend}, {how}: {lines}")

for backend in launchers:
    for how in ("absent", "unheeded"):  # SIGTERM, once to each process
        folder = scratch / f"{backend}-{how}-stopped"
        process = start(backend, how, folder)
        begun(process)
        for pid in ranks_of(folder).values():
            os.kill(pid, signal.SIGTERM)
        out = output_of(process)
        code, lines, err = flight(folder)
        check(lines[:1] == [f"3 ranks over {backend}, files of 3 of them"], f"SIGTERM, {backend}, {how}: {code} {lines} {err}\n{out}")
        if how == "absent":
            check(code == 1 and any(line.startswith("rank 2 stands still: ranks 0, 1 wait for it in barrier()") for line in lines), f"SIGTERM, {backend}: {lines}")
        else:
            check(code == 0 and lines[-1] == "nothing suspicious: no rank waits for another one", f"SIGTERM in motion, {backend}: {lines}")

for backend in launchers:
    if backend != "threads":  # a process that is killed leaves no file
        folder = scratch / f"{backend}-killed"
        process = start(backend, "absent", folder)
        begun(process)
        ranks = ranks_of(folder)
        if 2 in ranks:
            os.kill(ranks[2], signal.SIGKILL)
        out = output_of(process)
        code, lines, err = flight(folder)
        check(code == 1 and any(line.startswith("rank 2 has no file: it was lost, or stands still and got no notice to end; ranks 0, 1 wait for it in barrier()")
                                for line in lines), f"SIGKILL, {backend}: {code} {lines} {err}\n{out}")


# ---- files that are written here ----------------------------------------------------------------------------------------------


def record(rank, world=3, calls=(), started=(), reason="weft: an error", written=10**18, begun=None, groups=None):
    """A rank's file. `calls`: (communicator, text), or (communicator, text, peer, tag) of a message; `started`: those that are open."""
    groups = {name: ranks for name, ranks in (groups or {"world": list(range(world))}).items() if rank in ranks or rank >= world}
    names = list(groups)
    count = dict.fromkeys(names, 0)
    entries = []
    for k, (group, call, *message) in enumerate(calls):
        count[group] += not message
        entry = {"record_id": k, "pg_id": names.index(group), "process_group": [group, group], "collective_seq_id": 0 if message else count[group], "p2p_seq_id": 0,
                 "profiling_name": "weft:" + re.match(r"\w+", call)[0], "call": call, "is_p2p": bool(message), "state": "started" if k in started else "completed",
                 "time_created_ns": written - 3 * 10**9, "time_discovered_completed_ns": None if k in started else written - 2 * 10**9}
        if message:
            entry |= {"peer": message[0], "tag": message[1]}
        entries.append(entry)
    return {"format": "weft flight 1", "weft": "0.1.0", "rank": rank, "world_size": world, "backend": "threads", "pid": 1, "reason": reason,
            "time_written_ns": written, "monotonic_written_ns": 1, "pg_config": {str(k): {"name": n, "desc": n, "ranks": groups[n]} for k, n in enumerate(names)},
            "pg_status": {str(k): {"last_enqueued_collective": (begun or count)[n], "last_completed_collective": 0} for k, n in enumerate(names)}, "entries": entries}


def folder_of(name, records):
    folder = scratch / name
    folder.mkdir()
    for rank, one in enumerate(records):
        if one is not None:
            (folder / f"weft_flight_{rank}.json").write_text(one if isinstance(one, str) else json.dumps(one))
    return folder


def says(name, records, code, *parts):
    found, lines, err = flight(folder_of(name, records))
    check(found == code and err == "" and all(any(part in line for line in lines) for part in parts), f"{name}: {found} {lines} {err}")
    return lines


reduce, pair = ("world", "all_reduce(sum) of 4 float32"), {"world": [0, 1, 2], "pp[0,1]": [0, 1], "pp[1,2]": [1, 2]}
says("done", [record(r, calls=[reduce] * 3) for r in range(3)], 0, "nothing suspicious")
says("all there", [record(r, calls=[reduce] * 3, started=[2]) for r in range(3)], 0, "nothing suspicious", "oldest open call: rank 0 in all_reduce(sum) of 4 float32 on world, collective 3, for 3.000 s")
# A rank that stood still, and went on before its file was written, is in the call by then: its beginning shows it.
for late, reason, code in [(2.5, "weft: an error", 1), (1.4, "weft: an error", 0), (2.5, "interrupted by SIGTERM", 0)]:
    released = [record(r, calls=[reduce] * 3, started=[2], reason=reason) for r in range(3)]
    released[1]["entries"][2]["time_created_ns"] += int(late * 10**9)
    says(f"released {late} {code}", released, code, "rank 1 stood still and went on: ranks 0, 2 waited for it in all_reduce(sum) of 4 float32 on world, collective 3, "
         "for 2.500 s until it came" if code else "nothing suspicious")
# A rank is behind if it has begun fewer calls, also if the ring has none of them any more, or has not split yet.
says("behind", [record(0, calls=[reduce] * 3, started=[2]), record(1, calls=[], begun={"world": 2}), record(2, calls=[reduce] * 3, started=[2])], 1,
     "rank 1 stands still: ranks 0, 2 wait for it in all_reduce(sum) of 4 float32 on world, collective 3, for 3.000 s; it has begun nothing")
says("not split", [record(0, 2, calls=[("tp[0,1]", "barrier()")], started=[0], groups={"world": [0, 1], "tp[0,1]": [0, 1]}), record(1, 2)], 1, "rank 1 stands still: rank 0 waits")
# In an interrupted run, waits shorter than 0.1 s before a rank's file are normal.
for wait, reasons, code in [(50, ("SIGTERM", "SIGTERM"), 0), (50, ("", "SIGINT"), 0), (50, ("", ""), 1), (150, ("SIGTERM", "SIGTERM"), 1)]:
    moving = [record(0, 2, calls=[reduce] * 3, started=[2], reason="weft: rank 0: interrupted by " + reasons[0]), record(1, 2, calls=[reduce] * 2, reason="interrupted by " + reasons[1])]
    moving[0]["entries"][2]["time_created_ns"] = 10**18 - wait * 10**6
    says(f"moving {wait} {reasons}", moving, code, "rank 1 stands still: rank 0 waits" if code else "nothing suspicious")
# A chain of messages: a rank that itself waits does not stand still.
chain = [record(0, calls=[("pp[0,1]", "send of 4 float32 with tag 1", 1, 1)] * 2, groups=pair),
         record(1, calls=[("pp[0,1]", "recv of 4 float32 with tag 1", 0, 1)] * 3, started=[2], groups=pair),
         record(2, calls=[("pp[1,2]", "recv of 4 float32 with tag 1", 1, 1)], started=[0], groups=pair)]
lines = says("chain", chain, 1, "rank 0 stands still: rank 1 waits for it in recv of 4 float32 with tag 1 from rank 0 on pp[0,1], for 3.000 s")
check(sum("stands still" in line for line in lines) == 1, lines)
chain[0]["entries"].append(dict(chain[0]["entries"][1], record_id=2))
chain[1]["entries"][2]["call"] = "recv of 5 float32 with tag 1"
says("sizes", chain, 1, "ranks disagree at message 3 of pp[0,1]: rank 0 called send of 4 float32 with tag 1 to rank 1; rank 1 called recv of 5 float32 with tag 1 from rank 0",
     "rank 1 stands still: rank 2 waits for it", "has all its ranks and is not complete")
says("no files", [record(0, 5, calls=[reduce], started=[0], groups={"world": [0, 1, 2, 3, 4]}), None, None, None, None], 1, "rank 4 has no file", "rank 0 waits for it")
says("nobody waits", [None, record(1), None], 1, "ranks 0, 2 have no file")
says("other axis", [record(r, 2, calls=[("world", "barrier()"), ("world", f"broadcast of 4 float32 with root {r}")]) for r in range(2)], 1,
     "ranks disagree at collective 2 of world: rank 0 called broadcast of 4 float32 with root 0; rank 1 called broadcast of 4 float32 with root 1")
# Nobody's terminal is written to by a file.
lines = says("escape", [record(r, reason="\x1b[2J\nrank 7 stands still: \u00e9") for r in range(3)], 0, "first file: rank 0's: ?[2J?rank 7")
check(not any("\x1b" in line for line in lines), lines)


# ---- bad input ---------------------------------------------------------------------------------------------------------------------


def refused(name, records, *parts):
    folder = records if isinstance(records, pathlib.Path) else folder_of("bad " + name, records)
    begin = time.monotonic()
    code, lines, err = flight(folder)
    check(code == 2 and lines == [] and err.count("\n") == 1 and err.startswith("weft: flight: ") and all(part in err for part in parts), f"{name}: {code} {lines} {err!r}")
    check(time.monotonic() - begin < 10, f"{name}: {time.monotonic() - begin:.1f} s")


whole = json.dumps(record(0))
for size in (0, 1, len(whole) // 2, len(whole) - 1):
    refused(f"truncated {size}", [whole[:size]], "weft_flight_0.json': it is no JSON: ")
refused("zero byte", [whole + "\0"], "a byte of value 0")
refused("foreign", ['{"version": "2.3", "entries": []}'], 'its format is not "weft flight 1"')
refused("a list", ["[" * 1_000_000], "it is no JSON")
refused("nested", ["[" * 1_000_000 + "]" * 1_000_000], 'its format is not')
refused("later", [whole.replace("flight 1", "flight 2")], 'its format is not "weft flight 1"')
refused("too large", [whole + " " * (17 << 20)], "a flight recorder's file has at most 16777216")
refused("entries", [whole.replace('"entries": []', '"entries": [' + "{}," * 999_999 + "{}]")], "it has 1000000 entries, at most 65536 are read")
refused("world", [dict(record(0), world_size=10**9)], "world_size is no whole number from 1 to 100000")
refused("no reason", [{k: v for k, v in record(0).items() if k != "reason"}], "it has no reason")
refused("name", [None, record(0)], "it is of rank 0, and its name of rank 1")
refused("rank", [record(3)], "rank is no whole number from 0 to 2")
refused("two worlds", [record(0, 3), record(1, 4)], "weft_flight_1.json': it is of a job of 4 ranks over threads")
refused("other members", [record(0, 3), record(1, 3, groups={"world": [1, 2]})], "its communicator world has other ranks than another file's")
refused("members", [record(0, 3, groups={"world": [0, 0, 1]})], "holds a rank twice, or not its own")
refused("no member", [record(0, 3, groups={"world": [0, 3]})], "holds a number that is no rank of 3")
refused("older", [record(0, 2, calls=[reduce] * 2), record(1, 2, calls=[reduce], written=10**18 - 86400 * 10**9)], "weft_flight_1.json': it was written 86398.000 s before rank 0 completed")
minute = 60 * 10**9
refused("a minute older", [record(0, 2, calls=[reduce] * 2), record(1, 2, calls=[reduce], written=10**18 - minute)], "weft_flight_1.json': it was written 58.000 s before rank 0 completed")
refused("before it began", [dict(record(0, 2), time_started_ns=10**18 - minute // 2), record(1, 2, written=10**18 - minute)], "weft_flight_1.json': it was written 30.000 s before rank 0 began")
says("a minute of stopping", [record(0, 2, calls=[reduce]), record(1, 2, calls=[reduce], written=10**18 - minute, reason="interrupted by SIGTERM")], 0, "nothing suspicious")
for field, value in [("pg_id", 1), ("pg_id", -1), ("pg_id", 0.5), ("pg_id", 2**64 - 1), ("pg_id", 10**400), ("call", 3), ("is_p2p", "no"), ("state", "lost"), ("collective_seq_id", 2), ("collective_seq_id", 0),
                     ("time_created_ns", None), ("record_id", [])]:
    one = record(0, calls=[reduce])
    one["entries"][0][field] = value
    refused(f"{field} {str(value)[:30]}", [one], "weft_flight_0.json': ")
for field, value in [("pg_config", []), ("pg_status", {}), ("entries", {}), ("pg_config", {"0": 3}), ("pg_config", {"7": {}}), ("time_written_ns", -1)]:
    refused(f"{field} {value}", [dict(record(0), **{field: value})], "weft_flight_0.json': ", field)
folder = folder_of("fifo", [None])
os.mkfifo(folder / "weft_flight_0.json")
refused("fifo", folder, "it is a FIFO")
folder = folder_of("link", [None])
(folder / "weft_flight_0.json").symlink_to("/dev/zero")
refused("device", folder, "it is a FIFO, a socket or a device")
folder = folder_of("folders", [None])
(folder / "weft_flight_0.json").mkdir()
refused("folder", folder, "it is a folder")
refused("nothing", folder_of("empty", []), "holds no weft_flight_RANK.json")
refused("no folder", scratch / "no", "No such file or directory")
(scratch / "file").write_text("")
refused("a file", scratch / "file", "Not a directory")
for words in ([], ["a", "b"], ["--no-such-option"], [""]):
    ended = subprocess.run([TOOL, *words], capture_output=True, text=True, timeout=10)
    check(ended.returncode == 2 and ended.stdout == "" and "the argument is the folder that WEFT_FLIGHT_DIR named" in ended.stderr, f"{words}: {ended}")
shutil.rmtree(scratch)
finish()
