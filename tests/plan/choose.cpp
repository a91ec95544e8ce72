// SPDX-License-Identifier: Apache-2.0
// covers: weft/plan/candidate.hpp weft/plan/candidate_cost.hpp weft/plan/choose_report.hpp weft/plan/piece.hpp
// covers: weft/plan/rehearsed_costs.hpp
// covers: weft/plan/pipeline_formulas.hpp
// Layouts: all legal ones, by an oracle; their formulas compared with whole rehearsals; the decision tree; the choice, compared
// with real runs.

#include "support/parity.hpp"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <set>

#include <weft/models/gpt.hpp>
#include <weft/models/llama.hpp>
#include <weft/pipeline/schedule/check.hpp>
#include <weft/pipeline/schedule/dynamic.hpp>
#include <weft/plan/candidate.hpp>
#include <weft/plan/candidate_cost.hpp>
#include <weft/plan/choose.hpp>
#include <weft/plan/choose_report.hpp>
#include <weft/plan/estimate.hpp>
#include <weft/plan/piece.hpp>
#include <weft/plan/pipeline_formulas.hpp>
#include <weft/plan/rehearsed_costs.hpp>
#include <weft/plan/this_machine.hpp>

using namespace weft_test;
using plan::Candidate;
using plan::PipelineOrder;
using plan::Search;

