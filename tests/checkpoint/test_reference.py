# SPDX-License-Identifier: Apache-2.0
# covers: weft/checkpoint/safetensors.hpp weft/checkpoint/json.hpp
"""weft's reader of safetensors files beside the reference's, the package `safetensors` of PyPI: no file that the reference refuses is
accepted, files that both accept hold the same tensors, and files that only weft refuses are refused for a reason that is listed
here. The files are the vectors of the reference's unit tests, and mutations of small files.

    test_reference.py            4,000 mutated files
    test_reference.py 100000     as many
"""
import collections
import json
import os
import pathlib
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile

VERSION = "0.8.0"
EXCEPTIONS = {  # what weft refuses and the reference accepts
    "a header that begins with white space": r"its header does not begin with \{",
    "a dtype that weft does not have": r"its dtype is (F4|F6_E2M3|F6_E3M2|F8_\w+|C64), which weft does not support",
    "a field beside dtype, shape and data_offsets": r"has a field .*, which is none of dtype, shape and data_offsets",
    "a tensor's name twice": r"the header has this key twice",
    "a key of __metadata__ twice": r"__metadata__ has the key .* twice",
    "__metadata__ that is null": r"its JSON has null where none belongs",
    "a tensor as an array of its fields": r"its JSON has an array where none belongs",
    "a name of more than 4,096 bytes": r"name has \d+ bytes, more than 4096|a key of __metadata__ has \d+ bytes, more than 4096",
    "more than 32 dims": r"has more than 32 dims",
}

program = os.environ.get("WEFT_READ_FILES") or str(pathlib.Path(os.environ["WEFT_BUILD"]) / "tests" / "program_read_files")
scratch = pathlib.Path(tempfile.mkdtemp(prefix="weft_reference_"))


def skip(why):
    print(f"skipped: {why}")
    shutil.rmtree(scratch, ignore_errors=True)
    sys.exit(77)


def reference():
    """The package, in a folder of this test's if it is not installed."""
    try:
        import safetensors
        if safetensors.__version__ == VERSION:
            return safetensors
    except ImportError:
        pass
    done = subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--disable-pip-version-check", "--target", str(scratch / "package"),
                           f"safetensors=={VERSION}"], capture_output=True, text=True)
    if done.returncode:
        skip(f"safetensors {VERSION} cannot be installed here: {done.stderr.strip()[-300:]}")
    sys.path.insert(0, str(scratch / "package"))
    sys.modules.pop("safetensors", None)
    import safetensors
    return safetensors


def with_length(header, data=b"", announced=None):
    header = header if isinstance(header, bytes) else header.encode()
    return struct.pack("<Q", len(header) if announced is None else announced) + header + data


def tensor(dtype="F32", shape="[1]", offsets="[0,4]"):
    return f'{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}'


def one(*fields):
    return f'{{"test":{tensor(*fields)}}}'


