// SPDX-License-Identifier: Apache-2.0
#pragma once
// An interatomic potential: the energy of atoms as a network of their distances, which is the same however they are moved, turned
// or numbered, and the forces, which are minus its derivatives by the positions. As embedded atoms (Daw and Baskes, Phys. Rev. B
// 29, 6443), with networks as the density of an atom's neighbours and as the energy of a density.
//
//   FullyShardedDataParallel<TensorParallel<Potential<float>>> model(mesh, {.width = 32});

#include <cstddef>
#include <cstdint>
#include <tuple>

#include <weft/nn/linear.hpp>
#include <weft/operations/grad.hpp>
#include <weft/operations/segments.hpp>
#include <weft/weft.hpp>

namespace fields {

using namespace weft;

inline constexpr data::Field<"position", float> position;  // [samples, atoms, 3]
inline constexpr data::Field<"energy", float> energy;      // [samples, 1]
inline constexpr data::Field<"force", float> force;        // [samples, atoms, 3]
/// The atoms of each ordered pair, [samples, pairs], counted over the samples of a micro-batch.
inline constexpr data::Field<"atom", std::int32_t> atom;
inline constexpr data::Field<"neighbour", std::int32_t> neighbour;
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
  auto energies(const auto& p, const auto& of, const auto& beside) const {
    const auto apart = index_select(p, of) - index_select(p, beside);           // [pairs, 3]
    const auto distance = unflatten<0>(sqrt(sum<1>(square(apart)) + 1e-4), 1);  // [pairs, 1]
    const auto density = scatter_add(tanh(near(distance)) * exp(-softplus(close(distance))), of, p.shape()[0]);
    return last(silu(to<Invariant<tp>>(dense(density))));  // from [atoms, width / tp]
  }
  /// The energies of all samples, [samples], and the forces, [samples * atoms, 3].
  auto energies_and_forces(const auto& batch) const {
    const auto rows_of = [](const auto& x) { return flatten<0, 1>(to<Invariant<tp>>(x)); };
    const auto of = rows_of(batch[atom]), beside = rows_of(batch[neighbour]);
    const auto found = value_and_grad([&](const auto& p) { return energies(p, of, beside); }, rows_of(batch[position]));
    return std::tuple(over_samples(batch, std::get<0>(found)), -std::get<1>(found));
  }
  auto predict(const auto& batch) const {  // [samples, 1 + 3 atoms]
    const auto found = energies_and_forces(batch);
    const std::size_t atoms = batch[position].shape()[1];
    return concat<1>(unflatten<0>(std::get<0>(found), 1), flatten<1, 2>(unflatten<0>(std::get<1>(found), atoms)));
  }
  auto loss(const auto& batch) const {
    const auto found = energies_and_forces(batch);
    const auto wrong = std::get<0>(found) - flatten<0, 1>(to<Invariant<tp>>(batch[energy]));
    const auto pulled = std::get<1>(found) - flatten<0, 1>(to<Invariant<tp>>(batch[force]));
    return sum_losses(energy_weight * square(wrong) + over_samples(batch, square(pulled)));
  }

 private:
  /// x [samples * atoms, columns] added over the atoms and columns of each sample.
  auto over_samples(const auto& batch, const auto& x) const {
    return sum<1>(unflatten<0>(sum<1>(x), batch[position].shape()[1]));
  }
};

}  // namespace fields