namespace {

template <class Model>
using Parallel = FullyShardedDataParallel<ContextParallel<TensorParallel<PipelineParallel<Model>, Invariant<tp>>>>;

/// Steps of a model in this layout; each time is passed to `took`.
template <class Model>
void train(
    World& world, typename Model::Config config, const plan::Piece& piece, int steps,
    const std::function<void(double)>& took = [](double) {}) {
  const Candidate& c = piece.layout;
  const Mesh<dp, cp, tp, pp> mesh(world, {.tp = std::size_t(c.tp), .cp = std::size_t(c.cp), .pp = std::size_t(c.pp)});
  config.layers = std::size_t(piece.layers), config.vocabulary = std::size_t(piece.vocabulary);
  config.recompute = c.kept == plan::Kept::all        ? Recomputation::none
                     : c.kept == plan::Kept::selected ? Recomputation::selective
                                                      : Recomputation::full;
  ModelOptions options;
  options.shard.stage = c.zero, options.shard.replicate = std::size_t(c.replicate);
  if (c.offload) options.shard.offload = Offload::host();
  options.loss.chunks = std::size_t(c.loss_chunks);
  if (c.host_activations) options.activations.on_host = {"block *"};
  options.context = c.ulysses ? ContextMethod::ulysses : ContextMethod::ring;
  options.pipeline.layers = piece.stage_layers;
  options.pipeline.schedule = schedule::choose(std::string(plan::name_of(c.order)), plan::takes_chunks(c.order) ? c.chunks : 0);
  Parallel<Model> model(mesh, config, options);
  optim::AdamW optimizer(model);
  Batch batch{.sequences = std::size_t(c.micro_batch) * std::size_t(c.micro_batches),
              .length = config.sequence,
              .micro_batches = std::size_t(c.micro_batches)};
  batch.first_sequence = batch.sequences * std::size_t(mesh.rank(dp{}));
  batch.tokens.assign(batch.sequences * batch.length, 0), batch.targets = batch.tokens;
  for (int step = 0; step < steps; ++step) {
    const auto started = std::chrono::steady_clock::now();
    model.train_step(batch);
    optimizer.step();
    took(std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count());
  }
}

using Llama = models::BasicLlama<bfloat16>;
const models::LlamaConfig llama{.vocabulary = 4096, .layers = 8, .width = 1024, .heads = 8, .kv_heads = 4, .sequence = 1024};

Search search_of(std::int64_t ranks, std::int64_t global_batch, const models::LlamaConfig& config = llama) {
  Search search;
  search.ranks = ranks, search.global_batch = global_batch;
  search.layers = std::int64_t(config.layers), search.width = std::int64_t(config.width);
  search.heads = std::int64_t(config.heads), search.kv_heads = std::int64_t(config.kv_heads);
  search.sequence = std::int64_t(config.sequence), search.vocabulary = std::int64_t(config.vocabulary);
  search.columns = std::int64_t(config.intermediate_width());
  search.sequence_parallel = false;  // one composition is compiled here
  return search;
}

plan::TrainPiece training(const models::LlamaConfig& config = llama) {
  return [config](World& world, const plan::Piece& piece) { train<Llama>(world, config, piece, piece.layout.zero == 3 ? 3 : 2); };
}

bool legal(const Search& s, const Candidate& c) {
  if (c.tp > 1 && s.ranks_per_node % c.tp != 0) return false;
  if ((c.sequence_parallel || s.experts > 0) && s.sequence % (c.tp * c.cp) != 0) return false;
  if (s.experts == 0 && s.columns % c.tp != 0) return false;
  if ((s.layers + c.pp - 1) / c.pp % c.chunks != 0) return false;  // the stages of the fullest rank are equal
  mesh_layout::Layout layout{.world = s.ranks, .tp = c.tp, .cp = c.cp, .pp = c.pp, .ep = c.ep, .etp = c.etp, .dp = c.dp};
  if (s.experts == 0) layout.etp = 1;
  layout.vpp = c.chunks, layout.whole_groups = false, layout.sequence_parallel = c.sequence_parallel;
  layout.global_batch = s.global_batch, layout.micro_batch = c.micro_batch;
  layout.layers = s.layers, layout.heads = s.heads, layout.kv_heads = s.kv_heads, layout.sequence = s.sequence;
  if (s.experts > 0) layout.experts = s.experts, layout.intermediate = s.columns;
  layout.ulysses = c.ulysses;
  try {
    return mesh_layout::resolve(layout).micro_batches == std::size_t(c.micro_batches);
  } catch (const LayoutError&) {
    return false;
  }
}

bool has_table(const Candidate& c) {
  try {
    schedule::named_table(plan::name_of(c.order), c.pp, c.micro_batches, c.chunks);
    return true;
  } catch (const LayoutError&) {
    return false;
  }
}

/// Every combination of every number, as far as the rules allow it.
std::set<Candidate> oracle(const Search& s) {
  std::set<Candidate> all;
  const int n = int(s.ranks), most = int(s.global_batch);
  for (int dp = 1; dp <= n; ++dp)
    for (int tp = 1; dp * tp <= n; ++tp)
      for (int cp = 1; dp * tp * cp <= n; ++cp) {
        if (n % (dp * tp * cp) != 0) continue;
        const int pp = n / (dp * tp * cp);
        for (int chunks = 1; chunks <= int(s.layers); ++chunks)
          for (int number = 0; number < 7; ++number) {
            const PipelineOrder order = PipelineOrder(number);
            if (!plan::takes_chunks(order) && chunks != schedule::detail::named_chunks(plan::name_of(order), 0)) continue;
            if (plan::takes_chunks(order) && chunks == 1) continue;
            if (pp == 1 && order != PipelineOrder::one_forward_one_backward) continue;
            for (int ep = 1; ep <= std::max(1, int(s.experts)); ++ep)
              for (const int etp : std::set<int>{1, s.experts > 0 ? tp : 1})
                for (const bool rows : {false, true})
                  for (const bool ulysses : {false, true})
                    for (int micro_batch = 1; micro_batch <= most; ++micro_batch) {
                      Candidate c{.dp = dp, .tp = tp, .cp = cp, .pp = pp, .ep = ep, .etp = etp, .chunks = chunks};
                      c.micro_batch = micro_batch, c.micro_batches = most / (dp * micro_batch), c.order = order;
                      c.sequence_parallel = rows, c.ulysses = ulysses;
                      if ((rows && !s.sequence_parallel) || (ulysses && cp == 1) || c.micro_batches < 1 || !legal(s, c)) continue;
                      if (!has_table(c)) continue;
                      for (const plan::Kept kept : {plan::Kept::all, plan::Kept::selected, plan::Kept::inputs})
                        for (int zero = 0; zero <= (dp > 1 ? 3 : 0); ++zero)
                          for (int copies = 1; copies <= (zero > 0 ? dp - 1 : 1); ++copies)
                            for (const bool offload : {false, true}) {
                              const int edp = s.experts > 0 ? n / pp / (ep * etp) : dp;
                              if (dp % copies != 0 || edp % copies != 0 || (offload && s.memory <= 0)) continue;
                              c.kept = kept, c.zero = std::int8_t(zero), c.replicate = copies, c.offload = offload;
                              const std::int64_t tokens = micro_batch * s.sequence / cp;
                              const bool parts = s.loss_tokens != 0 && s.memory > 0 && tokens > s.loss_tokens;
                              const int chunks_of_loss = parts ? int((tokens + s.loss_tokens - 1) / s.loss_tokens) : 1;
                              for (const int loss : std::set<int>{1, chunks_of_loss})
                                for (const bool on_host : std::set<bool>{false, s.host_activations && s.memory > 0}) {
                                  c.loss_chunks = loss, c.host_activations = on_host;
                                  all.insert(c);
                                }
                            }
                    }
          }
      }
  return all;
}

}  // namespace

