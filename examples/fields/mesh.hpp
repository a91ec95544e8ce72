// SPDX-License-Identifier: Apache-2.0
#pragma once
// Message passing on the nodes and edges of an unstructured mesh, as MeshGraphNets (Pfaff et al., arXiv:2010.03409): a network
// predicts the values of the nodes a little later. tp cuts the inner units of all of its perceptrons.
//
//   FullyShardedDataParallel<TensorParallel<MeshNet<float>>> model(mesh, {.width = 32, .layers = 4});

#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include <weft/nn/linear.hpp>
#include <weft/nn/norm.hpp>
#include <weft/operations/segments.hpp>
#include <weft/weft.hpp>

namespace fields {

using namespace weft;

inline constexpr data::Field<"value", float> value;            // [samples, nodes, 1], now
inline constexpr data::Field<"next_value", float> next_value;  // [samples, nodes, 1]
inline constexpr data::Field<"edge", float> edge;              // [samples, edges, 3]: from sender to receiver, and its length
/// The nodes of each edge, [samples, edges], counted over the samples of a micro-batch.
inline constexpr data::Field<"sender", std::int32_t> sender;
inline constexpr data::Field<"receiver", std::int32_t> receiver;
using Meshes = FieldBatch<value, next_value, edge, sender, receiver>;

/// Two layers and a LayerNorm.
struct MeshMlp : Module<MeshMlp> {
  Linear<Column> up;
  Linear<Row> down;
  LayerNorm norm;
  MeshMlp(const auto& context, std::size_t in, std::size_t width)
      : up(context / "up", in, width), down(context / "down", width, width), norm(context / "norm", width) {}
  auto forward(const auto& x) const { return norm(to<Invariant<tp>>(down(silu(up(x))))); }
};

/// One round of messages: each edge reads its nodes, and each node the sum of its edges.
struct MeshLayer : Module<MeshLayer> {
  MeshMlp of_edges, of_nodes;
  MeshLayer(const auto& context, std::size_t width)
      : of_edges(context / "edges", 3 * width, width), of_nodes(context / "nodes", 2 * width, width) {}
  auto forward(const auto& nodes, const auto& edges, const auto& from, const auto& into) const {
    const auto messages = edges + of_edges(concat<1>(edges, index_select(nodes, from), index_select(nodes, into)));
    const auto received = scatter_add(messages, into, nodes.shape()[0]);
    return std::tuple(nodes + of_nodes(concat<1>(nodes, received)), messages);
  }
};

struct MeshConfig {
  std::size_t width = 32, layers = 4;
};

template <class S>
struct MeshNet : Module<MeshNet<S>> {
  using scalar = S;
  using Batch = Meshes;
  using Config = MeshConfig;
  static constexpr bool loss_is_a_sum = true;  // ids count the rows of a micro-batch
  MeshMlp encode_nodes, encode_edges;
  std::vector<MeshLayer> layers;
  Linear<> decode;
  MeshNet(const auto& context, const Config& config)
      : encode_nodes(context / "encode_nodes", 1, config.width),
        encode_edges(context / "encode_edges", 3, config.width),
        decode(context / "decode", config.width, 1) {
    for (std::size_t i = 0; i < config.layers; ++i) layers.emplace_back(context / "layers" / std::to_string(i), config.width);
  }
  auto predict(const auto& batch) const {
    const auto rows_of = [](const auto& x) { return flatten<0, 1>(to<Invariant<tp>>(x)); };  // [samples * nodes or edges, ...]
    const auto now = rows_of(batch[value]);
    const auto from = rows_of(batch[sender]), into = rows_of(batch[receiver]);
    std::tuple graph(encode_nodes(now), encode_edges(rows_of(batch[edge])));
    for (const MeshLayer& layer : layers) graph = layer(std::get<0>(graph), std::get<1>(graph), from, into);
    return unflatten<0>(now + decode(std::get<0>(graph)), batch[value].shape()[1]);  // [samples, nodes, 1]
  }
  auto loss(const auto& batch) const { return mse(predict(batch), to<Invariant<tp>>(batch[next_value])); }
};

}  // namespace fields
