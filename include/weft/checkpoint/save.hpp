// SPDX-License-Identifier: Apache-2.0
#pragma once
// A checkpoint of a model and its optimizer. Each rank writes its own part, rank 0 the index. The checkpoint becomes visible at
// once, when all of it is on the disk. An error on one rank is an error on all, and leaves every earlier checkpoint unchanged.
//
//   checkpoint::save("run", model, optimizer, step);

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <weft/checkpoint/checksum.hpp>
#include <weft/checkpoint/commit.hpp>
#include <weft/checkpoint/data_notes.hpp>
#include <weft/checkpoint/error.hpp>
#include <weft/checkpoint/file_system.hpp>
#include <weft/checkpoint/folder.hpp>
#include <weft/checkpoint/index.hpp>
#include <weft/checkpoint/safetensors.hpp>
#include <weft/checkpoint/state.hpp>
#include <weft/checkpoint/together.hpp>
#include <weft/checkpoint/write_plan.hpp>
#include <weft/comm/agree.hpp>
#include <weft/comm/in_function.hpp>
#include <weft/core/data_identity.hpp>

namespace weft::checkpoint {

/// Options of save and Saver.
struct SaveOptions {
  std::size_t keep = 0;       ///< number of newest checkpoints to keep, including this one; 0: all
  std::size_t keep_best = 0;  ///< number of checkpoints with the lowest validation losses to keep in addition
  /// This checkpoint's validation loss, the same on all ranks; stored if finite. checkpoint::best(folder) finds the lowest.
  std::optional<double> validation_loss = {};
  std::map<std::string, std::string> notes = {};  ///< written into the index, for example the program's options
  /// The identity of the training data, as on rank 0. Loads compare it with theirs (LoadOptions::data).
  std::optional<DataIdentity> data = {};
  FileSystem* system = &FileSystem::system();
};

namespace detail {

/// The file that a rank has written.
struct Written {
  StoredFile file;
  std::vector<std::vector<std::uint64_t>> checksums;  ///< per part
};

/// A part of a tensor to write. `get` returns a pointer to its elements, in place or gathered in the buffer.
struct Part {
  StoredTensor header;
  std::uint64_t elements = 0, element_bytes = 0;
  StridedRun block;
  Bytes bytes;