TEST_CASE("the legal layouts are those of an oracle that tries every number") {
  for (const std::int64_t ranks : {1, 2, 6, 8, 12, 16})
    for (const std::int64_t node : {4, 8})
      for (const std::int64_t experts : {0, 4}) {
        Search s{.ranks = ranks, .ranks_per_node = node, .global_batch = 12, .layers = 6, .width = 64, .heads = 8};
        s.kv_heads = ranks == 12 ? 4 : 2, s.sequence = 48, s.columns = 96, s.experts = experts;
        s.memory = node == 4 ? 1e9 : 0;
        s.loss_tokens = ranks % 8 == 0 ? 40 : 0;
        s.host_activations = ranks % 4 == 0;
        const std::vector<Candidate> listed = plan::candidates(s);
        const std::set<Candidate> distinct(listed.begin(), listed.end());
        INFO(ranks << " ranks, " << node << " a node, experts " << experts << ": " << listed.size());
        CHECK(distinct.size() == listed.size());
        CHECK(distinct == oracle(s));
        for (std::size_t i = 1; i < listed.size(); ++i) CHECK(listed[i - 1].cp <= listed[i].cp);
      }
  CHECK(plan::candidates({.ranks = 7, .global_batch = 4, .layers = 4, .heads = 4, .sequence = 16}).empty());
  CHECK_THROWS_AS(plan::candidates({.ranks = 0}), UsageError);
  CHECK_THROWS_AS(plan::candidates({.layers = -1}), UsageError);
  CHECK_THROWS_AS(plan::candidates({.heads = 6, .kv_heads = 4}), UsageError);
}

TEST_CASE("formulas beside whole rehearsals: memory and time of every layout") {
  const plan::Machine machine = plan::known_machine("h100");
  Search s = search_of(16, 32);
  s.memory = 80e9;  // else no layout has offload, or a loss in parts
  s.loss_tokens = 1024;
  s.host_activations = true;
  plan::CandidateCosts costs(s, machine, training());
  const std::vector<Candidate> all = plan::candidates(s);
  const auto compare = [&](std::string_view name, std::size_t step, const auto& is_one) {
    std::vector<Candidate> these;
    std::copy_if(all.begin(), all.end(), std::back_inserter(these), is_one);
    std::vector<double> time, memory;
    for (std::size_t i = 0; i < these.size(); i += step) {
      const plan::CandidateCost cost = costs.of(these[i]);
      CHECK(costs.knows(these[i]));
      const plan::Estimate whole = plan::detail::whole_step({these[i], s.layers, s.vocabulary}, s, machine, training());
      const double bytes = plan::detail::whole_memory({these[i], s.layers, s.vocabulary}, s, machine, training()).device;
      time.push_back(std::abs(cost.seconds / whole.seconds - 1)), memory.push_back(std::abs(cost.memory / bytes - 1));
      if (time.back() > 0.5 || memory.back() > 0.5)
        MESSAGE(plan::text_of(these[i]) << ": time " << cost.seconds << " for " << whole.seconds << ", memory "
                                        << cost.memory / 1e9 << " for " << bytes / 1e9);
    }
    const auto at = [](std::vector<double>& errors, double share) {
      std::sort(errors.begin(), errors.end());
      return errors[std::size_t(share * double(errors.size() - 1))];
    };
    MESSAGE(name << ", " << time.size() << " of " << these.size() << " layouts, " << costs.rehearsals() << " pieces: time "
                 << 100 * at(time, 0.5) << " %, " << 100 * at(time, 0.9) << " %, " << 100 * at(time, 1) << " %; memory "
                 << 100 * at(memory, 0.5) << " %, " << 100 * at(memory, 0.9) << " %, " << 100 * at(memory, 1)
                 << " % (median, nine of ten, largest error)");
    CHECK(time.size() >= 60);
    CHECK(at(time, 0.5) < 0.1);
    CHECK(at(time, 0.9) < 0.15);
    CHECK(at(memory, 0.5) < 0.05);
    CHECK(at(memory, 0.9) < 0.2);
  };
  using enum PipelineOrder;
  const auto common = [](PipelineOrder order) {
    return order == one_forward_one_backward || order == interleaved || order == zero_bubble_h1 || order == zbv;
  };
  const bool everything = std::getenv("WEFT_TEST_LONG") != nullptr;
  using plan::detail::saves_memory;
  const auto plain = [&](const Candidate& c) { return c.replicate == 1 && !saves_memory(c); };
  compare("1f1b, interleaved, zb-h1 and zbv", everything ? 7 : 61,
          [&](const Candidate& c) { return common(c.order) && plain(c); });
  for (const PipelineOrder order : {gpipe, interleaved_zero_bubble, dualpipev})
    compare(plan::name_of(order),
            everything                         ? 3
            : order == interleaved_zero_bubble ? 17
                                               : 7,
            [&](const Candidate& c) { return c.order == order && plain(c); });
  compare("hybrid sharding", everything ? 7 : 31, [&](const Candidate& c) { return c.replicate > 1 && !saves_memory(c); });
  compare("offload", everything ? 11 : 131,
          [&](const Candidate& c) { return c.offload && c.loss_chunks == 1 && !c.host_activations; });
  compare("loss in parts", everything ? 11 : 61,
          [&](const Candidate& c) { return c.loss_chunks > 1 && c.replicate == 1 && !c.offload && !c.host_activations; });
  compare("activations on the host", everything ? 11 : 131,
          [&](const Candidate& c) { return c.host_activations && c.replicate == 1 && !c.offload && c.loss_chunks == 1; });
}

