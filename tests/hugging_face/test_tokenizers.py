# SPDX-License-Identifier: Apache-2.0
"""Tokenizers as GPT-2, Llama 3 and Qwen have them, trained by the package `tokenizers` on text that is made here: weft encodes 10,000 texts of
all scripts, and every code point that Unicode has given out, to the same ids and decodes them to the same text. The package goes into .deps;
ends with 77 and the reason if it cannot be installed.

    ctest --test-dir build/release -R hugging_face/tokenizers -V     # with WEFT_TEST_LONG=1 all code points with every tokenizer
    python3 test_tokenizers.py --write FOLDER     # in an environment with the package: tests/hugging_face/tokenizers
"""
import json
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

TOKENIZERS = "0.23.3"
TEXTS = int(os.environ.get("WEFT_TEST_RUNS", "10000"))
LONG = os.environ.get("WEFT_TEST_LONG") == "1"
SOURCE = pathlib.Path(__file__).resolve().parent.parent.parent

LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN35 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
O200K = "|".join([r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
                  r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
                  r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
PATTERNS = {"llama3": LLAMA3, "qwen2": QWEN2, "qwen3": QWEN2, "qwen35": QWEN35, "o200k": O200K}
SPECIAL = {"gpt2": ["<|endoftext|>"],
           "llama3": ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|reserved_special_token_0|>"],
           "qwen2": ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|vision_pad|>"]}
SPECIAL["qwen3"] = SPECIAL["qwen35"] = SPECIAL["qwen2"]
SPECIAL["o200k"] = ["<|endoftext|>", "<|endofprompt|>"]
SPECIAL["flags"] = SPECIAL["gpt2"]
# First and last code point of scripts, old and new; letters and the characters between them.
SCRIPTS = [(0x20, 0x7e), (0xa0, 0x24f), (0x250, 0x36f), (0x370, 0x3ff), (0x400, 0x52f), (0x530, 0x58f), (0x590, 0x5ff), (0x600, 0x6ff), (0x700, 0x7bf),
           (0x7c0, 0x8ff), (0x900, 0x97f), (0x980, 0xa7f), (0xa80, 0xb7f), (0xb80, 0xc7f), (0xc80, 0xd7f), (0xd80, 0xe7f), (0xe80, 0xfff),
           (0x1000, 0x10ff), (0x1100, 0x11ff), (0x1200, 0x139f), (0x13a0, 0x167f), (0x1680, 0x18af), (0x18b0, 0x1aff), (0x1b00, 0x1cff), (0x1d00, 0x1fff),
           (0x2000, 0x206f), (0x2070, 0x218f), (0x2190, 0x2bff), (0x2c00, 0x2dff), (0x2e80, 0x303f), (0x3040, 0x30ff), (0x3100, 0x33ff), (0x3400, 0x9fff),
           (0xa000, 0xabff), (0xac00, 0xd7ff), (0xe000, 0xfaff), (0xfb00, 0xfdff), (0xfe00, 0xffff), (0x10000, 0x107ff), (0x10800, 0x10fff), (0x11000, 0x117ff),
           (0x11800, 0x12fff), (0x13000, 0x167ff), (0x16800, 0x1bfff), (0x1cf00, 0x1d7ff), (0x1d800, 0x1efff), (0x1f000, 0x1faff), (0x20000, 0x2a6df),
           (0x2ebf0, 0x323af), (0xe0000, 0xe01ef), (0x100000, 0x10ffff)]
EMOJI = ["\U0001f600", "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466", "\U0001f44d\U0001f3fd", "\U0001f1e9\U0001f1ea", "1\ufe0f\u20e3", "\u2764\ufe0f",
         "\U0001f3f4\U000e0067\U000e0062\U000e007f", "\U0001f9d1\u200d\U0001f680", "\u200d", "\ufe0f"]
SPACES = [" ", "  ", "\t", "\n", "\r\n", "\r", "\v", "\f", "\x1c", "\x85", "\xa0", "\u1680", "\u180e", "\u2003", "\u2028", "\u2029", "\u200b", "\u202f", "\u3000", "\ufeff"]
CONTRACTIONS = ["it's", "IT'S", "we'LL", "I'm", "don't", "they'Re", "'ve", "x'd", "'s's", "\u2019s", "a'\u017f", "A'\u212a", "''ll", "'", "'r", "can'T've"]
CODE = ["def f(x):\n    return x[1:-1] + 'a'\n", "if (a != b) {\n\t\tc();\n\t}\n\n\n", "#include <a.h>\r\n\r\n", "x = 3.14159e-10;", "https://a.b/c?d=e&f=%20#g", "{{\"a\": [1, 2]}}", "----\n===="]
MARKS = [0x300, 0x301, 0x302, 0x303, 0x307, 0x308, 0x30a, 0x31b, 0x323, 0x327, 0x328, 0x334, 0x338, 0x345, 0x5b0, 0x5bc, 0x64b, 0x651, 0x93c, 0x9be, 0xdcf, 0x3099, 0x309a,
         0x1161, 0x11a8, 0x8d3, 0x897, 0x1abf, 0x1df6, 0x10eab, 0x11930, 0x113c9, 0x1d165]
BASES = "aAeEoOuUcCsSnNdDyYkK<>=\u03b1\u03c9\u0418\u0438\u0915\u09c7\u304b\u30cf\u1100\uac00\uadf8\u1e9b\u212b\u0344\u0958\u2adc\ufb1d\uf900\u01d5\u1ea5"


def skip(why):
    print(f"skipped: {why}")
    sys.exit(77)


def character(random, script):
    code = random.randint(*script)
    return "\ufffd" if 0xd800 <= code < 0xe000 else chr(code)


def word(random):
    script = random.choice(SCRIPTS[:8] if random.random() < 0.4 else SCRIPTS)
    return "".join(character(random, script) for _ in range(random.randint(1, 12)))


def piece(random, special):
    kind = random.randrange(16)
    if kind < 3:
        return random.choice(["", " "]) + word(random)
    if kind == 3:
        return random.choice(EMOJI) * random.randint(1, 3)
    if kind == 4:
        return random.choice(BASES) + "".join(chr(random.choice(MARKS)) for _ in range(random.randint(1, 5)))
    if kind == 5:
        return "".join(random.choice(SPACES) for _ in range(random.randint(1, 6)))
    if kind == 6:
        return random.choice(SPACES) * random.choice([1, 3, 17, 150])
    if kind == 7:
        return str(random.randrange(10 ** random.randint(1, 30))) + random.choice(["", ".", ",", "\u0663\u0664", "\u00bd", "\u2167"])
    if kind == 8:
        return random.choice(["", " "]) + random.choice(CONTRACTIONS)
    if kind == 9:
        return random.choice(CODE)
    if kind == 10:
        return chr(random.randrange(32)) + chr(random.randrange(127, 160))
    if kind == 11:
        token = random.choice(special)
        return random.choice(["", " ", "\n", "a", "\u00e9", "\u3000 "]) + (token if random.random() < 0.8 else token[:random.randint(1, len(token))]) + random.choice(["", " ", "x", "_", "\t\n"])
    if kind == 12:
        return character(random, (0, 0x10ffff))
    if kind == 13:
        return random.choice("aXzé啊.!-") * random.choice([2, 7, 50, 300])
    return random.choice(["the", " the", " of", " weft", "Hello", " world", ", ", ". ", "\n\n", "ing", " tokenizer", " straße", " naïve", " 你好", "世界", "こんにちは", " привет", " مرحبا", " नमस्ते"])


def texts(seed, count, special):
    random_ = random.Random(seed)
    yield ""
    for _ in range(count - 1):
        yield "".join(piece(random_, special) for _ in range(random_.choice([1, 1, 2, 3, 6])))


def every_code_point():
    """So that a letter, a number, a mark or a space that is none here gives other words. In the short form not those of empty planes."""
    some = []
    for code in range(0x110000):
        if not 0xd800 <= code < 0xe000 and (LONG or code < 0x33500 or 0xe0000 <= code < 0xe0200 or code % 97 == 0):
            some.append(f" a{chr(code)}\u0301 {chr(code)}\u0323\u0301 1{chr(code)}!")
        if len(some) == 256:
            yield "".join(some)
            some = []
    yield "".join(some)


def trained(kind, size=1500):
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

    tokenizer = Tokenizer(models.BPE(ignore_merges=kind == "llama3"))
    if kind in ("gpt2", "flags"):
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=kind == "flags")
        tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    else:
        split = pre_tokenizers.Split(Regex(PATTERNS[kind]), "isolated", False)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
        tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    if kind.startswith("qwen") or kind == "flags":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.decoder = decoders.ByteLevel()
    in_vocabulary = SPECIAL[kind] if kind in ("gpt2", "flags") else []
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=in_vocabulary, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False)
    tokenizer.train_from_iterator(texts(1, 3000, ["."]), trainer)
    tokenizer.add_special_tokens(SPECIAL[kind])
    if kind == "llama3":
        begin = "<|begin_of_text|>"
        template = processors.TemplateProcessing(single=f"{begin} $A", pair=f"{begin} $A {begin}:1 $B:1", special_tokens=[(begin, tokenizer.token_to_id(begin))])
        tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template])
        # Whole words without merges: the purpose of ignore_merges.
        model = json.loads(tokenizer.to_str())
        model["model"]["merges"] = [m for i, m in enumerate(model["model"]["merges"]) if i % 3 or i < 300]
        names = {a + b for a, b in model["model"]["merges"]}
        model["model"]["merges"] = [(a, b) for a, b in model["model"]["merges"] if all(len(x) == 1 or x in names for x in (a, b))]
        tokenizer = Tokenizer.from_str(json.dumps(model))
    if kind == "qwen3":
        tokenizer.add_tokens([AddedToken(t, normalized=False, special=False) for t in ("<think>", "</think>", "<tool_call>", "</tool_call>")])
        SPECIAL[kind] = SPECIAL["qwen2"] + ["<think>", "</think>", "<tool_call>"]
    if kind == "flags":
        flags = [AddedToken("<left>", lstrip=True, normalized=False), AddedToken("<right>", rstrip=True, normalized=False),
                 AddedToken("<both>", lstrip=True, rstrip=True, special=True, normalized=True), AddedToken("word", single_word=True, normalized=True),
                 AddedToken("caf\u00e9", normalized=True), AddedToken("cafe\u0301s", normalized=False), AddedToken("re\u0301sume", normalized=True),
                 AddedToken("<left><", normalized=False), AddedToken("  ", normalized=True, rstrip=True), AddedToken("\u5b57", single_word=True)]
        tokenizer.add_tokens(flags)
        SPECIAL[kind] = SPECIAL["gpt2"] + [str(flag.content) for flag in flags] + ["cafe\u0301", "CAF\u00c9word", " word ", "wordy", "<left>  <right>", "<left><right>"]
    return tokenizer


