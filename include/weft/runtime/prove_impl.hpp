// SPDX-License-Identifier: Apache-2.0
#pragma once
// The runs of a proof and their comparison. Definitions for runtime/prove.hpp.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <weft/comm/launcher.hpp>
#include <weft/core/error.hpp>
#include <weft/core/hash.hpp>
#include <weft/core/input_file.hpp>
#include <weft/core/output_file.hpp>
#include <weft/runtime/guard.hpp>
#include <weft/runtime/proof/compare.hpp>
#include <weft/runtime/proof/layout_processes.hpp>
#include <weft/runtime/proof/layouts.hpp>
#include <weft/runtime/prove.hpp>

namespace weft::runtime {

namespace detail {

class ProofRunner {
 public:
  ProofRunner(const ProofOptions& options, const std::function<int(World&)>& f)
      : options_(options), children_(f, options.layout_seconds), begin_(std::chrono::steady_clock::now()) {
    report_.ranks = options.ranks, report_.steps = options.steps;
  }

  ProofReport run() {
    const auto usual = std::make_unique<Reference>();
    usual->run = children_.run({}, settings(nullptr));
    require_one_rank(*usual->run);
    report_.in_double = usual->run->narrowest == sizeof(double);
    report_.steps = std::min(report_.steps, usual->run->steps);
    measure(*usual);
    for (ProofLayout& layout : layouts_of(*usual->run, options_.ranks)) report_.layouts.push_back({.layout = std::move(layout)});
    std::vector<std::size_t> all(report_.layouts.size());
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
    std::map<std::size_t, std::vector<std::size_t>> others;  // layouts by the samples of their global batch
    std::map<std::size_t, std::unique_ptr<ProofNotes>> batches;
    run_all(all, *usual, false, [&](std::size_t i, std::unique_ptr<ProofNotes> notes) {
      const std::size_t samples = notes->samples();
      if (notes->ending != 0 || samples == 0 || samples == usual->run->samples()) return judge(i, *usual, *notes);
      if (!notes->replaceable || notes->cut_fields) {
        report_.layouts[i].verdict = ProvenLayout::Verdict::not_compared;
        report_.layouts[i].text = weft::detail::joined(
            {"its global batch has ", samples, " samples, one rank's has ", usual->run->samples(),
             ", and the batch of a custom training loop, or of fields that domain axes cut, is not replaced: make it "
             "independent of the number of ranks"});
        return;
      }
      others[samples].push_back(i);
      if (!batches.contains(samples)) batches[samples] = std::move(notes);
    });
    std::erase_if(all, [&](std::size_t i) { return report_.layouts[i].verdict != ProvenLayout::Verdict::differs; });
    explain(all, *usual);
    for (auto& [samples, layouts] : others) {
      Reference reference;
      reference.batches = std::move(batches[samples]);
      reference.run = children_.run({}, settings(nullptr, reference.batches.get()));
      if (reference.run->ending != 0) {
        for (const std::size_t i : layouts) {
          report_.layouts[i].verdict = ProvenLayout::Verdict::not_compared;
          report_.layouts[i].text =
              weft::detail::joined({"one rank fails on its global batch of ", samples, " samples: ", reference.run->error});
        }
        continue;
      }
      measure(reference);
      run_all(layouts, reference, false, [&](std::size_t i, std::unique_ptr<ProofNotes> notes) { judge(i, reference, *notes); });
      explain(layouts, reference);
    }
    report_left_out(*usual->run);
    report_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
    return std::move(report_);
  }

 private:
  /// A one-rank run, on the program's batches or on those of a layout whose global batch has another size.
  struct Reference {
    std::unique_ptr<ProofNotes> batches, run;
    std::map<ProofNotes::Key, double> noise;  // largest difference by noise
  };
  static constexpr double double_bound = 1e-11, noise_factor = 16;
  static constexpr int noise_runs = 3;

