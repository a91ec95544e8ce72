// SPDX-License-Identifier: Apache-2.0
#pragma once
// The notes of a proof, and their form as bytes. Definitions for device/proof.hpp.

#include <algorithm>
#include <cstring>
#include <iterator>
#include <type_traits>

#include <weft/device/proof.hpp>

namespace weft::detail {

WEFT_COLD WEFT_INLINE std::size_t ProofLayout::degree(std::string_view axis) const {
  for (const auto& [name, degree] : degrees)
    if (name == axis) return degree;
  return 1;
}

WEFT_COLD WEFT_INLINE std::string ProofLayout::text() const {
  std::string all;
  for (const auto& [name, degree] : degrees)
    if (degree > 1) append_to(all, {all.empty() ? "" : " ", name, " ", degree});
  if (all.empty()) all = ranks == 1 ? "one rank" : joined({ranks, " ranks"});
  if (stage >= 0) append_to(all, {", stage ", stage, " of ZeRO"});
  if (schedule != Schedule::given) append_to(all, {", ", name_of(schedule)});
  return all;
}

WEFT_COLD WEFT_INLINE std::string_view name_of(ProofLayout::Schedule schedule) {
  constexpr std::string_view names[] = {"", "GPipe", "ZB-H1", "ZBV"};
  return names[std::size_t(schedule)];
}

WEFT_COLD WEFT_INLINE std::string_view name_of(ProofPhase phase) {
  constexpr std::string_view names[] = {
      "batch", "forward",           "loss",       "backward", "gradient before the sums over ranks", "gradient",
      "norm",  "updated parameter", "kept values"};
  static_assert(std::size(names) == proof_phases);
  return names[std::size_t(phase)];
}

WEFT_COLD WEFT_INLINE std::size_t ProofNotes::samples() const {
  const bool any = !tensors.empty() && tensors.begin()->first.phase == ProofPhase::batch;
  return any ? tensors.begin()->second.parts.size() : 0;
}

/// Values as bytes, one after the other.
struct ProofWriter {
  std::string bytes;

  template <class T>
  requires std::is_trivially_copyable_v<T>
  void write(const T& value) { bytes.append(reinterpret_cast<const char*>(&value), sizeof value); }
  void write(const std::string& text) {
    write(text.size());
    bytes += text;
  }
  void write(const std::vector<double>& values) {
    write(values.size());
    bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(double));
  }
};

struct ProofReader {
  std::string_view bytes;
  bool ended_early = false;

  void take(void* to, std::size_t count) {
    if (count > bytes.size()) ended_early = true;
    if (ended_early || count == 0) return;
    std::memcpy(to, bytes.data(), count);
    bytes.remove_prefix(count);
  }
  template <class T>
  requires std::is_trivially_copyable_v<T>
  void read(T& value) { take(&value, sizeof value); }
  std::size_t count(std::size_t each) {  // of elements that are there
    std::size_t number = 0;
    read(number);
    if (number > bytes.size() / each) ended_early = true;
    return ended_early ? 0 : number;
  }
  void read(std::string& text) {
    text.resize(count(1));
    take(text.data(), text.size());
  }
  void read(std::vector<double>& values) {
    values.resize(count(sizeof(double)));
    take(values.data(), values.size() * sizeof(double));
  }
};

WEFT_COLD WEFT_INLINE std::string ProofNotes::bytes() const {
  ProofWriter to;
  to.write(axes.size());
  for (const Axis& axis : axes) to.write(axis.name), to.write(axis.expert);
  to.write(stage_is_open), to.write(over_domain), to.write(schedule_is_open), to.write(replaceable), to.write(cut_fields),
      to.write(computed);
  to.write(steps), to.write(narrowest), to.write(ending), to.write(error);
  to.write(tensors.size());
  for (const auto& [key, tensor] : tensors) {
    to.write(key.step), to.write(key.phase), to.write(key.unit), to.write(key.name);
    to.write(tensor.place), to.write(tensor.sorted), to.write(tensor.replicas), to.write(tensor.parts.size());
    for (const auto& [part, values] : tensor.parts) to.write(part), to.write(values);
  }
  to.write('.');
  return std::move(to.bytes);
}

WEFT_COLD WEFT_INLINE bool ProofNotes::read(std::string_view bytes) {
  ProofReader from{bytes};
  axes.resize(from.count(1));
  for (Axis& axis : axes) from.read(axis.name), from.read(axis.expert);
  from.read(stage_is_open), from.read(over_domain), from.read(schedule_is_open), from.read(replaceable), from.read(cut_fields),
      from.read(computed);
  from.read(steps), from.read(narrowest), from.read(ending), from.read(error);
  for (std::size_t left = from.count(1); left > 0 && !from.ended_early; --left) {
    Key key;
    from.read(key.step), from.read(key.phase), from.read(key.unit), from.read(key.name);
    Tensor tensor;
    from.read(tensor.place), from.read(tensor.sorted), from.read(tensor.replicas);
    for (std::size_t parts = from.count(1); parts > 0 && !from.ended_early; --parts) {
      std::size_t part = 0;
      from.read(part);
      from.read(tensor.parts[part]);
    }
    tensors[std::move(key)] = std::move(tensor);
  }
  char end = 0;
  from.read(end);
  return !from.ended_early && end == '.';
}

