// SPDX-License-Identifier: Apache-2.0
// A pipeline's last training step as pictures.

#include <weft/pipeline/schedule/visualise.hpp>
#include <weft/trace/metrics.hpp>

#include "trained_model.hpp"

namespace train_gpt {

void write_pictures(const weft::schedule::TimelineRecorder& recording, const weft::Communicator& pipeline,
                    const std::filesystem::path& folder, bool writes) {
  const weft::schedule::Timeline timeline = weft::schedule::measured(recording, pipeline);
  if (!writes) return;
  weft::trace::write_text(folder / "timeline.svg", weft::schedule::to_svg(recording.table(), timeline, " s"));
  weft::trace::write_text(folder / "timeline.json", weft::schedule::to_trace(recording.table(), timeline, 1e6));
}

}  // namespace train_gpt