  ProofRun settings(const ProofNotes* gradients, const ProofNotes* batches = nullptr) const {
    return {.steps = options_.steps, .gradients = gradients, .batches = batches};
  }

  void require_one_rank(const ProofNotes& one) {
    if (one.ending != 0)
      throw_error<UsageError>({"prove: the program fails on one rank, so there is nothing to compare with: ", one.error});
    if (one.steps == 0 || !one.computed)
      throw_error<UsageError>(
          {"prove: the program ended before an optimizer's first step: give it arguments with which it trains at least one "
           "step"});
    if (one.axes.empty())
      throw_error<UsageError>(
          {"prove: the program makes no mesh, so it has one layout: lay its model over a Mesh<dp> mesh(world), say with "
           "DataParallel in place of SingleDevice"});
    const auto again = children_.run({}, settings(nullptr));
    if (again->ending != 0) throw_error<UsageError>({"prove: a second run on one rank fails: ", again->error});
    compare(one, *again, [&](const ProofDifference& found) {
      if (found.size > 0)
        throw_error<UsageError>(
            {"prove: two runs on one rank differ, so the program is no function of its inputs: ", found.text,
             "; seed random numbers from the options, and keep no state outside of the function that run calls"});
    });
  }

  /// The bounds of a program that does not compute in double: noise in its parameters.
  void measure(Reference& of) {
    if (of.run->narrowest == sizeof(double)) return;
    const double epsilon = of.run->narrowest == sizeof(float) ? 0x1p-23 : 0x1p-8;
    for (int seed = 1; seed <= noise_runs; ++seed) {
      ProofRun run = settings(of.run.get(), of.batches.get());
      run.noise = epsilon, run.noise_seed = std::uint64_t(seed);
      const auto other = children_.run({}, run);
      if (other->ending != 0) continue;
      compare(*of.run, *other, [&](const ProofDifference& found) {
        double& most = of.noise[*found.key];
        most = std::max(most, found.size);
      });
    }
  }

  double bound(const Reference& of, const ProofNotes::Key& key) const {
    if (key.phase == ProofPhase::batch) return 0;
    if (of.run->narrowest == sizeof(double)) return double_bound;
    const double least = of.run->narrowest == sizeof(float) ? 1e-6 : 0.03;
    const auto at = of.noise.find(key);
    return at == of.noise.end() ? least : std::max(least, noise_factor * at->second);
  }

  /// Runs these layouts side by side and calls f(index, notes) for each.
  template <class F>
  void run_all(const std::vector<std::size_t>& layouts, const Reference& reference, bool results, F&& f) {
    const std::size_t most = std::size_t(std::max(1, options_.processes > 0 ? options_.processes : cores()));
    std::size_t next = 0;
    while (next < layouts.size() || children_.running() != 0) {
      const bool late = std::chrono::steady_clock::now() - begin_ > std::chrono::seconds(options_.seconds);
      if (late) next = layouts.size();
      while (next < layouts.size() && children_.running() < most) {
        const std::size_t i = layouts[next++];
        ProofRun run = settings(reference.run.get());
        run.results = results;
        children_.start(i, report_.layouts[i].layout, run);
      }
      for (auto& [i, notes] : children_.ended()) f(i, std::move(notes));
    }
  }