  const std::byte* get(std::uint64_t from, std::uint64_t count, std::vector<std::byte>& buffer) const {
    const std::uint64_t size = element_bytes;
    if (block.count == 1 || block.local_stride == block.first.length) return bytes.data + (block.first.local + from) * size;
    buffer.resize(count * size);
    copy_to(buffer.data(), from, count);
    return buffer.data();
  }
  void copy_to(std::byte* out, std::uint64_t from, std::uint64_t count) const {
    const std::uint64_t size = element_bytes, run = block.first.length;
    for (std::uint64_t i = from / run, within = from % run; count > 0; ++i, within = 0) {
      const std::uint64_t some = std::min(run - within, count);
      std::memcpy(out, bytes.data + (block.run(i).local + within) * size, some * size);
      out += some * size;
      count -= some;
    }
  }
  void copy_to(std::byte* out) const { copy_to(out, 0, elements); }
};

/// This rank's parts. Elements are copied only if they cannot be read in place.
inline std::vector<Part> parts_of(const WritePlan& plan) {
  std::vector<Part> parts;
  std::map<const Item*, Bytes> read;
  for (const WritePlan::Mine& mine : plan.mine) {
    const Item& item = *mine.item;
    const Strided block = mine.block.global();
    Part part;
    part.element_bytes = size_of(item.type);
    part.elements = block.elements();
    part.block = mine.block;
    const bool whole = part.elements * part.element_bytes == bytes_of(item.shape, item.type);
    part.header.name = whole ? item.name : weft::detail::joined({item.name, "@", block.first});
    part.header.type = item.type;
    part.header.shape = whole             ? item.shape
                        : block.runs == 1 ? std::vector<std::size_t>{block.run}
                                          : std::vector<std::size_t>{block.runs, block.run};
    auto [at, added] = read.try_emplace(&item);
    if (added) at->second = item.read();
    part.bytes = at->second;
    parts.push_back(std::move(part));
  }
  return parts;
}

/// Writes this rank's file and syncs it to the disk.
inline Written write_parts(FileSystem& system, const std::string& path, const std::string& name, std::vector<Part>& parts,
                           std::uint64_t chunk_bytes) {
  Written written;
  if (parts.empty()) return written;
  std::vector<StoredTensor> headers;
  for (const Part& part : parts) headers.push_back(part.header);
  const std::string header = safetensors_header(headers, {{"format", "weft"}});
  File file = File::make(system, path);
  Checksum all;
  all.add(header.data(), header.size());
  file.write(header.data(), header.size());
  std::vector<std::byte> buffer;
  constexpr std::uint64_t cached = 256u << 10;
  for (const Part& part : parts) {
    auto& sums = written.checksums.emplace_back();
    const std::uint64_t step = chunk_bytes / part.element_bytes;
    for (std::uint64_t at = 0; at < part.elements; at += step) {
      const std::uint64_t count = std::min(step, part.elements - at), bytes = count * part.element_bytes;
      const std::byte* data = part.get(at, count, buffer);
      Checksum chunk;
      // Pieces stay in the processor's cache while they are read three times.
      for (std::uint64_t from = 0; from < bytes; from += cached) {
        const std::size_t some = std::size_t(std::min(cached, bytes - from));
        chunk.add(data + from, some);
        all.add(data + from, some);
        file.write(data + from, some);
      }
      sums.push_back(chunk.value());
    }
  }
  written.file = {name, file.length(), header.size(), checksum_of(header.data(), header.size()), all.value()};
  file.finish();
  return written;
}

/// Combines the files of all ranks into the index. Collective; the result is valid on rank 0.
inline Index collect(const Communicator& ranks, WritePlan plan, const Written& written, Index index) {
  Packed message;
  message.put(written.file.name);
  for (const std::uint64_t word :
       {written.file.bytes, written.file.header_bytes, written.file.header_checksum, written.file.checksum})
    message.put(word);
  for (const auto& sums : written.checksums) {
    message.put(std::uint64_t(sums.size()));
    for (const std::uint64_t sum : sums) message.put(sum);
  }
  std::vector<Packed> all = from_all(ranks, std::move(message));
  if (ranks.rank() != 0) return index;
  index.tensors = std::move(plan.tensors);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    Packed& received = all[rank];
    StoredFile file;
    file.name = received.text();
    file.bytes = received.word();
    file.header_bytes = received.word();
    file.header_checksum = received.word();
    file.checksum = received.word();
    if (plan.parts[rank].empty()) continue;
    std::uint64_t offset = file.header_bytes;
    for (const WritePlan::Part& part : plan.parts[rank]) {
      StoredPiece piece{index.files.size(), part.block, offset, std::vector<std::uint64_t>(received.word())};
      for (std::uint64_t& sum : piece.checksums) sum = received.word();
      offset += part.block.elements() * size_of(index.tensors[part.tensor].type);
      index.tensors[part.tensor].pieces.push_back(std::move(piece));
    }
    index.files.push_back(std::move(file));
  }
  for (LogicalTensor& tensor : index.tensors)
    std::sort(tensor.pieces.begin(), tensor.pieces.end(),
              [](const StoredPiece& a, const StoredPiece& b) { return a.block.first < b.block.first; });
  return index;
}

inline Index index_of(const Communicator& ranks, const State& state, std::uint64_t step, const SaveOptions& options) {
  Index index;
  index.step = step;
  index.world = std::uint64_t(ranks.size());
  index.seed = state.seed;
  index.optimizer_steps = state.optimizer_steps;
  if (state.next_step != step) index.next_step = state.next_step;
  index.loss_scale = state.loss_scale;
  index.notes = options.notes;
  if (options.validation_loss && std::isfinite(*options.validation_loss))
    index.notes[loss_note] = number_text(*options.validation_loss);
  if (options.data) put_data(index.notes, *options.data);
  for (const auto& [name, value] : state.config) index.notes["config." + name] = value;
  for (const auto& [name, value] : state.layout) index.notes["layout." + name] = value;
  for (const auto& [name, text] : state.files) index.notes["files." + name] = text;
  // Includes parameters that other ranks also hold.
  Packed mine;
  for (const auto& [name, steps] : state.begun) {
    mine.put(name);
    mine.put(steps);
  }
  for (Packed& received : from_all(ranks, std::move(mine)))
    while (!received.done()) {
      const std::string name = received.text();
      index.begun[name] = received.word();
    }
  return index;
}

/// Throws UsageError on every rank unless all pass the same folder and step, and the folder's name is not empty.
inline void require_same_call(const Communicator& ranks, const char* what, const std::string& folder, std::uint64_t step) {
  const std::uint64_t words[] = {weft::detail::hash_bytes(folder.data(), folder.size()), step};
  if (const auto found = weft::detail::difference(ranks, words))
    weft::throw_error<UsageError>({"checkpoint::", what, ": rank ", found->rank,
                                   " gives another folder or another step than rank 0: all ranks give the same"});
  if (folder.empty()) weft::throw_error<UsageError>({"checkpoint::", what, ": the folder's name is empty"});
}

/// The folder of the new save, on every rank, and rank 0's commit of it. Collective.
struct Begun {
  std::string place;
  std::unique_ptr<Commit> commit;  ///< on rank 0
};
inline Begun begin_save(const Communicator& ranks, const std::string& folder, std::uint64_t step, FileSystem& system) {
  require_same_call(ranks, "save", folder, step);
  Begun begun;
  Packed message;
  if (ranks.rank() == 0) message.put(nonce());
  const std::string name = from(ranks, 0, std::move(message)).text();
  together(ranks, [&] {
    if (ranks.rank() == 0) begun.commit = std::make_unique<Commit>(system, folder, step, name);
  });
  begun.place = Commit::place(folder, step, name);
  return begun;
}

inline void save(const std::string& folder, const Communicator& ranks, const State& state, std::uint64_t step,
                 const SaveOptions& options) {
  Begun begun = begin_save(ranks, folder, step, *options.system);
  Index index = index_of(ranks, state, step, options);
  WritePlan plan = plan_writes(ranks, state.items);
  const std::string name = rank_file(ranks.rank());
  Written written;
  std::optional<Failure> failure = failure_of([&] {
    std::vector<Part> parts = parts_of(plan);
    written = write_parts(*options.system, in_folder(begun.place, name), name, parts, index.chunk_bytes);
  });
  require_all(ranks, failure);
  index = collect(ranks, std::move(plan), written, std::move(index));
  together(ranks, [&] {
    if (!begun.commit) return;
    begun.commit->publish(index);
    begun.commit->keep({options.keep, options.keep_best});
  });
}

template <class Model, class Optimizer>
State whole_state(Model& model, Optimizer& optimizer) {
  State state = state_of(model, optimizer);
  for (Item& item : hook_items(model, nullptr)) state.items.push_back(std::move(item));
  return state;
}

/// Throws if there are gradients that no step has applied: they are not saved.
template <class Model>
void require_applied(Model& model) {
  if constexpr (requires { model.stages().gradients(); })
    if (const auto& gradients = model.stages().gradients();
        gradients->pending() || (gradients->open && gradients->optimizers > 0))
      throw UsageError(
          "checkpoint::save between train_step and the optimizer's step: the gradients would be lost. Save after the step, or "
          "call "
          "model.discard_gradients() first");
}

}  // namespace detail