# (bytes, whether the reference accepts them). The first ones are those of its tests, by their names there.
four, many = "[2,2]", 2**63 - 1
VECTORS = {
    "deserialization": (with_length(one("I32", four, "[0,16]"), bytes(16)), True),
    "empty": (with_length("{}"), True),
    "empty, forced alignment": (with_length("{}      "), True),
    "metadata": (with_length('{"__metadata__":{"framework":"pt"}}'), True),
    "metadata only, padded": (with_length('{"__metadata__":{"framework":"pt"}}     '), True),
    "white space at the end": (with_length(one("I32", four, "[0,16]") + "     ", bytes(16)), True),
    "unusual alignment": (with_length('{"test":' + tensor("F32", "[1]", "[0,4]") + "} ", bytes(4)), True),
    "two tensors out of order": (with_length(f'{{"b":{tensor("U8", "[3]", "[2,5]")},"a":{tensor("F16", "[1]", "[0,2]")}}}', bytes(5)), True),
    "lifetimes": (with_length(one("I32", four, "[0,16]"), bytes(range(16))), True),
    "a tensor of no elements": (with_length(one("I32", "[2,0]", "[0,0]")), True),
    "zero-sized beside others": (with_length(f'{{"z":{tensor("F32", "[0]", "[0,0]")},"a":{tensor("U8", "[1]", "[0,1]")},"y":{tensor("I8", "[0]", "[1,1]")}}}', b"x"), True),
    "a scalar": (with_length(one("F32", "[]", "[0,4]"), bytes(4)), True),
    "no bytes": (b"", False),
    "header too small": (b"\0" * 7, False),
    "header too large": (struct.pack("<Q", 2**32 + 1) + b"{", False),
    "header too large, and there": (with_length("{}", b"", 100_000_001), False),
    "header of the largest number": (with_length("{}", b"", 2**64 - 1), False),
    "invalid header length": (struct.pack("<Q", 60) + b"{}", False),
    "invalid header, not UTF-8": (struct.pack("<Q", 1) + b"\xff", False),
    "invalid header start": (with_length("not JSON"), False),
    "invalid header, no JSON": (with_length("{"), False),
    "empty header": (with_length(""), False),
    "header that is an array": (with_length("[]"), False),
    "zeros after the header's JSON": (with_length(b"{}\0\0"), False),
    "metadata incomplete buffer": (with_length(one("I32", four, "[0,16]"), bytes(16) + b"extra bytes"), False),
    "buffer too short": (with_length(one("I32", four, "[0,16]"), bytes(15)), False),
    "a hole at the start": (with_length(one("I32", four, "[4,20]"), bytes(20)), False),
    "a hole between": (with_length(f'{{"a":{tensor()},"b":{tensor("F32", "[1]", "[8,12]")}}}', bytes(12)), False),
    "overlapping": (with_length(f'{{"a":{tensor()},"b":{tensor("F32", "[1]", "[2,6]")}}}', bytes(6)), False),
    "the same bytes twice": (with_length(f'{{"a":{tensor()},"b":{tensor()}}}', bytes(4)), False),
    "offsets the other way round": (with_length(one("F32", "[1]", "[4,0]"), bytes(4)), False),
    "invalid info: bytes that the shape does not make": (with_length(one("I32", four, "[0,4]"), bytes(4)), False),
    "invalid info: a wrong dtype": (with_length(one("I16", four, "[0,16]"), bytes(16)), False),
    "validation overflow: elements": (with_length(one("I32", f"[2,{many * 2 + 1}]", "[0,16]"), bytes(16)), False),
    "validation overflow: bytes": (with_length(one("I32", f"[2,{many}]", "[0,16]"), bytes(16)), False),
    "overflow before a zero": (with_length(one("F64", f"[{many},{many},0]", "[0,0]")), False),
    "overflow after a zero": (with_length(one("F64", f"[0,{many},{many}]", "[0,0]")), True),
    "elements that fit, bytes that would not, and a zero": (with_length(one("U64", f"[1,{2**63},0]", "[0,0]")), True),
    "unknown dtype": (with_length(one("F33", "[1]", "[0,4]"), bytes(4)), False),
    "metadata that is no text": (with_length('{"__metadata__":{"a":1}}'), False),
    "a number with a point": (with_length(one("F32", "[1.0]"), bytes(4)), False),
    "an exponent": (with_length(one("F32", "[1e0]"), bytes(4)), False),
    "a negative number": (with_length(one("F32", "[-1]"), bytes(4)), False),
    "zero with a sign": (with_length(one("U8", "[-0]", "[0,0]")), False),
    "an offset of zero with a sign": (with_length(one("U8", "[0]", "[-0,0]")), False),
    "a leading zero": (with_length(one("U8", "[00]", "[0,0]")), False),
    "half a surrogate": (with_length(f'{{"a\\ud800":{tensor()}}}', bytes(4)), False),
    "a byte order mark": (with_length("\ufeff{}"), False),
    "a comment": (with_length("{/**/}"), False),
    "a comma at the end": (with_length(f'{{"a":{tensor()},}}', bytes(4)), False),
    "a field twice": (with_length('{"a":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}}', b"x"), False),
    "no shape": (with_length('{"a":{"dtype":"U8","data_offsets":[0,1]}}', b"x"), False),
    "three offsets": (with_length(one("F32", "[1]", "[0,4,4]"), bytes(4)), False),
    "an index beyond 64 bits": (with_length(one("F32", "[1]", "[0,18446744073709551620]"), bytes(4)), False),
    # Exceptions.
    "white space first": (with_length(" {}"), True),
    "a dtype of 4 bits": (with_length(one("F4", "[2]", "[0,1]"), b"x"), True),
    "another field": (with_length('{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"more":1}}', b"x"), True),
    "a name twice": (with_length(f'{{"a":{tensor()},"a":{tensor()}}}', bytes(4)), True),
    "a key of metadata twice": (with_length('{"__metadata__":{"a":"b","a":"c"}}'), True),
    "metadata null": (with_length('{"__metadata__":null}'), True),
    "fields in an array": (with_length('{"a":["U8",[1],[0,1]]}', b"x"), True),
    "a long name": (with_length(f'{{"{"n" * 4097}":{tensor()}}}', bytes(4)), True),
    "33 dims": (with_length(one("U8", "[" + ",".join("1" * 33) + "]", "[0,1]"), b"x"), True),
}

