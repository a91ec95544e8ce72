// SPDX-License-Identifier: Apache-2.0
#pragma once
// Message passing on the nodes and edges of an unstructured mesh, as MeshGraphNets (Pfaff et al., arXiv:2010.03409): a network
// predicts the values of the nodes a little later. tp cuts the inner units of all of its perceptrons, dx the nodes and edges.
//
//   FullyShardedDataParallel<TensorParallel<DomainParallel<MeshNet<float>, dx>>> model(mesh, {.width = 32, .layers = 4});

#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include <weft/nn/linear.hpp>
#include <weft/nn/norm.hpp>
#include <weft/operations/graph.hpp>
#include <weft/operations/segments.hpp>
#include <weft/weft.hpp>

namespace fields {

using namespace weft;

inline constexpr data::Field<"value", float, data::Cut<dx, 1>> value;            // [samples, nodes, 1], now
inline constexpr data::Field<"next_value", float, data::Cut<dx, 1>> next_value;  // [samples, nodes, 1]
/// [samples, edges, 3]: from sender to receiver, and its length; edges are on the rank of their receiver.
inline constexpr data::Field<"edge", float, data::Cut<dx, 1>> edge;
/// The nodes of each edge, [samples, edges], counted over the samples of a micro-batch and the ranks of dx.
inline constexpr data::Field<"sender", std::int32_t, data::Cut<dx, 1>> sender;
inline constexpr data::Field<"receiver", std::int32_t, data::Cut<dx, 1>> receiver;
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
  auto forward(const auto& nodes, const auto& edges, const auto& graph) const {
    const auto around = to<Ghosts<dx>>(nodes, graph);
    const auto ends = concat<1>(edges, index_select(around, graph.from), index_select(around, graph.into));
    const auto messages = edges + of_edges(ends);
    const auto received = scatter_add(messages, graph.into, nodes.shape()[0], local_ids);
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
    const auto of = [&](auto field) { return to<Invariant<tp>>(batch[field]); };
    const auto graph = graph_part<dx>(of(value), of(sender), of(receiver));
    const auto now = merge_samples(of(value));  // [samples * nodes, 1]
    std::tuple values(encode_nodes(now), encode_edges(merge_samples(of(edge))));
    for (const MeshLayer& layer : layers) values = layer(std::get<0>(values), std::get<1>(values), graph);
    return split_samples(now + decode(std::get<0>(values)));  // [samples, nodes, 1]
  }
  auto loss(const auto& batch) const { return mse(predict(batch), to<Invariant<tp>>(batch[next_value])); }
};

}  // namespace fields
