# SPDX-License-Identifier: Apache-2.0
"""Random small models of `transformers`: weft, over 2 x 2 ranks, gives the same logits, and so does `transformers` of the folder that weft
writes. Needs PyTorch and `transformers`, which go into .deps; ends with 77 and the reason if they cannot be installed.

    ctest --test-dir build/release -R hugging_face/test_transformers -V
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

TRANSFORMERS = "5.23.0"
TOLERANCE = 1e-5  # of logits of about 1, in float
SOURCE = pathlib.Path(os.environ["WEFT_SOURCE"])
TOKENS = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 52]


def skip(why):
    print(f"skipped: {why}")
    sys.exit(77)


def environment():
    """A Python with both: PyTorch of bench/torch.sh, if it is there or can be had, and the rest in a folder of its own."""
    torch, own = SOURCE / ".deps/torch", SOURCE / ".deps/transformers"
    python, stamp = own / "bin/python", own / f"installed-{TRANSFORMERS}"
    if not (torch / "bin/python").exists():
        skip("PyTorch is not in .deps/torch: `./bench/run training` installs it")
    if not stamp.exists():
        made = subprocess.run([torch / "bin/python", "-m", "venv", "--clear", own], capture_output=True, text=True)
        if made.returncode != 0:
            skip(f"no environment for `transformers`: {made.stderr or made.stdout}")
        packages = next((torch / "lib").glob("python3*/site-packages"))
        (next((own / "lib").glob("python3*/site-packages")) / "torch.pth").write_text(f"{packages}\n")
        pip = [python, "-m", "pip", "install", "--disable-pip-version-check", "--no-input", "-q", f"transformers=={TRANSFORMERS}"]
        installed = subprocess.run(pip, capture_output=True, text=True)
        if installed.returncode != 0:
            skip(f"`transformers` {TRANSFORMERS} cannot be installed: {installed.stderr.strip().splitlines()[-1:]}")
        stamp.touch()
    cuda = pathlib.Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "lib64"
    libraries = [str(path) for path in (torch / "lib").glob("python3*/site-packages/nvidia/*/lib")] + [str(cuda)]
    there = dict(os.environ, LD_LIBRARY_PATH=":".join(libraries), HF_HUB_OFFLINE="1", OMP_NUM_THREADS="1")
    tried = subprocess.run([python, "-c", "import torch, transformers"], capture_output=True, text=True, env=there)
    if tried.returncode != 0:
        skip(f"PyTorch and `transformers` do not start: {tried.stderr.strip().splitlines()[-1:]}")
    return python, there


def models(transformers):
    """Name -> a random model. Numbers are drawn wider than by default, so that logits differ much from each other."""
    t = transformers
    gpt = dict(vocab_size=53, n_positions=16, n_embd=24, n_layer=2, n_head=4)
    llama = dict(vocab_size=53, hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2,
                 max_position_embeddings=32, bos_token_id=None, eos_token_id=None)
    yield "gpt2", t.GPT2LMHeadModel(t.GPT2Config(**gpt))
    yield "gpt2 of other numbers", t.GPT2LMHeadModel(t.GPT2Config(**gpt, layer_norm_epsilon=1e-3, activation_function="gelu_pytorch_tanh"))
    yield "gpt2 without its head", t.GPT2LMHeadModel(t.GPT2Config(**gpt))  # saved as GPT2Model
    for name in ("relu", "gelu", "silu", "tanh"):
        yield f"gpt2, {name}", t.GPT2LMHeadModel(t.GPT2Config(**gpt, activation_function=name, n_inner=40, tie_word_embeddings=False))
    yield "llama", t.LlamaForCausalLM(t.LlamaConfig(**llama, rope_theta=5000.0))
    yield "llama with a field that it does not use", t.LlamaForCausalLM(t.LlamaConfig(**llama, sliding_window=5, hidden_act="swish"))
    yield "mistral", t.MistralForCausalLM(t.MistralConfig(**llama, sliding_window=5))
    yield "ministral", t.MinistralForCausalLM(t.MinistralConfig(**llama, head_dim=4, sliding_window=5, layer_types=["sliding_attention", "full_attention"]))
    yield "qwen2, a window of one layer", t.Qwen2ForCausalLM(t.Qwen2Config(**llama, use_sliding_window=True, sliding_window=5, max_window_layers=1))
    long = dict(original_max_position_embeddings=8, rope_theta=500.0, factor=4.0)
    factors = dict(short_factor=[1.0, 1.5, 2.0, 3.0], long_factor=[1.0, 2.5, 4.0, 7.0])
    yield "llama, yarn", t.LlamaForCausalLM(t.LlamaConfig(**llama, head_dim=8, rope_parameters=dict(rope_type="yarn", mscale=0.7, mscale_all_dim=1.2, **long)))
    yield "llama, longrope", t.LlamaForCausalLM(t.LlamaConfig(**llama, head_dim=8, rope_parameters=dict(rope_type="longrope", **factors, **long)))
    short = dict(llama, max_position_embeddings=6)
    yield "llama, dynamic", t.LlamaForCausalLM(t.LlamaConfig(**short, head_dim=8, rope_parameters=dict(rope_type="dynamic", rope_theta=500.0, factor=4.0)))
    yield "mixtral with noise in training", t.MixtralForCausalLM(t.MixtralConfig(**llama, num_local_experts=4, router_jitter_noise=0.1))
    yield "llama tied", t.LlamaForCausalLM(t.LlamaConfig(**llama, tie_word_embeddings=True, rms_norm_eps=1e-4))
    yield "llama sharded", t.LlamaForCausalLM(t.LlamaConfig(**llama))
    yield "mixtral", t.MixtralForCausalLM(t.MixtralConfig(**llama, num_local_experts=4))
    yield "mixtral with a window", t.MixtralForCausalLM(t.MixtralConfig(**llama, num_local_experts=4, num_experts_per_tok=3, sliding_window=5))
    yield "mixtral fused", t.MixtralForCausalLM(t.MixtralConfig(**llama, num_local_experts=4))
    linear = dict(rope_type="linear", factor=3.0, rope_theta=5000.0)
    llama3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16, rope_theta=500.0)
    yield "llama, linear positions", t.LlamaForCausalLM(t.LlamaConfig(**llama, rope_parameters=linear))
    yield "llama 3", t.LlamaForCausalLM(t.LlamaConfig(**llama, rope_parameters=llama3, head_dim=10, attention_bias=True))
    yield "llama in bfloat16", t.LlamaForCausalLM(t.LlamaConfig(**llama))
    yield "llama in float16", t.LlamaForCausalLM(t.LlamaConfig(**llama))
    yield "mixtral, scaled positions", t.MixtralForCausalLM(t.MixtralConfig(**llama, num_local_experts=4, rope_parameters=llama3, head_dim=6))
    yield "qwen2", t.Qwen2ForCausalLM(t.Qwen2Config(**llama))
    yield "qwen2 tied, with a window", t.Qwen2ForCausalLM(
        t.Qwen2Config(**llama, tie_word_embeddings=True, use_sliding_window=True, sliding_window=5, max_window_layers=0, rope_parameters=linear))
    yield "qwen3", t.Qwen3ForCausalLM(t.Qwen3Config(**llama, head_dim=8))
    yield "qwen3 tied, with biases", t.Qwen3ForCausalLM(t.Qwen3Config(**llama, head_dim=4, tie_word_embeddings=True, attention_bias=True))
    moe = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=20, head_dim=8)
    yield "qwen3_moe", t.Qwen3MoeForCausalLM(t.Qwen3MoeConfig(**llama, **moe, norm_topk_prob=True))
    yield "qwen3_moe, weights below 1", t.Qwen3MoeForCausalLM(t.Qwen3MoeConfig(**llama, **moe, attention_bias=True))
    yield "qwen3_moe fused", t.Qwen3MoeForCausalLM(t.Qwen3MoeConfig(**llama, **moe, norm_topk_prob=True, use_sliding_window=True, sliding_window=5))


def compare():
    """In the environment with `transformers`: all models against the program argv[1]."""
    import numpy
    import safetensors.torch
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.manual_seed(1)
    faults = 0
    for name, model in models(transformers):
        model.eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.normal_(0, 0.3)
        with tempfile.TemporaryDirectory() as place:
            narrow = next((kind for kind in ("bfloat16", "float16") if kind in name), None)
            if narrow:
                model.to(getattr(torch, narrow))
            first, second, logits = place + "/first", place + "/second", place + "/logits"
            (model.transformer if "without" in name else model).save_pretrained(first, **({"max_shard_size": "8KB"} if "sharded" in name else {}))
            if "sharded" in name:
                assert pathlib.Path(first, "model.safetensors.index.json").exists() and not pathlib.Path(first, "model.safetensors").exists()
            if "fused" in name:
                safetensors.torch.save_file({key: tensor.contiguous() for key, tensor in model.state_dict().items()},
                                            first + "/model.safetensors", {"format": "pt"})
                assert any("gate_up_proj" in key for key in model.state_dict())
            if narrow:  # its own numbers in float; what .float() gives has frequencies that were rounded
                model = type(model).from_pretrained(first, dtype=torch.float32).eval()
            text = ",".join(map(str, TOKENS))
            ran = subprocess.run([sys.argv[1], "4", "2", first, text, logits, second], capture_output=True, text=True)
            if ran.returncode != 0:
                print(f"{name}: {ran.stderr or ran.stdout}")
                faults += 1
                continue
            with torch.no_grad():
                theirs = model(torch.tensor([TOKENS])).logits[0].double().numpy()
                ours = numpy.fromfile(logits).reshape(theirs.shape)
                again, information = transformers.AutoModelForCausalLM.from_pretrained(second, output_loading_info=True)
                written = again.eval()(torch.tensor([TOKENS])).logits[0].double().numpy()
            faulty = {key: value for key, value in information.items() if value}
            loaded, exported = numpy.abs(ours - theirs).max(), numpy.abs(written - theirs).max()
            print(f"{name}: logits up to {numpy.abs(theirs).max():.2f}; loaded differ by {loaded:.1e}, written by {exported:.1e}")
            if not loaded <= TOLERANCE or not exported <= TOLERANCE or faulty or type(again) is not type(model):
                print(f"failed: {name} {faulty} {type(again)}")
                faults += 1
            config = json.loads(pathlib.Path(second, "config.json").read_text())
            assert config["model_type"] == model.config.model_type
    return faults


def main():
    if len(sys.argv) > 1:
        sys.exit(1 if compare() else 0)
    program = pathlib.Path(os.environ["WEFT_BUILD"]) / "tests/program_hugging_face"
    if not program.exists():
        skip("built without what checkpoints need, weft::checkpoint, or before PyTorch was in .deps/torch: `./bench/run training` installs it, then ./tests/run")
    python, there = environment()
    sys.exit(subprocess.run([python, __file__, program], env=there).returncode)


if __name__ == "__main__":
    main()
