#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every cell of weft's column in docs/from_pytorch.md compiles in the place that its table names: a program, a constructor or a forward."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
text = (ROOT / "docs/from_pytorch.md").read_text()
FOLDERS = [path for path in os.environ["WEFT_INCLUDES"].split(":") if path]
for header in ("mpi.h", "nlohmann/json.hpp", "xxhash.h"):
    if not any((pathlib.Path(folder) / header).exists() for folder in [*FOLDERS, "/usr/include", "/usr/local/include"]):
        print(f"skipped: {header} is not installed")
        sys.exit(77)

# The code around the rows of each table. Each row has its own scope, a function or (for operations) a layer, so that rows may use the
# same names, and is instantiated for a model.
PRELUDE = """
#include <weft/checkpoint/checkpoint.hpp>
#include <weft/comm/mpi.hpp>
#include <weft/comm/tcp.hpp>
#include <weft/data/arrays.hpp>
#include <weft/data/dlpack.hpp>
#include <weft/data/loader.hpp>
#include <weft/data/npy.hpp>
#include <weft/dtensor/operations.hpp>
#include <weft/dtensor/parameters.hpp>
#include <weft/elastic/run.hpp>
#include <weft/generation/generate.hpp>
#include <weft/hugging_face/hugging_face.hpp>
#include <weft/data/selection.hpp>
#include <weft/nn/batch_norm.hpp>
#include <weft/nn/convolution.hpp>
#include <weft/nn/group_norm.hpp>
#include <weft/operations/convolution.hpp>
#include <weft/operations/pooling.hpp>
#include <weft/operations/upsample.hpp>
#include <weft/optim/adam.hpp>
#include <weft/optim/ema.hpp>
#include <weft/optim/step_decay.hpp>
#include <weft/parallel/hook/compress.hpp>
#include <weft/testing/check_layer.hpp>
#include <weft/weft.hpp>
using namespace weft;
inline constexpr data::Field<"input", float> input;
inline constexpr data::Field<"label", std::int32_t> label;
struct Net : Module<Net> {
  using scalar = float;
  using Batch = FieldBatch<input, label>;
  struct Config {};
  Linear<> up;
  Net(const auto& context, const Config&) : up(context / "up", 8, 4) {}
  auto forward(const auto& x) const { return up(x); }
  auto loss(const auto& batch) const { return cross_entropy(forward(batch[input]), batch[label]); }
};
const models::GptConfig gpt;
const models::LlamaConfig llama;
const models::MixtralConfig mixtral;
void train(World&) {}
void train_on(World&, elastic::Member&) {}
"""
PROGRAM = """int row_{number}([[maybe_unused]] int argc, [[maybe_unused]] char** argv, [[maybe_unused]] World& world) {{
  [[maybe_unused]] const Communicator& comm = world.communicator();
  [[maybe_unused]] const Mesh<{axes}> mesh(world);
  [[maybe_unused]] std::vector<float> x(8), y(8), all(8), values(32);
  [[maybe_unused]] const std::vector<std::int32_t> labels(1);
  [[maybe_unused]] const std::vector<std::vector<std::int32_t>> prompts(1);
  [[maybe_unused]] Net::Batch batch;
  [[maybe_unused]] const Net::Config config;
  [[maybe_unused]] const std::uint64_t i = 0;
  {names}
  {{
    {row};
  }}
  return 0;
}}
"""
NAMES = {
    "Processes and collectives": """[[maybe_unused]] const dtensor::DeviceMesh grid(mesh, dp{}, tp{});
  [[maybe_unused]] const Tensor<float, DefaultDevice::execution_space> t(world.device(), {4, 4});
  [[maybe_unused]] const DTensor<float> d = distribute_tensor(grid, t, {dtensor::shard(0), dtensor::replicate()});""",
    "Tensors with placements at run time": """using dtensor::replicate, dtensor::shard;
  const dtensor::DeviceMesh grid(mesh, dp{}, tp{});
  [[maybe_unused]] const std::vector<std::pair<std::string, Tensor<float, DefaultDevice::execution_space>>> whole;
  [[maybe_unused]] auto t = dtensor::normal<float>(world.device(), grid, {4, 4}, {shard(0), replicate()}, 1);
  [[maybe_unused]] const auto w = dtensor::normal<float>(world.device(), grid, {4, 4}, {replicate(), shard(1)}, 2);
  [[maybe_unused]] const auto ids = DTensor<std::int32_t>::from_local(grid, {world.device(), {4}}, {replicate(), replicate()});""",
    "Parallel models": "",
    "Training": """DataParallel<Net> model(mesh, config);
  DataParallel<models::Gpt> language(mesh, gpt);
  [[maybe_unused]] const data::Arrays data(data::array<input>(x, {8}), data::array<label>(labels, {}));
  optim::AdamW optimizer(model, {});""",
}
LAYER = """struct Row{number} : Module<Row{number}> {{
  using scalar = float;
  using Batch = FieldBatch<input, label, image, head>;
  struct Config {{}};
  Linear<> first;
  Parameter<> w, gain, bias, k;
  Row{number}(const auto& context, const Config&)
      : first(context / "first", 8, 8), w(context, "w", {{16, 8}}, ones), gain(context, "gain", {{8}}, ones), bias(context, "bias", {{8}}, ones),
        k(context, "k", {{4, 4, 3, 3}}, ones) {{ {made} }}
  auto loss(const auto& batch) const {{
    [[maybe_unused]] auto x = first(batch[input]);
    [[maybe_unused]] auto y = first(x);
    [[maybe_unused]] auto images = reshape(x, {{2, 4, 8, 8}}) + batch[image];
    [[maybe_unused]] auto heads = reshape(x, {{2, 4, 4}}) + batch[head];
    [[maybe_unused]] auto m = heads;
    [[maybe_unused]] auto part = first(y);
    [[maybe_unused]] const auto& labels = batch[label];
    [[maybe_unused]] const auto& ids = batch[label];
    {used}
    return mse(y, x.detach());
  }}
}};
void run_{number}(World& world) {{
  Mesh<dp> mesh(world);
  DataParallel<Row{number}> model(mesh, {{}});
  model.train_step({{}});
}}
"""

