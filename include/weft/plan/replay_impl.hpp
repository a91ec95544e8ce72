// SPDX-License-Identifier: Apache-2.0
#pragma once
// The replay of traces, event by event. Definitions for plan/replay.hpp.

#include <algorithm>
#include <deque>
#include <tuple>
#include <utility>

#include <weft/core/error.hpp>
#include <weft/core/inline.hpp>
#include <weft/plan/replay.hpp>

namespace weft::plan::detail {

class Replay {
  using Trace = RehearsedTrace;
  using Kind = Trace::Kind;
  using Event = Trace::Event;

 public:
  WEFT_COLD Replay(const std::vector<const Trace*>& traces, const EventCosts& costs) : costs_(costs) {
    for (const Trace* trace : traces) {
      if (trace == nullptr || !trace->whole())
        throw_error<UsageError>(
            {"estimate: the rehearsal has traced no whole step: the program must train at least one step with "
             "train_step and an optimizer's step, and be rehearsed with a trace"});
      Stage& stage = stages_.emplace_back();
      stage.trace = trace;
      stage.lanes.resize(trace->groups.size());
      stage.calls.resize(trace->groups.size());
      stage.seconds.assign(trace->distinct(), -1);
      for (std::size_t i = 0; i < trace->size(); ++i)
        if ((*trace)[i].kind == Kind::end) stage.pipeline = i;
      for (const Trace::Group& group : trace->groups) ++members_[group.identity];
    }
  }

