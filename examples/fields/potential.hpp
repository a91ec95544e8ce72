// SPDX-License-Identifier: Apache-2.0
#pragma once
// An interatomic potential: the energy of atoms as a network of their distances, which is the same however they are moved, turned
// or numbered, and the forces, which are minus its derivatives by the positions. As embedded atoms (Daw and Baskes, Phys. Rev. B
// 29, 6443), with networks as the density of an atom's neighbours and as the energy of a density.
//
// dx cuts the atoms, tp the units of the networks.
//
//   FullyShardedDataParallel<TensorParallel<DomainParallel<Potential<float>, dx>>> model(mesh, {.width = 32});

#include <cstddef>
#include <cstdint>
#include <tuple>

#include <weft/nn/linear.hpp>
#include <weft/operations/grad.hpp>
#include <weft/operations/graph.hpp>
#include <weft/operations/segments.hpp>
#include <weft/weft.hpp>

namespace fields {

using namespace weft;

inline constexpr data::Field<"position", float, data::Cut<dx, 1>> position;  // [samples, atoms, 3]
inline constexpr data::Field<"energy", float> energy;                        // [samples, 1]
inline constexpr data::Field<"force", float, data::Cut<dx, 1>> force;        // [samples, atoms, 3]
/// The atoms of each ordered pair, [samples, pairs], counted over the samples of a micro-batch and the ranks of dx; a pair is on
/// the rank of its first atom.
inline constexpr data::Field<"atom", std::int32_t, data::Cut<dx, 1>> atom;
inline constexpr data::Field<"neighbour", std::int32_t, data::Cut<dx, 1>> neighbour;
using Molecules = FieldBatch<position, energy, force, atom, neighbour>;

struct PotentialConfig {
  std::size_t width = 32;
};

template <class S>
struct Potential : Module<Potential<S>> {
  using scalar = S;
  using Batch = Molecules;
  using Config = PotentialConfig;
  static constexpr bool loss_is_a_sum = true;  // ids count the rows of a micro-batch
  static constexpr double energy_weight = 0.1;
  Linear<Column> near, close;
  Linear<Row> dense;
  Linear<> last;
  Potential(const auto& context, const Config& config)
      : near(context / "near", 1, config.width),
        close(context / "close", 1, config.width),
        dense(context / "dense", config.width, config.width),
        last(context / "last", config.width, 1) {}

  /// The energy of each atom, [atoms, 1], at p [atoms, 3].
  auto energies(const auto& p, const auto& graph) const {
    const auto around = to<Ghosts<dx>>(p, graph);
    const auto apart = index_select(around, graph.into) - index_select(around, graph.from);  // [pairs, 3]
    const auto distance = unflatten<0>(sqrt(sum<1>(square(apart)) + 1e-4), 1);               // [pairs, 1]
    const auto parts = tanh(near(distance)) * exp(-softplus(close(distance)));
    const auto density = scatter_add(parts, graph.into, p.shape()[0], local_ids);
    return last(silu(to<Invariant<tp>>(dense(density))));  // from [atoms, width / tp]
  }
  /// The energies of atoms, [samples * atoms, 1], and the forces, [samples * atoms, 3].
  auto energies_and_forces(const auto& batch) const {
    const auto of = [&](auto field) { return to<Invariant<tp>>(batch[field]); };
    const auto graph = graph_part<dx>(of(position), of(neighbour), of(atom));
    const auto found = value_and_grad([&](const auto& p) { return energies(p, graph); }, merge_samples(of(position)));
    return std::tuple(std::get<0>(found), -std::get<1>(found));
  }
  auto predict(const auto& batch) const {  // [samples, atoms, 4]: energies and forces of atoms
    const auto found = energies_and_forces(batch);
    return split_samples(concat<1>(std::get<0>(found), std::get<1>(found)));
  }
  auto loss(const auto& batch) const {
    const auto found = energies_and_forces(batch);
    const auto wrong = over_samples(std::get<0>(found)) - flatten<0, 1>(to<Invariant<tp>>(batch[energy]));
    const auto pulled = std::get<1>(found) - merge_samples(to<Invariant<tp>>(batch[force]));
    return sum_losses(energy_weight * square(wrong) + over_samples(square(pulled)));
  }

 private:
  /// x [samples * atoms, columns] added over the atoms and columns of each sample.
  static auto over_samples(const auto& x) { return to<Invariant<dx>>(sum<1>(split_samples(sum<1>(x)))); }
};

}  // namespace fields
