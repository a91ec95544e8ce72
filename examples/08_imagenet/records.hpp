// SPDX-License-Identifier: Apache-2.0
#pragma once
// The records of a run, on rank 0: layout.json, metrics.jsonl, with one line of JSON for each step and each evaluation, and
// pictures of the loss and of the accuracy. A resumed run keeps the records of the steps before its checkpoint.
//
//   Records records("runs/imagenet", 0, {{"world", 2}, {"dp", 2}});
//   records.step({.step = 0, .loss = 6.9});
//   records.evaluation({.step = 5003, .loss = 4.1, .top1 = 21.3, .top5 = 44.0});

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include <weft/core/json_writer.hpp>
#include <weft/core/output_file.hpp>
#include <weft/trace/loss_curve.hpp>
#include <weft/trace/metrics.hpp>

#include "../output_folder.hpp"

namespace imagenet {

struct StepRecord {
  std::uint64_t step = 0, epoch = 0;
  double loss = 0, gradient_norm = 0, learning_rate = 0;
  double images_per_s = 0;
  double waited_s = 0;  ///< for the loader, since the start of the run
};
struct EvaluationRecord {
  std::uint64_t step = 0, epoch = 0;
  double loss = 0, top1 = 0, top5 = 0;  ///< the accuracies in percent
};

class Records {
 public:
  /// Makes the folder. `done`: the steps of an earlier run, whose records stay. Throws UsageError if it cannot be written.
  Records(const std::string& folder, std::uint64_t done, const nlohmann::ordered_json& layout) : folder_(folder) {
    output_folder::make("imagenet", folder_);
    weft::trace::write_text(folder_ / "layout.json",
                            layout.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
    loss_.unit = "cross-entropy";
    top1_.unit = "top-1, %";
    const std::filesystem::path file = folder_ / "metrics.jsonl";
    if (done == 0) {
      file_.emplace("imagenet", file.string());
      return;
    }
    output_folder::keep_records_before(done, file, [this](const nlohmann::json& record) {
      output_folder::add_point(loss_.training, record, "loss");
      output_folder::add_point(loss_.validation, record, "validation_loss");
      output_folder::add_point(top1_.validation, record, "top1");
    });
    file_.emplace("imagenet", file.string(), weft::detail::OutputFile::Earlier::stay);
  }

  void step(const StepRecord& r) {
    weft::detail::JsonWriter json(9);
    json.object().member("step", r.step).member("epoch", r.epoch).member("loss", r.loss).member("gradient_norm", r.gradient_norm);
    json.member("learning_rate", r.learning_rate).member("images_per_s", r.images_per_s).member("waited_s", r.waited_s);
    file_->write(json.end().text() + '\n');
    loss_.training.push_back({double(r.step), r.loss});
  }
  void evaluation(const EvaluationRecord& r) {
    weft::detail::JsonWriter json(9);
    json.object().member("step", r.step).member("epoch", r.epoch).member("validation_loss", r.loss);
    file_->write(json.member("top1", r.top1).member("top5", r.top5).end().text() + '\n');
    loss_.validation.push_back({double(r.step), r.loss});
    top1_.validation.push_back({double(r.step), r.top1});
    draw();
  }
  void draw() const {
    weft::trace::write_text(folder_ / "loss.svg", loss_.svg("loss"));
    if (!top1_.validation.empty()) weft::trace::write_text(folder_ / "accuracy.svg", top1_.svg("accuracy"));
  }

 private:
  std::filesystem::path folder_;
  std::optional<weft::detail::OutputFile> file_;
  weft::trace::LossCurve loss_, top1_;
};

}  // namespace imagenet