// The formulas for a pipeline's bubbles and activations equal those of its tables.
TEST_CASE("pipelines: the bubble and the activations of their schedules") {
  using plan::detail::Held;
  std::size_t tables = 0;
  for (int number = 0; number < 7; ++number)
    for (int pp = 2; pp <= 8; ++pp)
      for (int micro_batches = 1; micro_batches <= 24; ++micro_batches)
        for (const int chunks : {1, 2, 3, 5}) {
          Candidate c;
          c.pp = pp, c.micro_batches = micro_batches, c.order = PipelineOrder(number), c.chunks = chunks;
          const bool any = plan::takes_chunks(c.order) && chunks > 1;
          if (!any && (plan::takes_chunks(c.order) || chunks != schedule::detail::named_chunks(plan::name_of(c.order), 0)))
            continue;
          if (!has_table(c)) continue;
          ++tables;
          schedule::Table table = schedule::named_table(plan::name_of(c.order), pp, micro_batches, chunks);
          for (schedule::Order& order : table.orders)
            for (schedule::Action& action : order) action.with_next = false;  // as the executor runs them
          INFO(plan::text_of(c));
          const double one = 1.0 * chunks;  // an action of one stage takes 1
          const plan::detail::PipelineFormulas formulas = plan::detail::pipeline_formulas(c, one, 2 * one);
          CHECK(schedule::prove(table).bubble == doctest::Approx(formulas.bubble));
          // With groups of uneven sizes some more may be in flight in one stage of several.
          if (!plan::is_v_shape(c.order) && (chunks == 1 || micro_batches % pp == 0 || micro_batches < 2 * pp)) {
            int flying = 0, most = 0;
            for (const schedule::Action& action : table.orders.back()) {
              if (action.chunk != table.chunks - 1) continue;
              if (action.what == schedule::Op::F) most = std::max(most, ++flying);
              if (action.what == schedule::Op::B || action.what == schedule::Op::W) --flying;
            }
            CHECK(formulas.ends == most);
          }
          for (const double whole : {1.0, 4.0, 30.0})  // as large as an activation that forward left
            for (const int rank : {0, pp - 1}) {
              int left = 0, waiting = 0;
              double most = 0, said = 0;
              for (const schedule::Action& action : table.orders[std::size_t(rank)]) {
                if (action.what == schedule::Op::F) ++left;
                if (action.what == schedule::Op::I) --left, ++waiting;
                most = std::max(most, left + whole * waiting);
                if (action.what == schedule::Op::B) --left;
                if (action.what == schedule::Op::W) --waiting;
              }
              for (const Held& held : rank == 0 ? formulas.first : formulas.last)
                said = std::max(said, held.left + whole * held.waiting);
              CHECK(said == most);
            }
        }
  CHECK(tables > 1000);
  Candidate c;  // recomputation precedes the input gradient, which is then the longer part
  c.pp = 4, c.micro_batches = 8, c.order = PipelineOrder::zero_bubble_h1, c.kept = plan::Kept::inputs;
  CHECK(plan::detail::pipeline_formulas(c, 1, 3).bubble == doctest::Approx(3 * (1 + 2 - 1)));
}

TEST_CASE("a step of many micro-batches follows from two short ones") {
  const plan::Machine machine = plan::known_machine("h100");
  const Search s = search_of(8, 512);
  Candidate c{.dp = 2, .pp = 4};
  c.micro_batch = 2, c.micro_batches = 128, c.zero = 1;
  const plan::Estimate step = plan::detail::whole_step({c, s.layers, s.vocabulary}, s, machine, training());
  const plan::Estimate really = plan::estimate({.ranks = 8}, machine, [&](World& world) {
    training()(world, {c, s.layers, s.vocabulary});
  });
  CHECK(step.seconds == doctest::Approx(really.seconds).epsilon(0.01).scale(0));
  CHECK(step.tokens == doctest::Approx(really.tokens));
  CHECK(step.model_flops == doctest::Approx(really.model_flops));
  CHECK(step.share_of_peak() == doctest::Approx(really.share_of_peak()).epsilon(0.01).scale(0));
  double parts = 0;
  const plan::StageTimes& t = step.replayed.stages[1];
  parts = t.products + t.attention + t.kernels + t.optimizer + t.bubble + t.communication();
  CHECK(parts == doctest::Approx(step.seconds).scale(0));
}

TEST_CASE("every schedule has a step of many micro-batches, on any number of stages") {
  using Order = plan::PipelineOrder;
  const plan::Machine machine = plan::known_machine("h100");
  for (const int pp : {2, 4})
    for (const auto order : {Order::one_forward_one_backward, Order::gpipe, Order::interleaved, Order::zero_bubble_h1,
                             Order::interleaved_zero_bubble, Order::zbv, Order::dualpipev}) {
      Candidate c{.pp = pp};
      c.order = order, c.chunks = order == Order::interleaved || order == Order::interleaved_zero_bubble ? 2 : 1;
      c.micro_batch = 1, c.micro_batches = 96;
      const Search s = search_of(pp, 96);
      INFO(name_of(order) << " pp " << pp);
      const plan::Estimate step = plan::detail::whole_step({c, s.layers, s.vocabulary}, s, machine, training());
      const plan::Estimate really = plan::estimate({.ranks = pp}, machine, [&](World& world) {
        training()(world, {c, s.layers, s.vocabulary});
      });
      CHECK(step.seconds == doctest::Approx(really.seconds).epsilon(0.01).scale(0));
      CHECK(plan::detail::whole_memory({c, s.layers, s.vocabulary}, s, machine, training()).device > 0);
    }
}