SIZES = {"BOOL": 1, "U8": 1, "I8": 1, "U16": 2, "I16": 2, "F16": 2, "BF16": 2, "U32": 4, "I32": 4, "F32": 4, "U64": 8, "I64": 8, "F64": 8}
WORDS = [b"0", b"-0", b"-1", b"1.0", b"1e1", b"null", b"true", b'""', b"[]", b"{}", b"18446744073709551615", b"18446744073709551616", b"9223372036854775808", b"F8_E4M3",
         b"C64", b"F33", b'"__metadata__":{},', b'"more":1,', b",", b":", b"\\u0000", b"\\ud83d", b"\xff", b"\xe2\x82", b" ", b"\n", b"\t", b"\x0b", b"/**/", b"NaN", b"01"]


def a_file(draw):
    """A small file that is right: some tensors of some types, in any order in the header."""
    entries, data = [], b""
    for i in range(draw.randrange(4)):
        dtype = draw.choice(list(SIZES))
        shape = [draw.choice([0, 1, 1, 2, 3]) for _ in range(draw.randrange(4))]
        count = SIZES[dtype]
        for extent in shape:
            count *= extent
        entries.append((f"t{i}" + draw.choice(["", ".weight", "\u00e9", "\"", "\\"]), {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + count]}))
        data += draw.randbytes(count)
    if draw.random() < 0.4:
        entries.append(("__metadata__", {"format": "pt", "k": draw.choice(["", "v", "\u20ac"])}))
    draw.shuffle(entries)
    text = json.dumps(dict(entries), separators=draw.choice([(",", ":"), (", ", ": ")]), ensure_ascii=draw.random() < 0.5).encode()
    return text + b" " * draw.choice([0, -len(text) % 8]), data


def mutated(draw):
    header, data = a_file(draw)
    announced = None
    for _ in range(draw.choice([0, 1, 1, 1, 2, 3])):
        kind, at = draw.randrange(9), draw.randrange(len(header))
        numbers = [m.span() for m in re.finditer(rb"\d+", header)]
        if kind == 0:
            header = header[:at] + bytes([header[at] ^ 1 << draw.randrange(8)]) + header[at + 1:]
        elif kind == 1:
            header = header[:at] + header[at + draw.randrange(1, 4):]
        elif kind == 2:
            header = header[:at] + draw.choice(WORDS) + header[at:]
        elif kind == 3 and numbers:
            begin, end = draw.choice(numbers)
            header = header[:begin] + draw.choice([draw.choice(WORDS), str(max(0, int(header[begin:end]) + draw.choice([-1, 1, 4, 2**31, 2**62]))).encode()]) + header[end:]
        elif kind == 4 and b'"dtype"' in header:
            header = re.sub(rb'(?<=:")(BOOL|[UI]\d+|B?F\d+)', draw.choice(list(SIZES) + ["F8_E5M2", "F4", "C64", "f32"]).encode(), header, count=1)
        elif kind == 5:
            begin = draw.randrange(len(header))
            header = header[:at] + header[begin:begin + draw.randrange(1, 40)] + header[at:]
        elif kind == 6:
            data = data[:draw.randrange(len(data) + 1)] if draw.random() < 0.5 else data + draw.randbytes(draw.randrange(1, 9))
        elif kind == 7:
            announced = draw.choice([0, 1, len(header) - 1, len(header) + 1, len(header) + len(data), 100_000_000, 100_000_001, 2**63, 2**64 - 1])
        else:
            header = header.rstrip() + draw.choice([b"", b" ", b"\n", b"\0", b"}", b"{}", b"\r\n\t "])
        if not header:
            break
    out = with_length(header, data, announced)
    return out[:draw.randrange(len(out) + 1)] if draw.random() < 0.03 else out


