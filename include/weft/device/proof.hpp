// SPDX-License-Identifier: Apache-2.0
#pragma once
// The notes of a proof: the tensors of a program's training steps, which are compared with those of the same program on one rank
// (runtime/prove.hpp). Ranks are threads of one process, so each rank writes its pieces into notes that all ranks share, and
// nothing is sent. A rank's recorder is a Proof, which its Device points to.
//
//   ProofNotes notes;
//   Proof proof(notes, layout, group->rank());
//   device.prove(proof);
//   ...
//   if (Proof* const proof = device.proof(); proof != nullptr) [[unlikely]] proof->note_loss("", loss);

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <weft/core/inline.hpp>
#include <weft/core/scalar.hpp>
#include <weft/device/proof_piece.hpp>

namespace weft::detail {

/// A layout in which a program is proven, or rehearsed by a search.
struct ProofLayout {
  /// The schedules of a pipeline that are tried if the program leaves the schedule open.
  enum class Schedule : std::uint8_t { given, gpipe, zero_bubble_h1, zbv };

  int ranks = 1;
  std::vector<std::pair<std::string, std::size_t>> degrees = {};  ///< by the axis' name; axes that are left out have one rank
  int stage = -1;                                                 ///< of ZeRO; -1: the program's
  Schedule schedule = Schedule::given;

  std::size_t degree(std::string_view axis) const;
  /// "dp 2 tp 2, stage 3 of ZeRO, GPipe", or "one rank".
  std::string text() const;
};

/// "GPipe", "ZB-H1" or "ZBV"; empty for a schedule that is given.
std::string_view name_of(ProofLayout::Schedule schedule);

/// The kind of a noted tensor, in the order of computation.
/// `kept`: values that layers keep from step to step, such as running means, and arrays that an optimizer keeps at one rank.
enum class ProofPhase : std::uint8_t { batch, forward, loss, backward, local_gradient, gradient, norm, updated, kept };
inline constexpr std::size_t proof_phases = std::size_t(ProofPhase::kept) + 1;
/// "gradient", "gradient before the sums over ranks", ...
std::string_view name_of(ProofPhase phase);

/// Everything that the ranks of one run note.
struct ProofNotes {
  struct Key {
    int step = 0;  ///< from 1
    ProofPhase phase = ProofPhase::batch;
    int unit = 0;  ///< of the model; negative in backward, so that keys are in the order of computation
    std::string name = {};
    friend bool operator==(const Key&, const Key&) = default;
    friend bool operator<(const Key& a, const Key& b) {
      return std::tie(a.step, a.phase, a.unit, a.name) < std::tie(b.step, b.phase, b.unit, b.name);
    }
  };
  struct Tensor {
    int place = 0;  ///< in its unit, in the order of computation
    /// The whole tensor in part 0, or a part for each sample of the global batch. Copies: a part for each rank, until `assemble`.
    std::map<std::size_t, std::vector<double>> parts = {};
    /// Ranks of tp hold pieces of a row whose order may depend on the layout: compared in the order of their values.
    bool sorted = false;
    bool copies = false;                  ///< each rank that notes the tensor has all of it
    std::vector<ProofPiece> pieces = {};  ///< of results, until `assemble`
    double replicas = 0;                  ///< the largest relative difference between ranks that must hold the same elements
  };
  struct Axis {
    std::string name;
    bool expert = false;  ///< of the expert mesh
    bool operator==(const Axis&) const = default;
  };

  std::map<Key, Tensor> tensors = {};
  std::vector<Axis> axes = {};    ///< of the program's meshes
  bool stage_is_open = false;     ///< the stage of ZeRO is an option, not a part of a type
  bool over_domain = false;       ///< ranks of domain axes share the state that the stage cuts (ShardOptions::over_domain)
  bool schedule_is_open = false;  ///< the program leaves the schedule of its pipeline to weft
  bool replaceable = true;        ///< all training steps were train_step, whose batch can be replaced
  bool cut_fields = false;        ///< domain axes cut fields of the batch, of which each rank has a piece
  bool computed = false;          ///< a training step has ended
  int steps = 0;                  ///< training steps begun, counted by optimizer steps
  std::uint8_t narrowest = 8;     ///< bytes of the narrowest type of a parameter
  std::uint8_t ending = 0;        ///< 0: as wanted; 1: the layout is not possible; 2: an error; 3: refused by the program itself
  std::string error = {};         ///< the text of the error