def spelled_as_text(tokenizer_json):
    """The older spelling of merges, and a file without the parts that files of 2020 lack."""
    parsed = json.loads(tokenizer_json)
    parsed["model"]["merges"] = [" ".join(pair) for pair in parsed["model"]["merges"]]
    for field in ("type", "byte_fallback", "ignore_merges"):
        del parsed["model"][field]
    return json.dumps(parsed, ensure_ascii=False)


def packed(all_texts):
    return b"".join(struct.pack("I", len(text.encode())) + text.encode() for text in all_texts)


def unpacked(data, count):
    at = 0
    for _ in range(count):
        result = []
        for form in "iibb":
            (length,) = struct.unpack_from("I", data, at)
            at += 4
            width = 4 if form == "i" else 1
            part = data[at:at + length * width]
            at += length * width
            result.append(list(struct.unpack(f"{length}i", part)) if form == "i" else part.decode())
        yield result


def compare(program, kind, folder):
    tokenizer = trained(kind)
    text = spelled_as_text(tokenizer.to_str()) if kind == "gpt2" else tokenizer.to_str()
    if kind == "gpt2":
        type(tokenizer).from_str(text)  # the package takes it, too
    (folder / "tokenizer.json").write_text(text)
    faults = 0
    sets = [("random texts", list(texts(2, TEXTS, SPECIAL[kind])))]
    if LONG or kind in ("gpt2", "qwen2", "o200k"):
        sets.append(("texts with every code point", list(every_code_point())))
    for what, some in sets:
        (folder / "texts").write_bytes(packed(some))
        ran = subprocess.run([program, folder, folder / "texts", folder / "out"], capture_output=True, text=True)
        if ran.returncode:
            print(f"failed: {kind}: {ran.stdout}{ran.stderr}")
            return 1
        count = different = 0
        for text, (ids, plain, whole, short) in zip(some, unpacked((folder / "out").read_bytes(), len(some))):
            theirs = tokenizer.encode(text).ids
            # Only a template makes a difference.
            without = tokenizer.encode(text, add_special_tokens=False).ids if kind == "llama3" else theirs
            other = [name for name, ours, reference in (("ids", ids, theirs), ("ids without special tokens", plain, without),
                     ("text", whole, tokenizer.decode(theirs, skip_special_tokens=False)), ("text without special tokens", short, tokenizer.decode(theirs)))
                     if ours != reference]
            count += len(theirs)
            different += bool(other)
            if other and different <= 3:
                print(f"failed: {kind}: {', '.join(other)} of {text[:200]!r}: {ids[:40]}, the package has {theirs[:40]}")
        print(f"{kind}: {len(some)} {what}, {count} ids, {different} differ")
        faults += different
    return faults