  /// Looks for the first difference of layouts that differ among the results of all layers and operations, which a second run
  /// notes in a build with WEFT_PROVE_IN_DOUBLE.
  void explain(std::vector<std::size_t> layouts, const Reference& reference) {
    std::erase_if(layouts, [&](std::size_t i) {
      const ProvenLayout& layout = report_.layouts[i];
      return layout.verdict != ProvenLayout::Verdict::differs || layout.text.find(", batch, ") != std::string::npos;
    });
    if (layouts.empty()) return;
    ProofRun run = settings(reference.run.get(), reference.batches.get());
    run.results = true;
    const auto one = children_.run({}, run);
    const bool noted = std::any_of(one->tensors.begin(), one->tensors.end(),
                                   [](const auto& tensor) { return tensor.first.phase == ProofPhase::forward; });
    if (!noted) return;
    results_left_out_ = results_left_out_ || std::any_of(layouts.begin(), layouts.end(), [&](std::size_t i) {
                          const ProofLayout& layout = report_.layouts[i].layout;
                          return layout.degree("ep") > 1 || layout.degree("etp") > 1;
                        });
    run_all(layouts, reference, true, [&](std::size_t i, std::unique_ptr<ProofNotes> notes) {
      bool found_first = false;
      compare(*one, *notes, [&](const ProofDifference& found) {
        const double allowed = bound(reference, *found.key);
        if (found_first || !(found.size > allowed) || found.text.ends_with("is missing")) return;
        found_first = true;
        report_.layouts[i].text = difference_text(found, allowed);
      });
    });
  }

  static std::string difference_text(const ProofDifference& found, double allowed) {
    char numbers[64];
    std::snprintf(numbers, sizeof numbers, " (off by %.1e, bound %.1e)", found.size, allowed);
    return found.text + numbers;
  }

  void judge(std::size_t i, const Reference& reference, const ProofNotes& notes) {
    using V = ProvenLayout::Verdict;
    ProvenLayout& layout = report_.layouts[i];
    layout.verdict = V::agrees;
    std::array<double, weft::detail::proof_phases> largest = {};
    std::vector<std::pair<const ProofNotes::Key*, const char*>> left_out;
    const auto leave_out = [&](const ProofNotes::Key& key, const char* reason) { left_out.push_back({&key, reason}); };
    const auto look_at = [&](const ProofDifference& found) {
      const double allowed = bound(reference, *found.key);
      const std::size_t phase = std::size_t(found.key->phase);
      largest[phase] = std::max(largest[phase], found.size);
      const bool missing = notes.ending != 0 && found.text.ends_with("is missing");
      if (layout.verdict == V::differs || missing || !(found.size > allowed)) return;
      layout.verdict = V::differs;
      layout.text = difference_text(found, allowed);
    };
    compare(*reference.run, notes, look_at, leave_out);
    if (layout.verdict == V::differs) return;
    if (notes.ending != 0) {
      const bool impossible = notes.ending != 2;
      layout.verdict = impossible ? V::refused : V::fails;
      layout.text = notes.error;
      return;
    }
    if (notes.steps < reference.run->steps) {
      layout.verdict = V::fails;
      layout.text = weft::detail::joined(
          {"it ends after ", notes.steps, notes.steps == 1 ? " step" : " steps", ", one rank takes ", reference.run->steps});
    }
    for (const auto& [key, reason] : left_out) {
      LeftOut& one = left_out_[reason];
      one.tensors.insert(weft::detail::joined({name_of(key->phase), ", ", key->name}));
      one.layouts.insert(i);
    }
    for (std::size_t phase = 0; phase < largest.size(); ++phase)
      report_.largest[phase] = std::max(report_.largest[phase], largest[phase]);
  }

  /// A text for each reason for which tensors were not compared: "batch, documents and 2 more, in dp 2 and 4 more layouts: ...".
  void report_left_out(const ProofNotes& one) {
    const auto more = [](std::size_t count, const char* of) {
      return count < 2 ? std::string() : weft::detail::joined({" and ", count - 1, " more", of});
    };
    for (const auto& [reason, out] : left_out_)
      report_.not_compared.push_back(weft::detail::joined({*out.tensors.begin(), more(out.tensors.size(), ""), ", in ",
                                                           report_.layouts[*out.layouts.begin()].layout.text(),
                                                           more(out.layouts.size(), ""), ": ", reason}));
    if (!one.replaceable)
      report_.not_compared.push_back(
          "losses, results of layers, values that layers keep, and gradients before the sums over ranks: the program has a "
          "custom training loop");
    if (one.cut_fields) report_.not_compared.push_back("fields that domain axes cut, and results of layers in such pieces");
    if (results_left_out_)
      report_.not_compared.push_back("results of experts in layouts with ep or etp, where a rank computes tokens of other ranks");
  }

