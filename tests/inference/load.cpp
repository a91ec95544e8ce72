// SPDX-License-Identifier: Apache-2.0
// covers: weft/inference/load.hpp
// A model for calls from a checkpoint of a run on four ranks, from a safetensors file, and from a model in training on several
// ranks, compared with the predictions of the model that was trained.

#include <doctest/doctest.h>

#include <unistd.h>
#include <filesystem>
#include <string>
#include <vector>

#include <weft/checkpoint/save.hpp>
#include <weft/comm/threads.hpp>
#include <weft/inference/load.hpp>
#include <weft/optim/adamw.hpp>
#include <weft/parallel/fully_sharded_data_parallel.hpp>
#include <weft/parallel/tensor_parallel.hpp>
#include <weft/runtime/run.hpp>

#include "inference/models.hpp"
#include "support/message.hpp"

using namespace weft_test;

namespace {

using Net = Mlp<double>;
const Net::Config config{.inputs = 4, .width = 8, .outputs = 2};
template <class M>
typename M::Config config_of() {
  return {.inputs = 4, .width = 8, .outputs = 2};
}

struct Folder {
  std::string path = std::filesystem::temp_directory_path() / ("weft_inference_" + std::to_string(getpid()));
  Folder() { std::filesystem::create_directories(path); }
  ~Folder() { std::filesystem::remove_all(path); }
};

template <class M>
std::vector<double> outputs_of(inference::Model<M>& net, std::vector<double> x) {
  std::vector<double> y(x.size() / 4 * 2);
  net(Kokkos::View<double**, Kokkos::LayoutRight, Kokkos::HostSpace>(x.data(), x.size() / 4, 4),
      Kokkos::View<double**, Kokkos::LayoutRight, Kokkos::HostSpace>(y.data(), y.size() / 2, 2));
  return y;
}

/// Writes the parameters to a safetensors file.
template <class Model>
void write_safetensors(const std::string& file, Model& model) {
  std::string header = "{";
  std::vector<double> all;
  model.for_each_state([&](ParameterState& state) {
    const std::vector<double> values = model.parameter(state.name());
    std::string shape;
    for (std::size_t dim = 0; dim < state.global().rank(); ++dim) shape += (dim ? "," : "") + std::to_string(state.global()[dim]);
    header += (all.empty() ? "\"" : ",\"") + state.name() + "\":{\"dtype\":\"F64\",\"shape\":[" + shape + "],\"data_offsets\":[" +
              std::to_string(all.size() * 8) + "," + std::to_string((all.size() + values.size()) * 8) + "]}";
    all.insert(all.end(), values.begin(), values.end());
  });
  header += "}";
  while (header.size() % 8 != 0) header += ' ';
  const std::uint64_t length = header.size();
  std::FILE* const out = std::fopen(file.c_str(), "wb");
  REQUIRE(out != nullptr);
  std::fwrite(&length, 1, 8, out);
  std::fwrite(header.data(), 1, header.size(), out);
  std::fwrite(all.data(), 8, all.size(), out);
  std::fclose(out);
}

}  // namespace

TEST_CASE_TEMPLATE("from a checkpoint, from a safetensors file and from a model on four ranks", M, Mlp<double>, Chain<double>) {
  const auto config = config_of<M>();
  const Folder folder;
  const std::vector<double> x = numbers(12 * 4);
  std::vector<double> trained, copied[4];
  const int code = runtime::run(runtime::RunOptions{.ranks = 4}, [&](World& world) {
    Mesh<dp, tp> mesh(world, {.tp = 2});
    FullyShardedDataParallel<TensorParallel<M>> model(mesh, config);
    optim::AdamW optimizer(model, {.learning_rate = 1e-2});
    const std::vector<double> y = numbers(12 * 2, 5);
    const std::size_t first = mesh.comm(dp{}).rank() == 0 ? 0 : 6;
    typename M::Batch batch{.samples = 6, .first_sample = first};
    batch[in].view(std::span(x).subspan(first * 4, 24), {4});
    batch[out].view(std::span(y).subspan(first * 2, 12), {2});
    for (int step = 0; step < 3; ++step) {
      model.train_step(batch);
      optimizer.step();
    }
    const Prediction whole = model.predict(batch, Gather::whole);
    if (world.rank() == 0) trained = whole.values;
    inference::Model<M> copy(model);
    copied[world.rank()] = outputs_of(copy, x);
    checkpoint::save(folder.path + "/run", model, optimizer, 3);
  });
  REQUIRE(code == 0);
  REQUIRE(trained.size() == 24);
  auto net = inference::load<M>(folder.path + "/run", config);
  const std::vector<double> loaded = outputs_of(net, x);
  for (std::size_t i = 0; i < trained.size(); ++i) CHECK(loaded[i] == doctest::Approx(trained[i]).epsilon(1e-14));
  for (const auto& of_rank : copied) CHECK(of_rank == loaded);  // bit for bit: the same parameters on one rank

  DefaultDevice device;
  SingleDevice<M> model(device, config), fresh(device, config);
  checkpoint::load(folder.path + "/run", model);
  write_safetensors(folder.path + "/net.safetensors", model);
  auto other = inference::load<M>(folder.path + "/net.safetensors", config);
  if constexpr (std::is_same_v<M, Mlp<double>>) CHECK(outputs_of(other, x) == loaded);
  // The file has no running statistics.
  for (const std::string& name : model.parameter_names())
    fresh.set_parameter(name, std::span<const double>(model.parameter(name)));
  CHECK(outputs_of(other, x) == predicted(fresh, x, 4));
}

TEST_CASE("files that are missing or of another model") {
  const Folder folder;
  CHECK_THROWS_AS(inference::load<Net>(folder.path + "/none", config), checkpoint::Error);
  CHECK_THROWS_AS(inference::load<Net>(folder.path + "/none.safetensors", config), Error);
  DefaultDevice device;
  SingleDevice<Net> model(device, config);
  write_safetensors(folder.path + "/net.safetensors", model);
  Net::Config wider = config;
  wider.width = 16;
  const std::string text = message<checkpoint::Error>([&] { inference::load<Net>(folder.path + "/net.safetensors", wider); });
  CHECK_MESSAGE(text.ends_with("net.safetensors: tensor first.bias: is [8], and [16] in this model"), text);
}