def by_reference(library, contents):
    """The tensors as (name, dtype, shape, bytes), or None where the reference refuses."""
    try:
        return sorted((name, info["dtype"], list(info["shape"]), bytes(info["data"])) for name, info in library.deserialize(contents))
    except library.SafetensorError:
        return None


def by_weft(line, contents):
    if line.startswith("refused weft: checkpoint: "):
        return None
    if not line.startswith("accepted"):
        raise SystemExit(f"the program printed {line!r}")
    data = 8 + struct.unpack("<Q", contents[:8])[0]
    found = []
    for text in line.split()[1:]:
        name, dtype, shape, begin, end = text.split(":")
        found.append((bytes.fromhex(name).decode(), dtype, [int(n) for n in shape.split(",") if n], contents[data + int(begin):data + int(end)]))
    return sorted(found)


if not os.path.exists(program):
    skip("this build has no weft::checkpoint")
library = reference()
count = int(sys.argv[1]) if len(sys.argv) > 1 else 4000
draw = random.Random(8)
cases = [(name, contents, accepts) for name, (contents, accepts) in VECTORS.items()]
tried, wrong, agreed, accepted, by_reason = 0, 0, 0, 0, collections.Counter()
while cases or tried < count + len(VECTORS):
    while len(cases) < 1000 and tried + len(cases) < count + len(VECTORS):
        cases.append(("mutation", mutated(draw), None))
    for i, (_, contents, _) in enumerate(cases):
        (scratch / str(i)).write_bytes(contents)
    done = subprocess.run([program], input="".join(f"{scratch / str(i)}\n" for i in range(len(cases))), capture_output=True, text=True, errors="replace")
    lines = done.stdout.splitlines()
    if done.returncode or len(lines) != len(cases):
        sys.exit(f"the program ended with {done.returncode} after {len(lines)} of {len(cases)} files: {done.stderr[-2000:]}")
    for (name, contents, accepts), line in zip(cases, lines):
        expected, found = by_reference(library, contents), by_weft(line, contents)
        tried += 1
        fault = None
        if accepts is not None and accepts != (expected is not None):
            fault = "this reference does not do what the list here says"
        elif expected == found:
            agreed += 1
            accepted += found is not None
        elif found is not None:
            fault = "the reference refuses it" if expected is None else "the reference reads other tensors"
        else:
            reason = next((what for what, pattern in EXCEPTIONS.items() if re.search(pattern, line)), None)
            if reason is None:
                fault = "the reference accepts it, and the reason is not listed"
            by_reason[reason] += 1
        if fault:
            wrong += 1
            if wrong <= 20:
                print(f"{name}: {fault}: {contents[:300]!r}\n  weft: {line[:300]}")
    cases = []
shutil.rmtree(scratch, ignore_errors=True)
for reason, times in by_reason.most_common():
    print(f"refused by weft alone: {reason}: {times}")
missing = set(EXCEPTIONS) - set(by_reason)
if missing:
    print(f"exceptions that did not occur: {sorted(missing)}")
print(f"figure 8: {tried} files beside the reference {VERSION} ({len(VECTORS)} vectors; {agreed} agree, {accepted} of them accepted), {wrong} wrong")
sys.exit(1 if wrong or missing or accepted < tried // 20 else 0)