GOLDEN = ["", "Hello, world! It's 2024, we'LL see.", " leading and  two   three spaces \n\n\tand tabs\r\nx", "naïve café cafe\u0301 re\u0301sume\u0301 Ångström A\u030angstro\u0308m",
          "你好,世界。こんにちは か\u3099 привет мир مرحبا नमस्ते 안녕 \u1112\u1161\u11ab", "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f44d\U0001f3fd 1\ufe0f\u20e3 \U0001f1e9\U0001f1ea",
          "12345678901 3.14 \u0663\u0664\u0665 x\u00b2 \u2167", "a\u180eb\u2003c\u0085d\u2028e\ufefff\u200bg", "\x00\x01\x7f\x1c|\x1f", "z" * 100 + " " * 60 + "!" * 50,
          "\U00031350\U000323af \U0001e4d0 \U00010d40\U00010d41 \u1c89 e\u08d3\u0301 \U00011935\U00011930", "def f(x):\n    return x[1:-1] # it's\n\n\n", "(\u017f 'S '\u017f don'T", "camelCaseWORDsX HTTPServer's \u01c5\u02b0\u00aa e\u0301E\u0301 \u0915\u093f \U0001e030\U0001e08f \U00010d50\U00010d70\U00010d69 a/b//\n",
          "<|im_start|>user\nHi<|im_end|> <|begin_of_text|><|endoftext|>x<|eot_id|> <|im_sta <think>hm</think>", " a <left>b<right>  c <both> d word swords word,caf\u00e9 cafe\u0301s <left><x  \n<left><right>\u5b57\u5b57 \u5b57"]


