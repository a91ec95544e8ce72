// SPDX-License-Identifier: Apache-2.0
#pragma once
// The tables of the exchange. Definitions for nn/expert_exchange.hpp.

#include <weft/core/inline.hpp>
#include <weft/nn/expert_exchange.hpp>

namespace weft::detail {

WEFT_INLINE ExchangeTables exchange_tables(const Communicator& ep_ranks, const Communicator& etp_ranks,
                                           const std::vector<std::uint64_t>& counts, std::size_t grain,
                                           std::size_t ranks_of_a_term) {
  const std::size_t ranks = std::size_t(ep_ranks.size()), parts = std::size_t(etp_ranks.size()), mine = counts.size() / ranks,
                    sources = ranks * parts;
  std::vector<std::uint64_t> received(counts.size()), all(counts.size() * parts);
  ep_ranks.all_to_all(counts, received);
  etp_ranks.all_gather(received, all);
  const auto rows = [&](const std::vector<std::uint64_t>& of, std::size_t piece, std::size_t size) {
    return static_cast<std::size_t>(std::accumulate(of.begin() + std::ptrdiff_t(piece * size),
                                                    of.begin() + std::ptrdiff_t((piece + 1) * size), std::uint64_t(0)));
  };
  ExchangeTables tables;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    tables.send.push_back(rows(counts, rank, mine));
    tables.receive.push_back(rows(received, rank, mine));
  }
  for (std::size_t part = 0; part < parts; ++part) tables.gathered.push_back(rows(all, part, counts.size()));
  std::vector<std::uint64_t> first(all.size());
  std::exclusive_scan(all.begin(), all.end(), first.begin(), std::uint64_t(0));
  tables.back.resize(rows(all, 0, all.size()));
  const std::size_t terms = sources / ranks_of_a_term;
  for (std::size_t at = 0; at < mine * terms; ++at) {
    const std::size_t expert = at / terms, before = tables.sorted.size();
    for (std::size_t source = 0; source < sources; ++source) {
      if ((source % ranks * parts + source / ranks) / ranks_of_a_term != at % terms) continue;
      const std::size_t chunk = source * mine + expert;
      for (std::uint64_t row = first[chunk]; row < first[chunk] + all[chunk]; ++row) {
        tables.back[row] = static_cast<std::int32_t>(tables.sorted.size());
        tables.sorted.push_back(static_cast<std::int32_t>(row));
      }
    }
    tables.counts.push_back(filled(tables.sorted.size() - before, grain));
    tables.sorted.resize(before + tables.counts.back(), -1);
  }
  return tables;
}

}  // namespace weft::detail