TEST_CASE("the choice: all fit, the fastest first, and a smaller memory excludes layouts that do not fit") {
  const plan::Machine machine = plan::known_machine("h100");
  Search s = search_of(16, 32);
  s.memory = 4e9;
  const plan::ChooseOptions options{.train = training(),
                                    .names =
                                        [](const plan::Piece& whole) {
                                          return plan::LayoutNames{"Type", plan::text_of(whole.layout)};
                                        },
                                    .limit_s = 3};
  const plan::Chosen chosen = plan::choose(s, machine, options);
  REQUIRE(chosen.best.size() == 10);
  CHECK(chosen.legal == plan::candidates(s).size());
  for (std::size_t i = 0; i < 10; ++i) {
    CHECK(chosen.best[i].memory <= s.memory);
    CHECK(legal(s, chosen.best[i].layout));
    CHECK(!chosen.best[i].why.empty());
    if (i > 0) CHECK(chosen.best[i - 1].step.seconds <= chosen.best[i].step.seconds);
  }
  REQUIRE(chosen.tree);
  CHECK(chosen.best[0].step.seconds <= chosen.tree->step.seconds);
  const std::string table = plan::table_of(chosen), json = plan::json_of(chosen);
  CHECK(table.find("the decision tree: ") != std::string::npos);
  CHECK(table.find("10.") != std::string::npos);
  CHECK(json.starts_with("{\"ranks\": 16"));
  CHECK(json.find("\"type\": \"Type\"") != std::string::npos);
  s.memory = 0.6e9;
  const plan::Chosen small = plan::choose(s, machine, options);
  for (const plan::RankedLayout& one : small.best) CHECK(one.memory <= s.memory);
  CHECK(small.best[0].step.seconds >= chosen.best[0].step.seconds);
  CHECK(small.fitting < chosen.fitting);
  s.memory = 1e6;
  CHECK_THROWS_WITH_AS(plan::choose(s, machine, options), doctest::Contains("none fits into"), MemoryError);
  CHECK_THROWS_WITH_AS(plan::choose(search_of(11, 4), machine, options), doctest::Contains("no layout of 11 ranks is legal"),
                       LayoutError);
}

TEST_CASE("a loss in parts is for logits that do not fit") {
  const plan::Machine machine = plan::known_machine("h100");
  models::LlamaConfig config = llama;  // 2.1 GB of logits, 0.3 GB of parameters and their state
  config.vocabulary = 131072, config.layers = 2, config.width = 64, config.heads = config.kv_heads = 4, config.sequence = 8192;
  Search s = search_of(1, 1, config);
  s.memory = 1.5e9;
  const plan::ChooseOptions options{.train = training(config),
                                    .names =
                                        [](const plan::Piece&) {
                                          return plan::LayoutNames{"Type", "command"};
                                        },
                                    .limit_s = 3};
  CHECK_THROWS_WITH_AS(plan::choose(s, machine, options), doctest::Contains("none fits into"), MemoryError);
  s.loss_tokens = 1024;
  const plan::Chosen chosen = plan::choose(s, machine, options);
  for (const plan::RankedLayout& one : chosen.best) {
    CHECK(one.layout.loss_chunks == 8);
    CHECK(one.memory <= s.memory);
  }
  CHECK(plan::text_of(chosen.best[0].layout).find(", loss in 8 parts") != std::string::npos);
  CHECK(plan::json_of(chosen).find("\"loss_chunks\": 8") != std::string::npos);
  s.memory = 80e9;  // no layout that surely fits gets parts
  for (const plan::RankedLayout& one : plan::choose(s, machine, options).best) CHECK(one.layout.loss_chunks == 1);
}