def write(folder):
    """Small tokenizers, and the package's ids of a few texts."""
    for kind in ("gpt2", "llama3", "qwen3", "qwen35", "o200k", "flags"):
        tokenizer = trained(kind, 330)
        text = spelled_as_text(tokenizer.to_str()) if kind == "gpt2" else tokenizer.to_str()
        encoded = []
        for one in GOLDEN:
            ids = tokenizer.encode(one).ids
            encoded.append({"text": one, "ids": ids, "plain": tokenizer.encode(one, add_special_tokens=False).ids, "whole": tokenizer.decode(ids, skip_special_tokens=False),
                            "short": tokenizer.decode(ids)})
        (folder / f"{kind}.json").write_text(json.dumps(json.loads(text)) + "\n")
        (folder / f"{kind}_ids.json").write_text("[\n" + ",\n".join(map(json.dumps, encoded)) + "\n]\n")


def environment():
    own = SOURCE / ".deps/tokenizers"
    python, stamp = own / "bin/python", own / f"installed-{TOKENIZERS}"
    if not stamp.exists():
        made = subprocess.run([sys.executable, "-m", "venv", "--clear", own], capture_output=True, text=True)
        if made.returncode:
            skip(f"no environment for `tokenizers`: {made.stderr or made.stdout}")
        installed = subprocess.run([python, "-m", "pip", "install", "--disable-pip-version-check", "--no-input", "-q", f"tokenizers=={TOKENIZERS}"], capture_output=True, text=True)
        if installed.returncode:
            skip(f"`tokenizers` {TOKENIZERS} cannot be installed: {installed.stderr.strip().splitlines()[-1:]}")
        stamp.touch()
    return python


def main():
    if len(sys.argv) == 3 and sys.argv[1] == "--compare":
        with tempfile.TemporaryDirectory() as place:
            sys.exit(1 if sum(compare(sys.argv[2], kind, pathlib.Path(place)) for kind in SPECIAL) else 0)
    if len(sys.argv) == 3 and sys.argv[1] == "--write":
        return write(pathlib.Path(sys.argv[2]))
    program = pathlib.Path(os.environ["WEFT_BUILD"]) / "tests/program_tokenize"
    if not program.exists():
        skip("built without what weft::tokenizer needs")
    sys.exit(subprocess.run([environment(), __file__, "--compare", program]).returncode)


if __name__ == "__main__":
    main()