  struct LeftOut {
    std::set<std::string> tensors;
    std::set<std::size_t> layouts;
  };

  ProofOptions options_;
  LayoutProcesses children_;
  std::chrono::steady_clock::time_point begin_;
  ProofReport report_;
  std::map<std::string, LeftOut> left_out_;  // by the reason
  bool results_left_out_ = false;
};

WEFT_COLD WEFT_INLINE std::string program_text() {
  char path[4096] = {};
  const ssize_t length = ::readlink("/proc/self/exe", path, sizeof path - 1);
  std::string name(path, std::size_t(std::max<ssize_t>(0, length)));
  const int file = ::open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  const std::string bytes = file < 0 ? "" : contents_of(file);
  if (file >= 0) ::close(file);
  char hash[24];
  std::snprintf(hash, sizeof hash, " %016llx",
                static_cast<unsigned long long>(weft::detail::hash_bytes(bytes.data(), bytes.size())));
  return name.substr(name.rfind('/') + 1) + hash;
}

WEFT_COLD WEFT_INLINE std::optional<int> prove_if_asked(const std::function<int(World&)>& f) {
  constexpr int most_ranks = 64, most = 1 << 20;  // as in require_weft_variables
  const std::optional<int> ranks = whole_number_from_environment("WEFT_PROVE", 2, most_ranks);
  if (!ranks) return std::nullopt;
  for (const Starter& starter : starters)
    if (is_set(starter.size) && whole_number(starter.size, 0, most_processes) > 1)
      throw_error<UsageError>({"WEFT_PROVE starts its ranks itself, and ", starter.name,
                               " has started this process: start the program without it: WEFT_PROVE=", *ranks, " ./program"});
  ProofOptions options{.ranks = *ranks};
  options.steps = whole_number_from_environment("WEFT_PROVE_STEPS", 1, most).value_or(options.steps);
  options.seconds = whole_number_from_environment("WEFT_PROVE_SECONDS", 1, most).value_or(options.seconds);
  options.layout_seconds = whole_number_from_environment("WEFT_PROVE_LAYOUT_SECONDS", 1, most).value_or(options.layout_seconds);
  options.processes = whole_number_from_environment("WEFT_PROVE_PROCESSES", 1, most).value_or(0);
  const char* const named = std::getenv("WEFT_PROVE_CERTIFICATE");
  const std::string file = named == nullptr ? "" : named;
  if (!file.empty()) weft::detail::require_output("WEFT_PROVE_CERTIFICATE", file);  // before the time of a proof
  const ProofReport report = prove(options, f);
  std::fputs(report.text().c_str(), stdout);
  if (!file.empty()) weft::detail::write_output("WEFT_PROVE_CERTIFICATE", file, report.certificate(program_text()));
  return report.proven() ? 0 : 1;
}

#ifndef WEFT_COMPILED
inline const bool proves = (prover = &prove_if_asked) != nullptr;
#endif

}  // namespace detail

WEFT_COLD WEFT_INLINE ProofReport prove(const ProofOptions& options, const std::function<int(World&)>& f) {
  if constexpr (!Kokkos::SpaceAccessibility<Kokkos::HostSpace, DefaultDevice::memory_space>::accessible)
    throw UsageError("a proof needs a Kokkos that computes on the host: build the program with one");
  if (options.ranks < 2 || options.steps < 1)
    throw_error<UsageError>(
        {"prove: ", options.ranks, " ranks and ", options.steps, " steps: it takes at least 2 ranks and 1 step"});
  if (options.seconds < 1 || options.layout_seconds < 1 || options.processes < 0)
    throw_error<UsageError>({"prove: seconds(", options.seconds, ") and layout_seconds(", options.layout_seconds,
                             ") must be at least 1, processes(", options.processes, ") at least 0"});
  return detail::ProofRunner(options, f).run();
}

}  // namespace weft::runtime