// Every legal layout is rehearsed whole, by an oracle.
TEST_CASE("activations in host memory are for layouts that do not fit otherwise") {
  plan::Machine machine = plan::known_machine("h100");
  models::LlamaConfig config = llama;
  config.width = 512, config.layers = 4, config.sequence = 8192;
  Search s = search_of(2, 2, config);
  s.host_activations = true, s.memory = 80e9;
  std::map<Candidate, plan::CandidateCost> all;
  double least = 1e18, least_on_device = 1e18;
  for (const Candidate& c : plan::candidates(s)) {
    const plan::Piece whole{c, s.layers, s.vocabulary};
    const plan::CandidateCost cost{plan::detail::whole_step(whole, s, machine, training(config)).seconds,
                                   plan::detail::whole_memory(whole, s, machine, training(config)).device};
    all[c] = cost;
    (c.host_activations ? least : least_on_device) = std::min(c.host_activations ? least : least_on_device, cost.memory);
  }
  MESSAGE(all.size() << " layouts: at least " << least_on_device / 1e6 << " MB, with activations on the host " << least / 1e6);
  REQUIRE(least < 0.95 * least_on_device);
  const auto best_of = [&](double memory) {
    s.memory = memory;
    return plan::choose(s, machine, {.train = training(config), .limit_s = 100, .listed = 20}).best;
  };
  const auto fastest_of = [&](double memory) {
    double seconds = 1e18;
    for (const auto& [layout, cost] : all)
      if (cost.memory <= memory) seconds = std::min(seconds, cost.seconds);
    return seconds;
  };
  for (const double share : {0.5, 1.0, 3.0, 10.0, 30.0}) {
    const double memory = least + share * (least_on_device - least);
    const std::vector<plan::RankedLayout> best = best_of(memory);
    MESSAGE("of " << memory / 1e6 << " MB: " << plan::text_of(best[0].layout) << ", " << 1e3 * best[0].step.seconds
                  << " ms, the oracle's " << 1e3 * fastest_of(memory));
    CHECK(best[0].memory <= memory);
    CHECK(best[0].step.seconds <= 1.02 * fastest_of(memory));  // of layouts that are alike, formulas choose
    if (share < 1) CHECK(best[0].layout.host_activations);
    std::set<Candidate> kinds;  // that fit for certain, without what saves memory
    for (const auto& [layout, cost] : all)
      if (cost.memory <= 0.8 * memory) {
        Candidate plain = layout;
        plain.replicate = plain.loss_chunks = 1, plain.offload = plain.host_activations = false;
        kinds.insert(plain);
      }
    CHECK(best.size() >= std::min<std::size_t>(10, kinds.size()));
  }
  for (const plan::RankedLayout& one : best_of(80e9)) CHECK_FALSE(one.layout.host_activations);
  machine.host_memory = 1e6;  // of two ranks, whose activations have no room there
  s.memory = (least + least_on_device) / 2;
  CHECK_THROWS_WITH_AS(plan::choose(s, machine, {.train = training(config)}), doctest::Contains("none fits into"), MemoryError);
}

TEST_CASE("host memory of activations: the formula beside rehearsals") {
  const plan::Machine machine = plan::known_machine("h100");
  const Search s = search_of(4, 16);
  plan::CandidateCosts costs(s, machine, training());
  for (Candidate c : {Candidate{.dp = 4, .micro_batch = 2, .micro_batches = 2}, Candidate{.tp = 2, .pp = 2, .micro_batches = 16},
                      Candidate{.pp = 4, .chunks = 2, .micro_batches = 16, .order = PipelineOrder::interleaved},
                      Candidate{.pp = 4, .micro_batches = 16, .order = PipelineOrder::gpipe},
                      Candidate{.pp = 4, .micro_batches = 128, .order = PipelineOrder::gpipe},
                      Candidate{.pp = 4, .micro_batches = 16, .order = PipelineOrder::zero_bubble_h1}}) {
    c.host_activations = true;
    INFO(plan::text_of(c));
    const double bytes = plan::detail::whole_memory({c, s.layers, s.vocabulary}, s, machine, training()).host;
    CHECK(bytes > 0);
    CHECK(costs.host_memory(c) == doctest::Approx(bytes).epsilon(0.1).scale(0));
  }
}

TEST_CASE("copies of activations take the time that computation does not hide") {
  plan::Machine machine = plan::known_machine("h100");
  models::LlamaConfig config = llama;
  config.layers = 6;
  double bytes = 0;
  const auto seconds = [&](Candidate c, bool on_host, double bandwidth) {
    c.host_activations = on_host, machine.host_bandwidth = bandwidth;
    const auto stages = rehearse_stages({.ranks = c.ranks(), .trace = true}, [&](World& world) {
      training(config)(world, {c, std::int64_t(config.layers), std::int64_t(config.vocabulary)});
    });
    bytes = stages.front().notes.last_step.activation_bytes;
    return plan::estimate(stages, machine).seconds;
  };
  for (Candidate c : {Candidate{.micro_batches = 2}, Candidate{.pp = 2, .micro_batches = 4}}) {
    INFO(plan::text_of(c));
    const double stays = seconds(c, false, 64e9);
    CHECK(bytes == 0);
    CHECK(seconds(c, true, 1e18) == doctest::Approx(stays).epsilon(1e-6).scale(0));
    const double slow = seconds(c, true, 1e9), one_way = bytes / 2 / (1e9 * machine.link_share);
    CHECK(bytes > 0);
    MESSAGE("copies of " << 1e3 * one_way << " ms each way: " << 1e3 * slow << " ms, without " << 1e3 * stays);
    CHECK(slow >= one_way);
    CHECK(slow <= stays + 2 * one_way * (c.pp == 1 ? 1 : 2));
    // A copy of a layer is shorter than its forward, so that only copies without anything beside them cost time.
    const double fast = seconds(c, true, 1e12), layer = bytes / 2 / (1e12 * machine.link_share) / double(config.layers);
    CHECK(fast <= stays + 2 * layer);
    CHECK(fast >= stays);
  }
  machine.hides_messages = false;  // cores that compute also copy
  const Candidate one{.micro_batches = 2};
  const double stays = seconds(one, false, 0), copied = seconds(one, true, 0);
  CHECK(copied - stays == doctest::Approx(machine.memory_s(2 * bytes)).scale(0));
}