WEFT_COLD WEFT_INLINE int Proof::number(std::vector<std::pair<const void*, int>>& list, const void* one) {
  const auto at = std::find_if(list.begin(), list.end(), [one](const auto& known) { return known.first == one; });
  if (at != list.end()) return int(at - list.begin());
  list.push_back({one, 0});
  return int(list.size()) - 1;
}

WEFT_COLD WEFT_INLINE int Proof::step() const {
  int most = 0;
  for (const auto& [optimizer, steps] : optimizers_) most = std::max(most, steps);
  return most + 1;
}

WEFT_COLD WEFT_INLINE std::string Proof::model(const void* model) {
  const int index = number(models_, model);
  return index == 0 ? "" : joined({"model ", index + 1, ": "});
}

WEFT_COLD WEFT_INLINE std::string Proof::optimizer(const void* optimizer) {
  const int index = number(optimizers_, optimizer);
  return index == 0 ? "" : joined({"optimizer ", index + 1, ": "});
}

WEFT_COLD WEFT_INLINE int Proof::steps_of(const void* optimizer) const {
  for (const auto& [known, steps] : optimizers_)
    if (known == optimizer) return steps;
  return 0;
}

WEFT_COLD WEFT_INLINE void Proof::begin_step() {
  int least = wanted_steps, most = 0;
  for (const auto& [optimizer, steps] : optimizers_) least = std::min(least, steps), most = std::max(most, steps);
  if (!optimizers_.empty() && (least >= wanted_steps || most > wanted_steps)) throw ProofEnd();
  const std::lock_guard lock(notes_->mutex);
  notes_->steps = std::max(notes_->steps, step());
}

WEFT_COLD WEFT_INLINE void Proof::stepped(const void* optimizer) {
  ++optimizers_[std::size_t(number(optimizers_, optimizer))].second;
  const std::lock_guard lock(notes_->mutex);
  notes_->computed = true;
}

WEFT_COLD WEFT_INLINE void Proof::note_axis(std::string_view name, bool expert) {
  const std::lock_guard lock(notes_->mutex);
  const ProofNotes::Axis axis{std::string(name), expert};
  if (std::find(notes_->axes.begin(), notes_->axes.end(), axis) == notes_->axes.end()) notes_->axes.push_back(axis);
}

WEFT_COLD WEFT_INLINE void Proof::note_part(ProofPhase phase, std::string name, std::size_t part, std::vector<double> values) {
  const std::lock_guard lock(notes_->mutex);
  notes_->tensors[{step(), phase, 0, std::move(name)}].parts[part] = std::move(values);
}

WEFT_COLD WEFT_INLINE void Proof::note_loss(const std::string& model, double loss) {
  if (rank_ == 0) note_part(ProofPhase::loss, model + "train_step", 0, {loss});
}

WEFT_COLD WEFT_INLINE void Proof::note_copy(int step, ProofPhase phase, std::string name, std::vector<double> values) {
  const std::lock_guard lock(notes_->mutex);
  ProofNotes::Tensor& tensor = notes_->tensors[{step, phase, 0, std::move(name)}];
  tensor.copies = true;
  tensor.parts[std::size_t(rank_)] = std::move(values);
}

WEFT_COLD WEFT_INLINE void Proof::enter_unit(bool forward, const std::string& name, int number, std::size_t first,
                                             std::size_t samples) {
  if (!results || !in_train_step) return;
  unit_ = {.inside = true,
           .forward = forward,
           .name = name,
           .number = number,
           .first = first,
           .samples = std::max<std::size_t>(1, samples)};
}

WEFT_COLD WEFT_INLINE void Proof::note_result(const std::string& type, ProofPiece piece) {
  std::string name = joined({unit_.name, ", ", type, " #", ++unit_.seen[type]});
  if (unit_.forward && !unit_.parameter.empty()) append_to(name, {" of ", unit_.last = std::exchange(unit_.parameter, "")});
  else if (unit_.forward && !unit_.last.empty()) append_to(name, {" after ", unit_.last});
  piece.first = unit_.first, piece.samples = unit_.samples;
  const std::lock_guard lock(notes_->mutex);
  ProofNotes::Tensor& tensor = notes_->tensors[{step(), unit_.forward ? ProofPhase::forward : ProofPhase::backward,
                                                unit_.forward ? unit_.number : -unit_.number, std::move(name)}];
  tensor.place = unit_.place++;
  tensor.pieces.push_back(std::move(piece));
}

WEFT_COLD WEFT_INLINE void Proof::add_elements(int step, ProofPhase phase, const std::string& name, int place, std::size_t size,
                                               std::size_t global, std::span<const double> values) {
  const std::lock_guard lock(notes_->mutex);
  ProofNotes::Tensor& tensor = notes_->tensors[{step, phase, 0, name}];
  tensor.place = place;
  std::vector<double>& whole = tensor.parts[0];
  whole.resize(size);
  for (std::size_t i = 0; i < values.size(); ++i) whole[global + i] += values[i];
}

}  // namespace weft::detail
