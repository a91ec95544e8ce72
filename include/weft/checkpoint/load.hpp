// SPDX-License-Identifier: Apache-2.0
#pragma once
// A checkpoint read into a model of any layout: the number of ranks, their axes, the schedule and the ZeRO stage may differ from
// the run that wrote it. Each rank reads and verifies the chunks that hold its elements. No parameter changes before all ranks
// have read everything.
//
//   const std::uint64_t step = checkpoint::load("run", model, optimizer);

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <weft/checkpoint/error.hpp>
#include <weft/checkpoint/file_system.hpp>
#include <weft/checkpoint/folder.hpp>
#include <weft/checkpoint/index.hpp>
#include <weft/checkpoint/match.hpp>
#include <weft/checkpoint/pages.hpp>
#include <weft/checkpoint/read.hpp>
#include <weft/checkpoint/save.hpp>
#include <weft/checkpoint/state.hpp>
#include <weft/checkpoint/together.hpp>
#include <weft/comm/in_function.hpp>
#include <weft/core/data_identity.hpp>

namespace weft::checkpoint {

/// Options of load and resume.
struct LoadOptions {
  FileSystem* system = &FileSystem::system();
  /// Refuse a checkpoint of a model with the same tensors but different results: other heads, epsilon, positions, mask, choice of
  /// experts, or alpha of the adapters.
  bool same_config = true;
  /// The data of this run. A checkpoint of a run on data with another size, digest or sampling is refused, and one that was saved
  /// without SaveOptions::data. Without it, `load` compares nothing, for a model that is only evaluated; `resume` refuses a
  /// checkpoint that names its data.
  std::optional<DataIdentity> data = {};
  bool other_data = false;  ///< accept a checkpoint of a run on other or unknown data
};

namespace detail {

/// Reads the index on rank 0 and sends it to all. Collective.
inline Index shared_index(const Communicator& ranks, const std::string& folder, FileSystem& system, std::string& path,
                          std::string& read_path) {
  Packed message;
  std::string text;
  Index index;
  require_all(ranks, failure_of([&] {
                if (ranks.rank() != 0) return;
                path = read_path = find(folder, system);
                text = text_of(system, in_folder(path, index_name));
                index = parse_index(in_folder(path, index_name), text);
                message.put(path);
                message.put(text);
              }));
  message = from(ranks, 0, std::move(message));
  together(ranks, [&] {
    if (ranks.rank() == 0) return;
    path = message.text();
    index = parse_index(in_folder(path, index_name), message.text());
  });
  return index;
}

/// Continues the model's step counts from the saved ones, and discards accumulated gradients.
template <class Model>
void restore_steps(Model& model, const Index& index) {
  model.discard_gradients();
  if constexpr (requires { model.stages().gradients(); })
    model.stages().gradients()->restart(index.next_step.value_or(index.step));
}

/// Gives a model without the texts of a folder those of the checkpoint's model, so that an export keeps the fields of its config
/// that weft does not use.
template <class Model>
void restore_files(Model& model, const Index& index) {
  if constexpr (has_files<Model>) {
    auto files = model.stages().config().files;
    if (!files.config.empty() || !index.notes.contains("files.config")) return;
    files.type = note_of(index, "files.type");
    files.config = note_of(index, "files.config");
    files.generation = note_of(index, "files.generation");
    model.stages().set_files(std::move(files));
  }
}

/// Reads everything, then changes everything. `fetch(tensors, items, out)` copies this rank's elements of each item to out[i];
/// it is collective and fails on all ranks or on none. `check(path, index)` throws if the state cannot be restored;
/// `finish(index)` then restores the parts that are not tensors.
template <class Hooks, class Check, class Finish, class Fetch>
void restore(const std::string& path, const Index& index, const Communicator& ranks, State state, bool with_optimizer,
             const LoadOptions& options, Hooks&& hooks, Check&& check, Finish&& finish, Fetch&& fetch) {
  std::vector<const LogicalTensor*> tensors = match(ranks, path, index, state, with_optimizer);
  together(ranks, [&] {
    if (options.same_config) require_config(path, index, state);
    if (options.data && !options.other_data) require_data(path, index, *options.data);
    check(path, index);
  });
  std::vector<Item> of_hooks = hooks(index);
  match_hooks(ranks, index, of_hooks, state, tensors);
  std::vector<std::byte*> read(state.items.size());
  Pages pages;
  together(ranks, [&] {
    const auto room = [&](std::size_t i) { return (state.items[i].size * size_of(tensors[i]->type) + 63) / 64 * 64; };
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < state.items.size(); ++i) bytes += room(i);
    pages = Pages(bytes);
    std::byte* at = pages.data();
    for (std::size_t i = 0; i < state.items.size(); at += room(i++)) read[i] = at;
  });
  fetch(tensors, state.items, read);
  const auto write = [&](bool undone) {
    for (std::size_t i = 0; i < state.items.size(); ++i)
      if (state.items[i].size != 0) state.items[i].write(read[i], tensors[i]->type, undone);
  };
  // Writing to a file of offloaded state may fail: no record is valid before all ranks have written theirs.
  const std::optional<Failure> failure = failure_of([&] { write(true); });
  if (failure && state.store != nullptr) state.store->roll_back();
  try {
    require_all(ranks, failure);
  } catch (...) {
    if (state.store != nullptr) state.store->roll_back();
    throw;
  }
  if (state.store != nullptr) state.store->commit();
  write(false);
  finish(index);
}

template <class Hooks, class Check, class Finish>
std::uint64_t load_once(const std::string& folder, const Communicator& ranks, State state, bool with_optimizer,
                        const LoadOptions& options, Hooks&& hooks, Check&& check, Finish&& finish, std::string& read_path) {
  FileSystem& system = *options.system;
  std::string path;
  const Index index = shared_index(ranks, folder, system, path, read_path);
  restore(path, index, ranks, std::move(state), with_optimizer, options, hooks, check, finish,
          [&](const auto& tensors, const std::vector<Item>& items, const std::vector<std::byte*>& out) {
            read_items(system, path, index, ranks, tensors, items, out);
          });
  return index.step;
}

/// True if there is another checkpoint to load than `path`, since a running program has saved it meanwhile. Collective.
inline bool replaced(const Communicator& ranks, const std::string& folder, const std::string& path, FileSystem& system) {
  Packed message;
  if (ranks.rank() == 0) {
    bool other = false;
    try {
      other = !path.empty() && find(folder, system) != path;
    } catch (const Error&) {  // the error of the load itself gives the reason
    }
    message.put(std::uint64_t(other));
  }
  return from(ranks, 0, std::move(message)).word() != 0;
}

/// load_once, repeated with the newest checkpoint if the checkpoint has been removed meanwhile (SaveOptions::keep).
template <class Hooks, class Check, class Finish>
std::uint64_t load(const std::string& folder, const Communicator& ranks, const State& state, bool with_optimizer,
                   const LoadOptions& options, Hooks&& hooks, Check&& check, Finish&& finish) {
  require_same_call(ranks, "load", folder, 0);
  for (int left = 8;; --left) {
    std::string path;  // rank 0's
    try {
      return load_once(folder, ranks, state, with_optimizer, options, hooks, check, finish, path);
    } catch (const Error&) {
      if (left == 0 || !replaced(ranks, folder, path, *options.system)) throw;
    }
  }
}

/// Calls `load(state, hooks, check, finish)` for a model and its optimizer. `expect(path, index)` throws if this call refuses the
/// checkpoint.
template <class Model, class Optimizer, class Expect, class Load>
void restore_both(Model& model, Optimizer& optimizer, Expect&& expect, Load&& load) {
  const auto hooks = [&](const Index& index) { return hook_items(model, &index); };
  const auto check = [&](const std::string& path, const Index& index) {
    expect(path, index);
    const auto& scale = model.loss_scale();
    if (scale && index.loss_scale) LossScale(*scale).restore(index.loss_scale->value, index.loss_scale->good_steps);  // a copy
  };
  load(state_of(model, optimizer), hooks, check, [&](const Index& index) {
    restore_steps(model, index);
    restore_files(model, index);
    optimizer.restore(*index.optimizer_steps);
    for (optim::Slot& slot : optimizer.slots()) {
      const auto begun = index.begun.find(slot.state->name());
      slot.begun = begun == index.begun.end() ? 0 : begun->second;
    }
    if (const auto& scale = model.loss_scale(); scale && index.loss_scale)
      scale->restore(index.loss_scale->value, index.loss_scale->good_steps);
  });
}

template <class Model, class Optimizer, class Expect>
std::uint64_t load_with_optimizer(const std::string& folder, Model& model, Optimizer& optimizer, const LoadOptions& options,
                                  Expect&& expect) {
  if (leaves_files_alone(model)) return 0;
  std::uint64_t step = 0;
  restore_both(model, optimizer, expect, [&](const State& state, const auto& hooks, const auto& check, const auto& finish) {
    step = load(folder, model.communicator(), state, true, options, hooks, check, finish);
  });
  return step;
}

}  // namespace detail