  std::mutex mutex = {};

  /// Samples of the first step's global batch; 0 if there was no step.
  std::size_t samples() const;
  /// The notes as bytes, and back; `read` returns false if the bytes end early.
  std::string bytes() const;
  bool read(std::string_view bytes);
};

/// The recorder of one rank.
class Proof {
 public:
  Proof(ProofNotes& notes, const ProofLayout& layout, int rank) : notes_(&notes), layout_(&layout), rank_(rank) {}

  // ---- the run's settings
  const ProofNotes* gradients = nullptr;  ///< an optimizer is given these gradients in place of the layout's own
  const ProofNotes* batches = nullptr;    ///< train_step is given these batches
  int wanted_steps = 2;                   ///< optimizer steps, after which the program ends
  double noise = 0;                       ///< relative; changes parameters before each step
  std::uint64_t noise_seed = 0;

  const ProofLayout& layout() const { return *layout_; }
  int rank() const { return rank_; }
  ProofNotes& notes() { return *notes_; }

  /// The number of the step that is computed: one more than the largest number of steps of an optimizer.
  int step() const;
  /// "", or "model 2: " for a further model.
  std::string model(const void* model);
  /// A model begins a training step. Throws ProofEnd after the wanted steps.
  void begin_step();
  /// "", or "optimizer 2: " for a further optimizer.
  std::string optimizer(const void* optimizer);
  /// Steps of this optimizer so far.
  int steps_of(const void* optimizer) const;
  /// An optimizer has ended its step.
  void stepped(const void* optimizer);

  /// Notes the mesh's axes.
  void note_axis(std::string_view name, bool expert);
  void note_part(ProofPhase phase, std::string name, std::size_t part, std::vector<double> values);
  void note_loss(const std::string& model, double loss);
  /// Notes values that must be the same on all ranks that note them.
  void note_copy(int step, ProofPhase phase, std::string name, std::vector<double> values);
  /// Adds elements of a parameter: `count` of them from element `global` on, of `size` in the whole parameter.
  void add_elements(int step, ProofPhase phase, const std::string& name, int place, std::size_t size, std::size_t global,
                    std::span<const double> values);

  bool in_train_step = false;

  // ---- results, in a build with WEFT_PROVE_IN_DOUBLE
  bool results = false;  ///< they are noted
  /// The rank computes a unit of the model for the samples first, first + 1, ... of the global batch.
  void enter_unit(bool forward, const std::string& name, int number, std::size_t first, std::size_t samples);
  void leave_unit() { unit_.inside = false; }
  bool in_unit() const { return unit_.inside; }
  /// The next result is computed from this parameter.
  void use_parameter(std::string_view name) { unit_.parameter = name; }
  /// Notes a result of the unit under its type, its number among results of this type, and the parameter that it used: "Linear #1
  /// of mlp.up.weight"; or, without one, the parameter of the result before it: "Gelu #1 after mlp.up.weight".
  void note_result(const std::string& type, ProofPiece piece);

 private:
  struct CurrentUnit {
    bool inside = false, forward = true;
    std::string name, parameter = {}, last = {};  // last: the parameter of an earlier result
    int number = 0, place = 0;
    std::size_t first = 0, samples = 1;
    std::map<std::string, int> seen = {};
  };
  int number(std::vector<std::pair<const void*, int>>& list, const void* one);

  ProofNotes* notes_;
  const ProofLayout* layout_;
  int rank_;
  std::vector<std::pair<const void*, int>> optimizers_, models_;  // with their steps
  CurrentUnit unit_;
};

/// Thrown through the program after the wanted steps. Not a std::exception, so programs do not catch it.
struct ProofEnd {};

}  // namespace weft::detail

#ifndef WEFT_COMPILED
#include <weft/device/proof_impl.hpp>
#endif
