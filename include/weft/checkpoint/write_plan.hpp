// SPDX-License-Identifier: Apache-2.0
#pragma once
// The assignment of tensors' parts to the ranks that write them. Ranks exchange their blocks. A block that several ranks hold is
// written by one of them, so that all ranks write about the same number of bytes. Every rank computes the same plan.
//
//   const WritePlan plan = plan_writes(ranks, state.items);

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <weft/checkpoint/blocks.hpp>
#include <weft/checkpoint/index.hpp>
#include <weft/checkpoint/state.hpp>
#include <weft/checkpoint/together.hpp>
#include <weft/comm/communicator.hpp>

namespace weft::checkpoint::detail {

struct WritePlan {
  struct Part {
    std::size_t tensor;
    Strided block;
  };
  struct Mine {
    const Item* item;
    StridedRun block;
  };
  std::vector<LogicalTensor> tensors;    ///< by name, without pieces
  std::vector<std::vector<Part>> parts;  ///< by rank, in the order of its file
  std::vector<Mine> mine;                ///< this rank's parts, in the same order
};

/// The size in bytes from which a block that several ranks hold is divided among them.
inline constexpr std::uint64_t divided_from = 1u << 20;

inline WritePlan plan_writes(const Communicator& ranks, const std::vector<Item>& items) {
  // Exchange every rank's tensors and blocks.
  Packed message;
  std::vector<std::vector<StridedRun>> blocks_of_item;
  for (const Item& item : items) {
    message.put(item.name);
    message.put(item.kind);
    message.put(std::uint64_t(item.type) << 8 | std::uint64_t(item.of));
    message.put(item.shape.size());
    for (const std::size_t extent : item.shape) message.put(extent);
    blocks_of_item.push_back(item.runs.strided(item.row));
    message.put(blocks_of_item.back().size());
    for (const StridedRun& mine : blocks_of_item.back()) {
      const Strided block = mine.global();
      for (const std::uint64_t word :
           {block.first, block.run, block.runs, block.stride, std::uint64_t(mine.first.owned && item.counted)})
        message.put(word);
    }
  }
  struct Holder {
    int rank;
    bool owns;
  };
  struct Tensor {
    LogicalTensor tensor;
    std::map<Strided, std::vector<Holder>> blocks;
  };
  std::map<std::string, Tensor> all;
  std::vector<Packed> of_rank = from_all(ranks, std::move(message));
  for (int rank = 0; rank < ranks.size(); ++rank)
    for (Packed& said = of_rank[std::size_t(rank)]; !said.done();) {
      LogicalTensor tensor;
      tensor.name = said.text();
      tensor.kind = said.text();
      const std::uint64_t types = said.word();
      tensor.type = StoredType(types >> 8);
      tensor.of = StoredType(types & 255);
      tensor.shape.resize(said.word());
      for (std::size_t& extent : tensor.shape) extent = said.word();
      const auto [at, added] = all.try_emplace(tensor.name, Tensor{tensor, {}});
      const LogicalTensor& first = at->second.tensor;
      if (first.shape != tensor.shape || first.type != tensor.type || first.of != tensor.of || first.kind != tensor.kind)
        weft::throw_error<UsageError>({"checkpoint: two things to save are both named ", tensor.name, " (a ", first.kind,
                                       " and a ", tensor.kind, ", or of two shapes): give one another name"});
      for (std::uint64_t count = said.word(); count > 0; --count) {
        Strided block;
        block.first = said.word();
        block.run = said.word();
        block.runs = said.word();
        block.stride = said.word();
        at->second.blocks[block].push_back({rank, said.word() != 0});
      }
    }

  WritePlan plan;
  plan.parts.resize(std::size_t(ranks.size()));
  struct Write {
    std::size_t tensor;
    std::uint64_t bytes;
    Strided block;
    std::vector<Holder>* holders;
  };
  std::vector<Write> writes;
  for (auto& [name, tensor] : all) {
    const std::uint64_t bytes = bytes_of(tensor.tensor.shape, tensor.tensor.type).value(), size = size_of(tensor.tensor.type),
                        elements = bytes / size;
    std::vector<Strided> blocks;
    for (const auto& [block, holders] : tensor.blocks) blocks.push_back(block);
    if (cover(blocks, elements) != Cover::once) {
      // Parts of ranks overlap without being equal. Only the ranks that count an element keep it.
      blocks.clear();
      for (auto entry = tensor.blocks.begin(); entry != tensor.blocks.end();) {
        std::erase_if(entry->second, [](const Holder& holder) { return !holder.owns; });
        if (entry->second.empty()) {
          entry = tensor.blocks.erase(entry);
        } else {
          blocks.push_back(entry->first);
          ++entry;
        }
      }
      if (cover(blocks, elements) != Cover::once)
        weft::throw_error<weft::Error>({"checkpoint: no ranks have every element of ", name, " once: an error of weft"});
    }
    for (auto& [block, holders] : tensor.blocks)
      writes.push_back({plan.tensors.size(), block.elements() * size, block, &holders});
    plan.tensors.push_back(std::move(tensor.tensor));
  }
  // First blocks that only one rank holds, then by size.
  std::stable_sort(writes.begin(), writes.end(), [](const Write& a, const Write& b) {
    const bool alone_a = a.holders->size() == 1, alone_b = b.holders->size() == 1;
    return alone_a != alone_b ? alone_a : a.bytes > b.bytes;
  });
  std::vector<std::uint64_t> load(std::size_t(ranks.size()), 0);
  for (const Write& write : writes) {
    const bool divides = write.holders->size() > 1 && write.bytes >= divided_from;
    for (const Strided& part : divided(write.block, divides ? write.holders->size() : 1)) {
      int least = write.holders->front().rank;
      for (const Holder& holder : *write.holders)
        if (load[std::size_t(holder.rank)] < load[std::size_t(least)]) least = holder.rank;
      load[std::size_t(least)] += part.elements() * size_of(plan.tensors[write.tensor].type);
      plan.parts[std::size_t(least)].push_back({write.tensor, part});
    }
  }
  for (auto& parts : plan.parts)
    std::sort(parts.begin(), parts.end(), [](const WritePlan::Part& a, const WritePlan::Part& b) {
      return std::pair(a.tensor, a.block.first) < std::pair(b.tensor, b.block.first);
    });

  // Find this rank's parts among its elements: each is a whole block, or some runs of one.
  std::map<std::string, std::size_t> item_of_name;
  for (std::size_t i = 0; i < items.size(); ++i) item_of_name[items[i].name] = i;
  for (const WritePlan::Part& part : plan.parts[std::size_t(ranks.rank())]) {
    const std::size_t i = item_of_name.at(plan.tensors[part.tensor].name);
    for (const StridedRun& whole : blocks_of_item[i]) {
      const Strided block = whole.global();
      if (part.block.first < block.first || part.block.run > block.run) continue;
      const std::uint64_t behind = part.block.first - block.first, run = behind / block.stride, within = behind % block.stride;
      if (run >= block.runs || within + part.block.run > block.run || run + part.block.runs > block.runs) continue;
      if (part.block.runs > 1 && (part.block.stride != block.stride || part.block.run != block.run)) continue;
      plan.mine.push_back({&items[i],
                           {{whole.run(run).local + within, part.block.first, part.block.run},
                            part.block.runs,
                            part.block.runs == 1 ? part.block.run : whole.local_stride,
                            part.block.stride}});
      break;
    }
  }
  return plan;
}

}  // namespace weft::checkpoint::detail