TEST_CASE("offload is for memory that does not suffice, and copies of shards for many ranks") {
  const plan::Machine machine = plan::known_machine("h100");
  Search s = search_of(1, 4);
  const auto best = [&](double memory) {
    s.memory = memory;
    return plan::choose(s, machine, {.train = training(), .limit_s = 3}).best;
  };
  for (const plan::RankedLayout& one : best(80e9)) CHECK(!one.layout.offload);
  for (const plan::RankedLayout& one : best(1.4e9)) {
    CHECK(one.layout.offload);
    CHECK(one.memory <= 1.4e9);
    plan::Chosen alone;
    alone.best.push_back(one);
    CHECK(plan::json_of(alone).find("\"offload\": true") != std::string::npos);
  }
  s = search_of(512, 512);
  plan::CandidateCosts costs(s, machine, training());
  Candidate wide{.dp = 512}, copied = wide;
  wide.zero = 3, copied.zero = 3, copied.replicate = 64;  // of a node each
  CHECK(costs.seconds(copied) < costs.seconds(wide));
  CHECK(costs.memory(copied) > costs.memory(wide));
  CHECK(plan::detail::whole_step({copied, s.layers, s.vocabulary}, s, machine, training()).seconds <
        plan::detail::whole_step({wide, s.layers, s.vocabulary}, s, machine, training()).seconds);
  for (Candidate c :
       {copied, Candidate{.dp = 512, .replicate = 4, .zero = 1}, Candidate{.dp = 512, .replicate = 256, .zero = 2}}) {
    const double whole = plan::detail::whole_step({c, s.layers, s.vocabulary}, s, machine, training()).seconds;
    INFO(plan::text_of(c) << ": " << costs.seconds(c) << " for " << whole);
    CHECK(std::abs(costs.seconds(c) / whole - 1) < 0.15);
  }
  const plan::Chosen chosen = plan::choose(s, machine, {.train = training(), .limit_s = 3, .listed = 100});
  CHECK(std::any_of(chosen.best.begin(), chosen.best.end(), [](const auto& one) { return one.layout.replicate > 1; }));
  std::map<Candidate, int> alike;
  for (const plan::RankedLayout& one : chosen.best) {
    Candidate c = one.layout;
    c.replicate = 1, c.offload = false;
    CHECK(++alike[c] <= 3);
  }
}

TEST_CASE("the decision tree's answers") {
  const plan::Machine machine = plan::known_machine("h100");
  const auto answer = [&](Search s, double memory, models::LlamaConfig config = llama) {
    s.memory = memory;
    const plan::Chosen chosen = plan::choose(s, machine, {.train = training(config), .limit_s = 2, .listed = 1});
    REQUIRE(chosen.tree);
    MESSAGE(plan::text_of(chosen.tree->layout) << ": " << chosen.reason);
    CHECK(chosen.tree->memory <= memory);
    return std::pair(chosen.tree->layout, chosen.reason);
  };
  const auto one = answer(search_of(1, 4), 80e9);
  CHECK(one.first.ranks() == 1);
  CHECK(one.second.starts_with("one rank"));
  const auto data = answer(search_of(8, 32), 80e9);
  CHECK((data.first.dp == 8 && data.first.zero == 0));
  CHECK(data.second.starts_with("DataParallel"));
  const auto sharded = answer(search_of(8, 8), 2e9);
  CHECK((sharded.first.dp == 8 && sharded.first.zero > 0));
  CHECK(sharded.second.starts_with("FSDP"));
  const auto tensor = answer(search_of(16, 4), 80e9);
  CHECK((tensor.first.tp == 4 && tensor.first.dp == 4 && tensor.first.pp == 1));
  CHECK(tensor.second.starts_with("tp inside a node"));
  const auto stages = answer(search_of(64, 4), 80e9);
  CHECK((stages.first.tp * stages.first.pp == 16 && stages.first.pp == 2 && stages.first.cp == 1));
  CHECK(stages.second.starts_with("pp across nodes"));
  models::LlamaConfig flat = llama;
  flat.layers = 1;
  const auto context = answer(search_of(32, 2, flat), 80e9, flat);
  CHECK((context.first.cp == 2 && context.first.tp == 8 && context.first.pp == 1));
  CHECK(context.second.starts_with("cp for long sequences"));
}