  WEFT_COLD Replayed run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (Stage& stage : stages_)
        while (stage.at < stage.trace->size() && step(stage)) moved = true;
    }
    Replayed result;
    for (const Stage& stage : stages_) {
      if (stage.at < stage.trace->size())
        throw_error<UsageError>({"estimate: the traces of ", stages_.size(),
                                 " ranks wait for each other without end: they must be one rank of each stage of one pipeline"});
      result.seconds = std::max(result.seconds, stage.clock);
    }
    for (Stage& stage : stages_) {
      stage.times.bubble += result.seconds - stage.clock;
      result.stages.push_back(std::move(stage.times));
    }
    draw(result);
    share_cores(result);
    return result;
  }

 private:
  struct Lane {
    double collectives = 0, sends = 0;  // times from which they are free
  };
  struct Started {
    std::int32_t group;
    std::size_t number;  // index among the calls of its group
    double end, seconds;
  };
  struct Stage {
    const Trace* trace = nullptr;
    std::size_t at = 0, pipeline = 0;
    double clock = 0;
    std::vector<Lane> lanes;         // by group
    std::vector<std::size_t> calls;  // by group: collectives started
    std::vector<Started> started;
    std::vector<double> seconds;  // by distinct event; -1 until computed
    StageTimes times;
    schedule::Order order;
    std::vector<double> begins, ends;
    bool computed = false, arrived = false;  // in the current action; at the collective at index `at`
    int chunks = 1;
    std::map<int, int> stage_of;  // by chunk
  };
  struct Sent {
    double issued, arrives;
  };
  struct Meeting {
    std::size_t here = 0;
    double last = 0;
  };

  // Executes the stage's next event. Returns false if it must wait for another stage.
  bool step(Stage& stage) {
    const std::size_t number = stage.trace->number(stage.at);
    const Event& event = stage.trace->event(number);
    switch (event.kind) {
      case Kind::begin: begin_action(stage, event); break;
      case Kind::end: stage.ends.push_back(stage.clock); break;
      case Kind::call:
        if (!call(stage, event)) return false;
        break;
      case Kind::start: start(stage, event); break;
      case Kind::wait:
        if (!wait(stage, stage.started[stage.started.size() - std::size_t(event.a)])) return false;
        break;
      case Kind::send: send(stage, event); break;
      case Kind::receive:
        if (!receive(stage, event)) return false;
        break;
      default: compute(stage, event, number);
    }
    ++stage.at;
    return true;
  }

  void compute(Stage& stage, const Event& event, std::size_t number) {
    double& seconds = stage.seconds[number];
    if (seconds < 0) seconds = costs_.compute(event);
    stage.clock += seconds;
    stage.computed = true;
    StageTimes& times = stage.times;
    (stage.at > stage.pipeline       ? times.optimizer
     : event.kind == Kind::product   ? times.products
     : event.kind == Kind::attention ? times.attention
                                     : times.kernels) += seconds;
    const std::vector<std::string_view>& kinds = stage.trace->kinds;
    if (stage.at > stage.pipeline) return;
    if (event.kind == Kind::copy) times.by_kind["host copies"] += seconds;
    if (event.kind == Kind::kernel && std::size_t(event.a) < kinds.size())
      times.by_kind[std::string(kinds[std::size_t(event.a)])] += seconds;
  }

  void begin_action(Stage& stage, const Event& event) {
    stage.order.push_back({schedule::Op(event.operation), int(event.c), int(event.b)});
    stage.chunks = std::max(stage.chunks, int(event.c) + 1);
    stage.stage_of[int(event.c)] = int(event.a);
    stage.begins.push_back(stage.clock);
    stage.computed = false;
  }

  static const Trace::Group& group(const Stage& stage, std::int32_t number) { return stage.trace->groups[std::size_t(number)]; }

  // Advances the clock to `end`. The time until `known` counts as bubble, since nothing was in transit; the rest is exposed.
  void pass(Stage& stage, std::int32_t of, double known, double end) {
    if (end <= stage.clock) return;
    const double idle = std::clamp(known, stage.clock, end) - stage.clock;
    stage.times.bubble += idle;
    stage.times.exposed[group(stage, of).axis] += end - stage.clock - idle;
    stage.clock = end;
    if (!stage.computed && !stage.begins.empty() && stage.ends.size() < stage.begins.size()) stage.begins.back() = stage.clock;
  }

  bool shared(const Stage& stage, std::int32_t of) { return members_[group(stage, of).identity] > 1; }
  Meeting& meeting(const Stage& stage, std::int32_t of, std::size_t number) {
    return meetings_[{group(stage, of).identity, number}];
  }
  void arrive(Stage& stage, std::int32_t of, std::size_t number) {
    Meeting& all = meeting(stage, of, number);
    ++all.here;
    all.last = std::max(all.last, stage.clock);
  }

  bool call(Stage& stage, const Event& event) {
    if (!stage.arrived) {
      start(stage, event);
      stage.arrived = true;
    }
    if (!wait(stage, stage.started.back())) return false;
    stage.started.pop_back();  // no wait event refers to it
    stage.arrived = false;
    return true;
  }

  void start(Stage& stage, const Event& event) {
    Lane& lane = stage.lanes[std::size_t(event.group)];
    Started started{event.group, stage.calls[std::size_t(event.group)]++, 0, costs_.message(event, group(stage, event.group))};
    if (shared(stage, event.group)) {
      started.end = -1;  // set when all ranks have arrived
      arrive(stage, event.group, started.number);
    } else if (costs_.hides_messages) {
      started.end = lane.collectives = std::max(stage.clock, lane.collectives) + started.seconds;
    }
    stage.started.push_back(started);
  }

  bool wait(Stage& stage, Started& started) {
    double known = 0;
    if (shared(stage, started.group)) {
      const Meeting& all = meeting(stage, started.group, started.number);
      if (all.here < members_[group(stage, started.group).identity]) return false;
      Lane& lane = stage.lanes[std::size_t(started.group)];
      known = all.last;
      if (costs_.hides_messages && started.end < 0)
        started.end = lane.collectives = std::max(all.last, lane.collectives) + started.seconds;
    }
    if (!costs_.hides_messages) started.end = std::max(stage.clock, known) + std::exchange(started.seconds, 0.0);
    pass(stage, started.group, known, started.end);
    return true;
  }

  // Communicator, source, destination, tag: the messages of one key arrive in order.
  using Key = std::tuple<std::uint64_t, int, int, std::int64_t>;

  void send(Stage& stage, const Event& event) {
    const Trace::Group& ranks = group(stage, event.group);
    Lane& lane = stage.lanes[std::size_t(event.group)];
    if (costs_.hides_messages) lane.sends = std::max(lane.sends, stage.clock) + costs_.message(event, ranks);
    sent_[{ranks.identity, ranks.rank, int(event.a), event.b}].push_back({stage.clock, lane.sends});
  }

  bool receive(Stage& stage, const Event& event) {
    const Trace::Group& ranks = group(stage, event.group);
    std::deque<Sent>& queue = sent_[{ranks.identity, int(event.a), ranks.rank, event.b}];
    if (queue.empty()) {
      if (traced(ranks.identity, int(event.a))) return false;
      receive_alike(stage, event);
      return true;
    }
    take(stage, event, queue);
    return true;
  }

  void take(Stage& stage, const Event& event, std::deque<Sent>& queue) {
    const Sent message = queue.front();
    queue.pop_front();
    pass(stage, event.group, message.issued,
         costs_.hides_messages ? message.arrives
                               : std::max(stage.clock, message.issued) + costs_.message(event, group(stage, event.group)));
  }

  // Receives from a rank without a trace, which is assumed to send when this stage sends.
  void receive_alike(Stage& stage, const Event& event) {
    const Trace::Group& ranks = group(stage, event.group);
    for (int to = 0; to < ranks.size; ++to) {
      const auto mine = sent_.find({ranks.identity, ranks.rank, to, event.b});
      if (mine == sent_.end() || mine->second.empty() || traced(ranks.identity, to)) continue;
      return take(stage, event, mine->second);
    }
    pass(stage, event.group, stage.clock, stage.clock + costs_.message(event, ranks));
  }

  bool traced(std::uint64_t identity, int rank) const {
    for (const Stage& stage : stages_)
      for (const Trace::Group& ranks : stage.trace->groups)
        if (ranks.identity == identity && ranks.rank == rank) return true;
    return false;
  }

  // A core is busy while one of its ranks has work (Brent's bound, taken as the time).
  void share_cores(Replayed& step) const {
    double busy = 0;
    for (const StageTimes& stage : step.stages) busy += (step.seconds - stage.bubble) / double(step.stages.size());
    const double longer = costs_.ranks_per_core * busy / step.seconds;
    if (!(longer > 1)) return;
    step.seconds *= longer;
    for (StageTimes& stage : step.stages) {
      for (double* part : {&stage.products, &stage.attention, &stage.kernels, &stage.optimizer, &stage.bubble}) *part *= longer;
      for (auto* const parts : {&stage.exposed, &stage.by_kind})
        for (auto& [name, seconds] : *parts) seconds *= longer;
    }
    step.timeline.makespan *= longer;
    for (auto* times : {&step.timeline.start, &step.timeline.end})
      for (auto& of_rank : *times)
        for (auto& time : of_rank) time *= longer;
    for (auto& time : step.timeline.busy) time *= longer;
  }

  void draw(Replayed& result) {
    schedule::Table& table = result.table;
    schedule::Timeline& timeline = result.timeline;
    table.ranks = int(stages_.size());
    for (Stage& stage : stages_) {
      table.chunks = std::max(table.chunks, stage.chunks);
      for (const schedule::Action& action : stage.order) table.micro_batches = std::max(table.micro_batches, action.micro + 1);
      double busy = 0;
      for (std::size_t i = 0; i < stage.ends.size(); ++i) busy += stage.ends[i] - stage.begins[i];
      timeline.busy.push_back(busy);
      if (!stage.ends.empty()) timeline.makespan = std::max(timeline.makespan, stage.ends.back());
      std::vector<int>& stages = table.stage_of.emplace_back(std::size_t(stage.chunks), 0);
      for (const auto& [chunk, number] : stage.stage_of) stages[std::size_t(chunk)] = number;
      table.orders.push_back(std::move(stage.order));
      timeline.start.push_back(std::move(stage.begins));
      timeline.end.push_back(std::move(stage.ends));
    }
    timeline.finished = true;
  }

  const EventCosts& costs_;
  std::vector<Stage> stages_;
  std::map<std::uint64_t, std::size_t> members_;  // number of traces per communicator
  std::map<std::pair<std::uint64_t, std::size_t>, Meeting> meetings_;
  std::map<Key, std::deque<Sent>> sent_;
};

}  // namespace weft::plan::detail

namespace weft::plan {

WEFT_COLD WEFT_INLINE Replayed replay(const std::vector<const RehearsedTrace*>& traces, const EventCosts& costs) {
  if (traces.empty()) throw_error<UsageError>({"estimate: no trace to replay"});
  return detail::Replay(traces, costs).run();
}

}  // namespace weft::plan
