// SPDX-License-Identifier: Apache-2.0
#pragma once
// Low-rank adapters merged into their base weights, in any layout: each rank changes the elements that it stores.
//
//   auto merged = hugging_face::merge_adapters(model);   // a model without adapters while `merged` exists
//   merged.keep();                                       // or permanently

#include <cstddef>
#include <cstring>
#include <map>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <weft/checkpoint/data_types.hpp>
#include <weft/checkpoint/state.hpp>
#include <weft/core/scalar.hpp>
#include <weft/engine/lora_options.hpp>
#include <weft/hugging_face/config.hpp>

namespace weft::hugging_face {

namespace detail {

/// scale · B A as one matrix, with rows and columns as in the stored weight: an element is Σ_k left[row, k] right[k, column].
struct Product {
  std::size_t rank, columns;
  std::vector<double> left, right;  // [rows, rank], [rank, columns]

  /// down [rank, in], up [out, rank].
  static Product of(std::size_t rank, double scale, bool stored_in_out, const std::vector<double>& down,
                    const std::vector<double>& up) {
    const auto transposed = [](const std::vector<double>& from, std::size_t rows) {
      const std::size_t columns = from.size() / rows;
      std::vector<double> to(from.size());
      for (std::size_t i = 0; i < rows; ++i)
        for (std::size_t j = 0; j < columns; ++j) to[j * rows + i] = from[i * columns + j];
      return to;
    };
    const std::size_t in = down.size() / rank, out = up.size() / rank;
    Product product =
        stored_in_out ? Product{rank, out, transposed(down, rank), transposed(up, out)} : Product{rank, in, up, down};
    for (double& value : product.left) value *= scale;
    return product;
  }
  /// Adds the elements [first, first + count), row-major, to `values`.
  void add(std::size_t first, std::size_t count, double* values) const {
    while (count > 0) {
      const std::size_t row = first / columns, column = first % columns, some = std::min(count, columns - column);
      for (std::size_t k = 0; k < rank; ++k) {
        const double factor = left[row * rank + k];
        const double* from = right.data() + k * columns + column;
        for (std::size_t i = 0; i < some; ++i) values[i] += factor * from[i];
      }
      first += some;
      values += some;
      count -= some;
    }
  }
};

template <class T>
void add_product(const Product& product, const checkpoint::detail::Runs& runs, std::byte* bytes) {
  std::vector<double> values;
  for (const auto& run : runs) {
    values.resize(run.length);
    std::byte* at = bytes + run.local * sizeof(T);
    for (std::size_t i = 0; i < run.length; ++i) {
      T value;
      std::memcpy(&value, at + i * sizeof(T), sizeof(T));
      values[i] = double(accumulate_t<T>(value));
    }
    product.add(std::size_t(run.global), std::size_t(run.length), values.data());
    for (std::size_t i = 0; i < run.length; ++i) {
      const T value = T(accumulate_t<T>(values[i]));
      std::memcpy(at + i * sizeof(T), &value, sizeof(T));
    }
  }
}

}  // namespace detail

/// This rank's weights before the merge. The destructor restores their bits unless keep() was called.
class [[nodiscard]] MergedAdapters {
 public:
  MergedAdapters() = default;
  MergedAdapters(MergedAdapters&& other) noexcept
      : before_(std::move(other.before_)), store_(std::exchange(other.store_, nullptr)) {
    other.before_.clear();
  }
  MergedAdapters& operator=(MergedAdapters&&) = delete;
  ~MergedAdapters() {
    try {
      undo();
    } catch (...) {  // a file of offloaded state failed: it is rolled back, and the weights stay merged
    }
  }

  /// Restores the weights and the adapters. Throws Error if a file of offloaded state cannot be written.
  void undo() {
    const auto before = std::exchange(before_, {});
    write(before);
  }
  /// Keeps the merged weights. The adapters start again: B is zero, so the model computes the same as before.
  void keep() { before_.clear(); }

 private:
  template <class Model>
  friend MergedAdapters merge_adapters(Model& model);
  struct Kept {
    checkpoint::detail::Item item;
    std::vector<std::byte> bytes;
  };
  void write(const std::vector<Kept>& all) const {
    try {
      for (const bool undone : {true, false}) {
        for (const Kept& one : all) one.item.write(one.bytes.data(), one.item.type, undone);
        if (undone && store_ != nullptr && !all.empty()) store_->commit();
      }
    } catch (...) {
      if (store_ != nullptr) store_->roll_back();
      throw;
    }
  }

  std::vector<Kept> before_;
  weft::detail::Store* store_ = nullptr;
};

/// Adds each adapter's alpha / rank · B A to its base weight, in double and rounded once, and sets B to zero, so the model
/// computes the same up to rounding. Does nothing for a model without adapters. Allocates copies of the changed weights.
/// Collective over the model's ranks. Accumulated gradients still refer to the adapters before the merge.
template <class Model>
MergedAdapters merge_adapters(Model& model) {
  MergedAdapters merged;
  const LoraOptions& lora = model.options().lora;
  if (lora.rank == 0 || checkpoint::detail::leaves_files_alone(model)) return merged;
  constexpr bool stored_in_out = std::is_same_v<typename std::remove_reference_t<Model>::Config, models::GptConfig>;
  checkpoint::detail::State state = checkpoint::detail::state_of(model);
  std::map<std::string, checkpoint::detail::Item*> items;
  for (checkpoint::detail::Item& item : state.items) items[item.name] = &item;
  std::vector<MergedAdapters::Kept> after;
  const auto begin = [&](const std::string& name) -> std::vector<std::byte>* {
    const auto at = items.find(name);
    if (at == items.end() || at->second->size == 0) return nullptr;
    const checkpoint::detail::Bytes now = at->second->read();
    const std::size_t bytes = at->second->size * checkpoint::size_of(at->second->type);
    merged.before_.push_back({*at->second, {now.data, now.data + bytes}});
    after.push_back(merged.before_.back());
    return &after.back().bytes;
  };
  for (const std::string& down : model.parameter_names()) {
    if (!down.ends_with(weft::detail::lora_down)) continue;
    const std::string layer = down.substr(0, down.size() - weft::detail::lora_down.size()),
                      up = layer + std::string(weft::detail::lora_up);
    const std::vector<double> a = model.parameter(down), b = model.parameter(up);  // collective
    if (std::vector<std::byte>* weight = begin(layer + ".weight")) {
      const auto product = detail::Product::of(lora.rank, lora.scale(), stored_in_out, a, b);
      const checkpoint::detail::Item& item = after.back().item;
      using checkpoint::StoredType;
      if (item.type == StoredType::f64) detail::add_product<double>(product, item.runs, weight->data());
      else if (item.type == StoredType::f32) detail::add_product<float>(product, item.runs, weight->data());
      else if (item.type == StoredType::bf16) detail::add_product<bfloat16>(product, item.runs, weight->data());
      else detail::add_product<float16>(product, item.runs, weight->data());
    }
    if (std::vector<std::byte>* zero = begin(up)) std::fill(zero->begin(), zero->end(), std::byte(0));
  }
  merged.store_ = state.store;
  merged.write(after);
  return merged;
}

}  // namespace weft::hugging_face