/// Restores model and optimizer to the saved state, and returns the step that was passed to save. `folder` is the one passed to
/// save, whose newest complete checkpoint is read, or a single checkpoint in it. In the same layout training continues bit for
/// bit; in another layout it starts from the same numbers. Collective over the model's ranks. Throws Error on every rank if a
/// file is damaged or missing, or belongs to another model (LoadOptions::same_config) or other data (LoadOptions::data); nothing
/// changes in that case. Accumulated gradients are discarded. In a rehearsal or a proof nothing is read, and the step is 0.
template <StoredModel Model, StoredOptimizer Optimizer>
std::uint64_t load(const std::string& folder, Model& model, Optimizer& optimizer, const LoadOptions& options = {}) {
  const comm::InFunction mark(model.communicator(), comm::ProgramFunction::checkpoint_load);
  return detail::load_with_optimizer(folder, model, optimizer, options, [](const std::string&, const Index&) {});
}
/// load, or 0 if there is no checkpoint yet: the first call of a program that can be restarted. A folder that exists but cannot
/// be read throws Error on every rank, so no run starts from the beginning next to its checkpoints. Also throws Error if the
/// checkpoint names its data and `options` do not, so that training does not continue on unknown data. Collective.
template <StoredModel Model, StoredOptimizer Optimizer>
std::uint64_t resume(const std::string& folder, Model& model, Optimizer& optimizer, const LoadOptions& options = {}) {
  const comm::InFunction mark(model.communicator(), comm::ProgramFunction::checkpoint_resume);
  if (detail::leaves_files_alone(model)) return 0;
  const Communicator& ranks = model.communicator();
  detail::require_same_call(ranks, "resume", folder, 0);
  detail::Packed message;
  detail::together(ranks, [&] {
    if (ranks.rank() == 0) message.put(std::uint64_t(exists(folder)));
  });
  if (detail::from(ranks, 0, std::move(message)).word() == 0) return 0;
  return detail::load_with_optimizer(folder, model, optimizer, options, [&](const std::string& path, const Index& index) {
    if (!options.data && !options.other_data) detail::require_unnamed_data(path, index);
  });
}
/// Loads only the model, from a checkpoint with or without optimizer state. An existing optimizer keeps its state; call its
/// refresh() if the model's type has 16 bits.
template <StoredModel Model>
std::uint64_t load(const std::string& folder, Model& model, const LoadOptions& options = {}) {
  const comm::InFunction mark(model.communicator(), comm::ProgramFunction::checkpoint_load);
  if (detail::leaves_files_alone(model)) return 0;
  const auto hooks = [](const Index&) { return std::vector<detail::Item>(); };
  const auto check = [](const std::string&, const Index&) {};
  return detail::load(folder, model.communicator(), detail::state_of(model), false, options, hooks, check,
                      [&](const Index& index) {
                        detail::restore_steps(model, index);
                        detail::restore_files(model, index);
                      });
}
// Every other call.
template <bool Refused = true>
std::uint64_t load(weft::detail::AnyArgument = {}, weft::detail::AnyArgument = {}, weft::detail::AnyArgument = {},
                   weft::detail::AnyArgument = {}, weft::detail::AnyArgument = {}) {
  static_assert(!Refused,
                "weft: checkpoint::load takes a folder, a model in its wrapper, DataParallel<Net> model(mesh, {}), and its "
                "optimizer if it has one: checkpoint::load(\"run\", model, optimizer). Checkpoints do not hold the history of "
                "optim::Lbfgs: load the model without it, checkpoint::load(\"run\", model), and make a new one");
  return 0;
}
// Every other call.
template <bool Refused = true>
std::uint64_t resume(weft::detail::AnyArgument = {}, weft::detail::AnyArgument = {}, weft::detail::AnyArgument = {},
                     weft::detail::AnyArgument = {}, weft::detail::AnyArgument = {}) {
  static_assert(!Refused,
                "weft: checkpoint::resume takes a folder, a model in its wrapper, DataParallel<Net> model(mesh, {}), and its "
                "optimizer: checkpoint::resume(\"run\", model, optimizer). Checkpoints do not hold the history of "
                "optim::Lbfgs: load the model without it, checkpoint::load(\"run\", model), and make a new one");
  return 0;
}

}  // namespace weft::checkpoint