pieces, counted = [PRELUDE, 'inline constexpr data::Field<"image", float> image;\ninline constexpr data::Field<"head", float> head;\n'], 0
for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
    title, *lines = section.splitlines()
    rows = [line for line in lines if line.startswith("| ") and not line.startswith("| PyTorch")]
    for line in rows:
        code = re.fullmatch(r"\| .* \| `(.*)` \|", line)
        if code is None:
            sys.exit(f"not a row with one piece of code on the right: {line}")
        row, number = code[1], counted
        counted += 1
        if title in NAMES:
            axes = {"Processes and collectives": "dp, cp, tp", "Tensors with placements at run time": "dp, tp"}.get(title, "dp")
            for wrapper, axis in {"ContextParallel": "cp", "TensorParallel": "tp", "SequenceParallel": "tp", "ExpertParallel": "ep, edp", "PipelineParallel": "pp"}.items():
                axes += f", {axis}" if wrapper + "<" in row else ""
            pieces.append(PROGRAM.format(number=number, axes=axes, names=NAMES[title], row=row))
        elif title == "Making layers":
            pieces.append(LAYER.format(number=number, made=row, used=""))
        elif title == "Operations":
            declares = row.endswith(";")
            pieces.append(LAYER.format(number=number, made="", used=row if declares else f"[[maybe_unused]] auto result = {row};"))
        else:
            sys.exit(f"the table of '{title}' has no place in this test")
if counted < 100:
    sys.exit(f"{counted} rows: is the pattern right?")

with tempfile.TemporaryDirectory(prefix="weft_from_pytorch_") as folder:
    source = pathlib.Path(folder) / "rows.cpp"
    source.write_text("\n".join(pieces))
    if len(sys.argv) > 1:
        pathlib.Path(sys.argv[1]).write_text(source.read_text())
    paths = [flag for path in FOLDERS for flag in ("-isystem", path)]
    done = subprocess.run([os.environ["WEFT_CXX"], "-std=c++20", "-fopenmp", "-fsyntax-only", "-DWEFT_COMPILED", "-I", str(ROOT / "include"), *paths, str(source)],
                          capture_output=True, text=True)
    if done.returncode:
        sys.exit("rows of docs/from_pytorch.md do not compile:\n" + "\n".join(line for line in done.stderr.splitlines() if "error" in line or "rows.cpp" in line)[:8000])
print(f"{counted} rows compile")
