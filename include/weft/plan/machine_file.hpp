// SPDX-License-Identifier: Apache-2.0
#pragma once
// Machines in files: one JSON object whose members are those of Machine. Needs nlohmann's JSON.
//
//   {"like": "h100", "name": "our cluster", "ranks_per_node": 4, "across": {"latency_s": 8e-6, "bandwidth": 25e9}}

#include <nlohmann/json.hpp>

#include <cmath>
#include <string>
#include <string_view>

#include <weft/core/error.hpp>
#include <weft/core/input_file.hpp>
#include <weft/plan/machine.hpp>
#include <weft/plan/this_machine.hpp>

namespace weft::plan {

/// Reads the machine that a JSON text describes; `source` names the text in errors. Missing members are taken from the machine
/// named by the member "like". Throws UsageError, in one line, for unknown members, numbers that are not positive, or a missing
/// speed.
WEFT_COLD inline Machine machine_from_json(std::string_view text, std::string_view source) {
  using Json = nlohmann::json;
  const Json json = Json::parse(text.begin(), text.end(), nullptr, false);
  if (!json.is_object()) throw_error<UsageError>({"machine '", source, "': it is not one JSON object"});
  Machine machine{.name = std::string(source)};
  const auto word = [&](const Json& value, std::string_view key) {
    if (!value.is_string()) throw_error<UsageError>({"machine '", source, "': ", key, " must be a text"});
    return value.get<std::string>();
  };
  const auto number = [&](const Json& value, std::string_view key, bool zero = false) {
    const double x = value.is_number() ? value.get<double>() : -1;
    if (!std::isfinite(x) || x < 0 || (x == 0 && !zero))
      throw_error<UsageError>({"machine '", source, "': ", key, " must be a number ", zero ? ">= 0" : "> 0"});
    return x;
  };
  if (json.contains("like")) {
    const std::string like = word(json["like"], "like");
    if (like == "this") throw_error<UsageError>({"machine '", source, "': like names a known machine: a100, h100 or h200"});
    machine = known_machine(like);
    machine.name = source;
  }
  const auto link = [&](const Json& value, std::string_view key, Link& to) {
    if (!value.is_object())
      throw_error<UsageError>({"machine '", source, "': ", key, " must be an object with latency_s and bandwidth"});
    for (const auto& [name, x] : value.items()) {
      if (name == "latency_s") to.latency_s = number(x, name, true);
      else if (name == "bandwidth") to.bandwidth = number(x, name);
      else throw_error<UsageError>({"machine '", source, "': ", key, " has no member '", name.substr(0, 40), "'"});
    }
  };
  struct Member {
    std::string_view key;
    double Machine::*place;
    bool zero;
  };
  static constexpr Member members[] = {{"flops_16", &Machine::flops_16, false},
                                       {"flops_32", &Machine::flops_32, false},
                                       {"flops_64", &Machine::flops_64, false},
                                       {"memory_bandwidth", &Machine::memory_bandwidth, false},
                                       {"product_share", &Machine::product_share, false},
                                       {"attention_share", &Machine::attention_share, false},
                                       {"attention_backward_share", &Machine::attention_backward_share, false},
                                       {"attention_scale_16", &Machine::attention_scale_16, false},
                                       {"attention_backward_scale_16", &Machine::attention_backward_scale_16, false},
                                       {"memory_share", &Machine::memory_share, false},
                                       {"link_share", &Machine::link_share, false},
                                       {"tile_rows", &Machine::tile_rows, false},
                                       {"tile_columns", &Machine::tile_columns, false},
                                       {"units", &Machine::units, true},
                                       {"half_rows", &Machine::half_rows, true},
                                       {"half_columns", &Machine::half_columns, true},
                                       {"half_terms", &Machine::half_terms, true},
                                       {"hidden_bytes", &Machine::hidden_bytes, true},
                                       {"launch_s", &Machine::launch_s, true},
                                       {"exponential_s", &Machine::exponential_s, true},
                                       {"host_bandwidth", &Machine::host_bandwidth, true},
                                       {"host_memory", &Machine::host_memory, true},
                                       {"ranks_per_core", &Machine::ranks_per_core, false}};
  for (const auto& [key, value] : json.items()) {
    const std::string_view name = key;  // structured bindings cannot be captured
    if (name == "like") continue;
    if (name == "name") machine.name = word(value, name);
    else if (name == "hides_messages") {
      if (!value.is_boolean()) throw_error<UsageError>({"machine '", source, "': hides_messages must be true or false"});
      machine.hides_messages = value.get<bool>();
    } else if (name == "inside") link(value, name, machine.inside);
    else if (name == "across") link(value, name, machine.across);
    else if (name == "ranks_per_node") {
      const double ranks = number(value, name);
      if (ranks != std::floor(ranks) || ranks > 1e6)
        throw_error<UsageError>({"machine '", source, "': ranks_per_node must be a whole number from 1 to 1000000"});
      machine.ranks_per_node = int(ranks);
    } else {
      const Member* found = nullptr;
      for (const Member& member : members)
        if (member.key == name) found = &member;
      if (found == nullptr) throw_error<UsageError>({"machine '", source, "': there is no member '", name.substr(0, 40), "'"});
      machine.*found->place = number(value, name, found->zero);
    }
  }
  for (const Member& member : members)
    if (!member.zero && machine.*member.place <= 0)
      throw_error<UsageError>({"machine '", source, "': ", member.key, " is missing (or say \"like\": \"h100\")"});
  if (machine.hidden_bytes > 1) throw_error<UsageError>({"machine '", source, "': hidden_bytes must be a number from 0 to 1"});
  if (machine.inside.bandwidth <= 0 || machine.across.bandwidth <= 0)
    throw_error<UsageError>({"machine '", source, "': inside or across has no bandwidth"});
  return machine;
}

namespace detail {
WEFT_COLD inline Machine read_machine(std::string_view path) {
  const std::string text = weft::detail::InputFile("machine", std::string(path), "JSON file", 1 << 20).read();
  return machine_from_json(text, path);
}
inline const bool reads_machines = (machine_from_file = &read_machine) != nullptr;
}  // namespace detail

}  // namespace weft::plan
