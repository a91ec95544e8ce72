# SPDX-License-Identifier: Apache-2.0
"""20 steps of fine-tuning by weft, over 2 x 2 ranks, equal PyTorch's: the loss of each step and the weights at the end, of all parameters and
of low-rank adapters alone. weft's files, with only adapters (read with `peft`, if installed) or merged, give `transformers` the
same logits. Needs PyTorch and `transformers` in .deps, where test_transformers.py installs them; ends with 77 and the reason if
they cannot be installed.

    ctest --test-dir build/release -R hugging_face/test_finetune -V
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from test_transformers import environment, skip

TOLERANCE = 1e-4  # of losses, and of weights beside the largest of their tensor
STEPS, SEQUENCES, LENGTH, RANK, ALPHA = 20, 8, 12, 4, 16.0


def models(t):
    yield "gpt2", t.GPT2LMHeadModel(t.GPT2Config(vocab_size=53, n_positions=16, n_embd=24, n_layer=2, n_head=4, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0))
    yield "llama", t.LlamaForCausalLM(t.LlamaConfig(vocab_size=53, hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=6,
                                                    num_key_value_heads=2, max_position_embeddings=32, bos_token_id=None, eos_token_id=None))


def adapt(torch, model, first):
    """The twin: every linear layer of the blocks with the adapter that weft has drawn. Returns name -> parameter."""
    class Adapted(torch.nn.Module):
        def __init__(self, base, a, b):
            super().__init__()
            self.base, self.a, self.b = base, torch.nn.Parameter(a.clone()), torch.nn.Parameter(b.clone())

        def forward(self, x):
            return self.base(x) + ALPHA / RANK * (x @ self.a.T @ self.b.T)

    model.requires_grad_(False)
    trained = {}
    prefix = "base_model.model."
    for key in sorted(first):
        if not key.endswith(".lora_A.weight"):
            continue
        layer = key.removeprefix(prefix).removesuffix(".lora_A.weight")
        parent = model.get_submodule(layer.rpartition(".")[0])
        child = Adapted(parent.get_submodule(layer.rpartition(".")[2]), first[key], first[key.replace("lora_A", "lora_B")])
        setattr(parent, layer.rpartition(".")[2], child)
        trained[key], trained[key.replace("lora_A", "lora_B")] = child.a, child.b
    assert set(trained) == set(first), set(first) - set(trained)
    return trained


def difference(key, ours, theirs):
    """Relative to the largest number of the tensor. Scores do not depend on a bias of keys, so AdamW makes steps of its gradient's
    rounding."""
    apart = (ours - theirs).abs()
    if key.endswith("c_attn.bias"):
        apart[len(apart) // 3:2 * len(apart) // 3] = 0
    return (apart.max() / theirs.abs().max()).item()


def finetune(name, model, rank, program, place):
    """The number of faults."""
    import safetensors.torch
    import torch
    import transformers

    generator = torch.Generator().manual_seed(2)
    tokens = torch.randint(0, 53, (STEPS, SEQUENCES, LENGTH + 1), generator=generator)
    tokens[..., 1::2] = tokens[..., 0:-1:2] * 7 % 53  # something to learn
    base = place + "/base"
    model.save_pretrained(base)
    (pathlib.Path(place) / "tokens").write_bytes(tokens.to(torch.int32).numpy().tobytes())
    ran = subprocess.run([program, "4", "2", base, place + "/tokens", str(STEPS), str(SEQUENCES), str(LENGTH), str(rank), place],
                         capture_output=True, text=True)
    if ran.returncode != 0:
        print(f"failed: {name}: {ran.stderr or ran.stdout}")
        return 1
    ours = [float(line) for line in pathlib.Path(place, "losses").read_text().split()]
    if rank:
        first = safetensors.torch.load_file(place + "/first/adapter_model.safetensors")
        last = safetensors.torch.load_file(place + "/last/adapter_model.safetensors")
        trained = adapt(torch, model, first)
    else:
        last = safetensors.torch.load_file(place + "/model/model.safetensors")
        trained = dict(model.named_parameters())
    optimizer = torch.optim.AdamW(trained.values(), lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01)
    model.train()
    theirs = []
    for step in tokens:
        optimizer.zero_grad()
        logits = model(step[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), step[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        theirs.append(loss.item())
    losses = max(abs(a - b) for a, b in zip(ours, theirs))
    weights = max(difference(key, last[key], value) for key, value in trained.items())
    model.eval()
    with torch.no_grad():
        want = model(tokens[0, :, :-1]).logits
        written = transformers.AutoModelForCausalLM.from_pretrained(place + "/model").eval()(tokens[0, :, :-1]).logits
    logits = (written - want).abs().max().item()
    said = f"{name}, {'rank ' + str(rank) if rank else 'all parameters'}: loss {theirs[0]:.3f} to {theirs[-1]:.3f}; differ: losses by {losses:.1e}, " \
           f"weights by {weights:.1e}, logits of the folder written by {logits:.1e}"
    faults = not (len(ours) == STEPS and losses <= TOLERANCE and weights <= 10 * TOLERANCE and logits <= 10 * TOLERANCE and theirs[-1] < theirs[0] - 0.02)
    if rank:
        config = json.loads(pathlib.Path(place, "last/adapter_config.json").read_text())
        assert config["peft_type"] == "LORA" and config["r"] == rank and config["lora_alpha"] == ALPHA, config
        assert config["fan_in_fan_out"] == (name == "gpt2"), config
        try:
            import peft
        except ImportError:
            said += "; peft is not there"
        else:
            loaded = peft.PeftModel.from_pretrained(transformers.AutoModelForCausalLM.from_pretrained(base), place + "/last")
            with torch.no_grad():
                by_peft = (loaded.eval()(tokens[0, :, :-1]).logits - want).abs().max().item()
            said += f"; logits of peft {peft.__version__} by {by_peft:.1e}"
            faults = faults or not by_peft <= 10 * TOLERANCE
    print(("FAILED: " if faults else "") + said)
    return int(faults)


def compare():
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    faults = 0
    for rank in (0, RANK):
        torch.manual_seed(1)
        for name, model in models(transformers):
            with torch.no_grad():
                for parameter in model.parameters():
                    if parameter.dim() > 1:
                        parameter.normal_(0, 0.1)
            with tempfile.TemporaryDirectory() as place:
                faults += finetune(name, model, rank, sys.argv[1], place)
    return faults


def main():
    if len(sys.argv) > 1:
        sys.exit(1 if compare() else 0)
    program = pathlib.Path(os.environ["WEFT_BUILD"]) / "tests/program_finetune"
    if not program.exists():
        skip("built without what checkpoints need, weft::checkpoint, or before PyTorch was in .deps/torch: `./bench/run training` installs it, then ./tests/run")
    python, there = environment()
    sys.exit(subprocess.run([python, __file__, program], env=there).returncode)


if __name__ == "__main__":
    main()