TEST_CASE("rehearsals may follow each other without end: their addresses start anew") {
  const auto address = [] {
    const void* at = nullptr;
    rehearse({}, [&](World& world) {
      const auto buffer = world.device().allocate(std::size_t(40) << 40);  // of 64 TiB
      at = buffer.get();
    });
    return at;
  };
  const void* const first = address();
  for (int i = 0; i < 4; ++i) CHECK(address() == first);
}

TEST_CASE("a formula's result for a layout does not depend on earlier layouts") {
  const plan::Machine machine = plan::known_machine("h100");
  const Search s = search_of(16, 64);
  plan::CandidateCosts all(s, machine, training());
  for (const Candidate& c : {Candidate{.dp = 16, .micro_batch = 2, .micro_batches = 2},
                             Candidate{.dp = 16, .micro_batch = 2, .micro_batches = 2, .replicate = 4, .zero = 2},
                             Candidate{.dp = 8, .tp = 2, .micro_batches = 8, .replicate = 2, .zero = 3, .offload = true},
                             Candidate{.dp = 8, .pp = 2, .micro_batches = 8, .zero = 1, .offload = true}}) {
    INFO(plan::text_of(c));
    const plan::CandidateCost alone = plan::CandidateCosts(s, machine, training()).of(c), after = all.of(c);
    CHECK(alone.seconds == after.seconds);
    CHECK(alone.memory == after.memory);
  }
}

// The fastest layout here depends on the computer's other load: WEFT_TEST_LONG prints the figures.
TEST_CASE_TEMPLATE("the first choice beside the best of all layouts that really run", Ranks, std::integral_constant<int, 2>,
                   std::integral_constant<int, 4>, std::integral_constant<int, 8>) {
  if (std::getenv("WEFT_TEST_LONG") == nullptr) return;
  using Gpt = models::BasicGpt<float>;
  {
    constexpr int ranks = Ranks::value;  // with more ranks, many more layouts run
    const models::GptConfig config{
        .vocabulary = 256, .layers = ranks == 2 ? 4u : 2u, .width = ranks == 2 ? 256u : 128u, .heads = 4, .sequence = 64};
    Search s;
    s.ranks = ranks, s.ranks_per_node = ranks, s.global_batch = 4, s.layers = std::int64_t(config.layers),
    s.width = std::int64_t(config.width);
    s.heads = s.kv_heads = 4, s.sequence = 64, s.vocabulary = 256, s.columns = 4 * s.width, s.tied = true,
    s.sequence_parallel = false, s.element_bytes = 4;
    plan::Machine here;
    // The shortest step of each, in rounds: other load affects all of them.
    const auto run = [&](const std::set<Candidate>& layouts, int rounds) {
      std::map<Candidate, double> least;
      const int code = runtime::run(RunOptions{.ranks = ranks, .threads_per_rank = 1}, [&](World& world) {
        const plan::Machine measured = plan::this_machine(world);
        if (world.rank() == 0) here = measured;
        for (int round = 0; round < rounds; ++round)
          for (const Candidate& c : layouts)
            train<Gpt>(world, config, {c, s.layers, s.vocabulary}, 3, [&](double seconds) {
              if (world.rank() != 0) return;
              double& known = least.try_emplace(c, seconds).first->second;
              known = std::min(known, seconds);
            });
      });
      REQUIRE(code == 0);
      return least;
    };
    const std::vector<Candidate> all = plan::candidates(s);
    std::map<Candidate, double> real = run({all.begin(), all.end()}, 1);
    const plan::Chosen chosen = plan::choose(s, here, {.train = [&](World& world, const plan::Piece& piece) {
                                               train<Gpt>(world, config, piece, piece.layout.zero == 3 ? 3 : 2);
                                             }});
    std::vector<Candidate> fastest = all;
    std::sort(fastest.begin(), fastest.end(), [&](const Candidate& a, const Candidate& b) { return real.at(a) < real.at(b); });
    fastest.resize(12);
    for (const plan::RankedLayout& one : chosen.best) fastest.push_back(one.layout);
    real = run({fastest.begin(), fastest.end()}, 8);
    const auto best =
        std::min_element(real.begin(), real.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    MESSAGE(ranks << " ranks, " << all.size() << " layouts: the best that ran is " << plan::text_of(best->first) << " with "
                  << 1e3 * best->second << " ms");
    for (const auto& [layout, seconds] : real) {
      plan::CandidateCosts costs(s, here, [&](World& world, const plan::Piece& piece) {
        train<Gpt>(world, config, piece, piece.layout.zero == 3 ? 3 : 2);
      });
      MESSAGE(plan::text_of(layout) << ": " << 1e3 * costs.of(layout).seconds << " ms by formulas, " << 1e3 * seconds
                                    << " ms real");
    }
    for (const plan::RankedLayout& one : chosen.best)
      MESSAGE(plan::text_of(one.layout) << ": " << 1e3 * one.step.seconds << " ms estimated, " << 1e3 * real.at(one.layout)
                                        << " ms real, " << 100 * (real.at(one.layout) / best->second - 1) << " % above the best");
    WARN(real.at(chosen.best[0].layout) <= 1.1 * best->second);
  }
}