/// Writes the state after `step` steps into folder/step-NNNNNNNN, which becomes visible to other ranks and programs when it is
/// complete. Creates the folder if necessary, and replaces an existing checkpoint of that step. Collective over the model's
/// ranks, which must share a file system. Throws Error on every rank if one of them cannot write; earlier checkpoints are
/// untouched. Throws UsageError between train_step and the optimizer's step. Writes nothing in a rehearsal or a proof.
template <StoredModel Model, StoredOptimizer Optimizer>
void save(const std::string& folder, Model& model, Optimizer& optimizer, std::uint64_t step, const SaveOptions& options = {}) {
  const comm::InFunction mark(model.communicator(), comm::ProgramFunction::checkpoint_save);
  detail::require_applied(model);
  if (detail::leaves_files_alone(model)) return;
  detail::save(folder, model.communicator(), detail::whole_state(model, optimizer), step, options);
}
/// Saves the model without an optimizer.
template <StoredModel Model>
void save(const std::string& folder, Model& model, std::uint64_t step, const SaveOptions& options = {}) {
  const comm::InFunction mark(model.communicator(), comm::ProgramFunction::checkpoint_save);
  if (detail::leaves_files_alone(model)) return;
  detail::save(folder, model.communicator(), detail::state_of(model), step, options);
}
// Every other call.
template <bool Refused = true>
void save(weft::detail::AnyArgument = {}, weft::detail::AnyArgument = {}, weft::detail::AnyArgument = {},
          weft::detail::AnyArgument = {}, weft::detail::AnyArgument = {}) {
  static_assert(!Refused,
                "weft: checkpoint::save takes a folder, a model in its wrapper, DataParallel<Net> model(mesh, {}), its optimizer "
                "if it has one, and the step: checkpoint::save(\"run\", model, optimizer, step). Checkpoints do not hold the "
                "history of optim::Lbfgs: save the model without it, checkpoint::save(\"run\", model, step)");
}

}  // namespace weft::checkpoint
