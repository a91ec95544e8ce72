// SPDX-License-Identifier: Apache-2.0
// covers: weft/checkpoint/config_numbers.hpp weft/checkpoint/error.hpp weft/checkpoint/index.hpp weft/checkpoint/match.hpp
// Damaged checkpoints: every length to which a file may be cut and every bit that may flip is found before a parameter changes;
// foreign, hostile and unfitting indexes are refused by name.

#include "support/checkpoints.hpp"
#include "support/figure.hpp"

#include <fstream>
#include <functional>
#include <random>

#include <weft/checkpoint/config_numbers.hpp>
#include <weft/checkpoint/error.hpp>
#include <weft/checkpoint/index.hpp>
#include <weft/checkpoint/match.hpp>

using namespace weft_test;
namespace fs = std::filesystem;

namespace {

using Model = SingleDevice<models::BasicGpt<float>>;

models::GptConfig small_config() {
  return {.vocabulary = 19, .layers = 1, .width = 8, .heads = 2, .sequence = batch_length, .standard_deviation = 0.1};
}

std::string bytes_of_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
void write_file(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc).write(bytes.data(), std::streamsize(bytes.size()));
}

/// A model, its optimizer and a checkpoint of an earlier step.
struct Trial {
  TemporaryFolder folder;
  std::string place = (folder.path / "run").string();
  DefaultDevice device;
  Model model{device, small_config()};
  optim::AdamW optimizer{model, {.learning_rate = 0.01}};
  fs::path step = fs::path(place) / "step-00000001";
  std::vector<std::byte> before;

  Trial() {
    train(0);
    checkpoint::save(place, model, optimizer, 1);
    train(1);
    before = state();
  }
  void train(int at) {
    model.train_step(make_batch(std::uint64_t(at), 0, 1, 1));
    optimizer.step();
  }
  std::vector<std::byte> state() {
    Ending ending;
    take_state(ending, model, optimizer);
    std::vector<std::byte> all;
    for (const auto& [name, bytes] : ending.state) all.insert(all.end(), bytes.begin(), bytes.end());
    const auto steps = optimizer.steps();
    all.insert(all.end(), reinterpret_cast<const std::byte*>(&steps), reinterpret_cast<const std::byte*>(&steps) + sizeof steps);
    return all;
  }
  std::string load() {
    try {
      checkpoint::load(place, model, optimizer);
      return "loaded";
    } catch (const checkpoint::Error& error) {
      return error.what();
    }
  }
  std::vector<fs::path> files() const { return {step / "index.json", step / "rank-00000.safetensors"}; }
};
bool contains(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

/// The text of an index with a checksum that is right.
std::string sealed(std::string index, const std::function<void(std::string&)>& change) {
  const std::size_t end = index.rfind(checkpoint::detail::checksum_key);
  index.resize(end);
  change(index);
  index += checkpoint::detail::checksum_key;
  index += checkpoint::detail::hex(
      checkpoint::detail::checksum_of(index.data(), index.size() - checkpoint::detail::checksum_key.size()));
  return index += checkpoint::detail::checksum_end;
}
void replace(std::string& text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  INFO(from);
  REQUIRE(at != text.npos);
  text.replace(at, from.size(), to);
}

}  // namespace

TEST_CASE("the checkpoint of these tests is whole, and of 16 KiB") {
  Trial trial;
  CHECK(trial.load() == "loaded");
  CHECK(trial.state() != trial.before);
  CHECK(trial.optimizer.steps() == 1);
  std::uintmax_t bytes = 0;
  for (const fs::path& file : trial.files()) bytes += fs::file_size(file);
  CHECK(bytes > 15 * 1024);
  CHECK(bytes < 32 * 1024);
  for (const fs::path& file : trial.files()) CHECK((fs::status(file).permissions() & fs::perms::mask) == fs::perms(0600));
  CHECK((fs::status(trial.step).permissions() & fs::perms::mask) == fs::perms(0700));
}

TEST_CASE("files cut to any length") {
  Trial trial;
  std::size_t found = 0, tried = 0;
  for (const fs::path& file : trial.files()) {
    const std::string whole = bytes_of_file(file);
    for (std::size_t length = 0; length < whole.size(); ++length) {
      fs::resize_file(file, length);
      ++tried;
      found += trial.load().starts_with("weft: checkpoint: ");
      fs::remove(file);  // resizing would fill the cut-off part with zeros
      write_file(file, whole);
    }
  }
  CHECK(found == tried);
  CHECK(trial.state() == trial.before);
  CHECK(trial.load() == "loaded");
  figure(5, tried, "lengths to which the files of a checkpoint were cut", tried - found, "not refused");
}

TEST_CASE("a large checkpoint cut to a random length") {
  Trial trial;
  models::GptConfig config = small_config();
  config.width = 64, config.layers = 3;
  Model large(trial.device, config);
  optim::AdamW optimizer(large);
  const std::string place = (trial.folder.path / "large").string();
  checkpoint::save(place, large, optimizer, 1);
  const fs::path file = fs::path(place) / "step-00000001" / "rank-00000.safetensors";
  const std::string whole = bytes_of_file(file);
  REQUIRE(whole.size() > 1'000'000);
  std::mt19937_64 random(5);
  std::vector<std::size_t> lengths(std::size_t(rounds(500)));
  for (std::size_t& length : lengths) length = random() % whole.size();
  std::sort(lengths.rbegin(), lengths.rend());  // in descending order, so that the file need not be written again for each
  std::size_t found = 0;
  for (const std::size_t length : lengths) {
    fs::resize_file(file, length);
    try {
      checkpoint::load(place, large, optimizer);
    } catch (const checkpoint::Error& error) {
      found += contains(error.what(), "bytes");
    }
  }
  CHECK(found == lengths.size());
  figure(5, lengths.size(), "random lengths to which a large checkpoint was cut", lengths.size() - found, "not refused");
  write_file(file, whole);
  CHECK(checkpoint::load(place, large, optimizer) == 1);
}

namespace {

/// Flips a bit of each byte, in a long run each bit, in the share `part` of `parts` of a file; how many bytes.
std::size_t flip_bits(std::size_t which, std::size_t part, std::size_t parts) {
  Trial trial;
  const fs::path file = trial.files()[which];
  std::size_t found = 0, tried = 0;
  const std::string whole = bytes_of_file(file);
  std::fstream out(file, std::ios::binary | std::ios::in | std::ios::out);
  const auto put = [&](std::size_t at, char byte) {
    out.seekp(std::streamoff(at));
    out.put(byte);
    out.flush();
  };
  for (std::size_t at = whole.size() * part / parts; at < whole.size() * (part + 1) / parts; ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      if (!long_form() && bit != int(at % 8)) continue;
      put(at, char(whole[at] ^ 1 << bit));
      ++tried;
      const std::string what = trial.load();
      if (what.starts_with("weft: checkpoint: ")) ++found;
      else MESSAGE(file.string() << " byte " << at << " bit " << bit << ": " << what);
    }
    put(at, whole[at]);
  }
  CHECK(found == tried);
  CHECK(trial.state() == trial.before);
  CHECK(trial.load() == "loaded");
  figure(6, tried, which == 0 ? "bits of an index flipped" : "bits of a rank's file flipped", tried - found, "not refused");
  return tried / (long_form() ? 8 : 1);
}

}  // namespace

// In parts, each with the watchdog's full time limit: together more than 131,072 bits in a long run.
TEST_CASE("bits of the index flipped") { CHECK(flip_bits(0, 0, 1) > 5'000); }
TEST_CASE("bits of a rank's file flipped, first third") { CHECK(flip_bits(1, 0, 3) > 3'750); }
TEST_CASE("bits of a rank's file flipped, second third") { CHECK(flip_bits(1, 1, 3) > 3'750); }
TEST_CASE("bits of a rank's file flipped, last third") { CHECK(flip_bits(1, 2, 3) > 3'750); }

TEST_CASE("damages of many bytes") {
  Trial trial;
  std::mt19937_64 random(3);
  for (const fs::path& file : trial.files()) {
    const std::string whole = bytes_of_file(file);
    std::size_t found = 0, tried = 0;
    for (long i = 0; i < rounds(2000); ++i) {
      std::string damaged = whole;
      const std::size_t length = 1 + random() % 64, at = random() % (whole.size() - length);
      for (std::size_t b = 0; b < length; ++b) damaged[at + b] = char(random());
      if (damaged == whole) continue;
      write_file(file, damaged);
      ++tried;
      found += trial.load().starts_with("weft: checkpoint: ");
    }
    write_file(file, whole);
    CHECK(found == tried);
    figure(6, tried, "damages of 1 to 64 bytes", tried - found, "not refused");
  }
  CHECK(trial.state() == trial.before);
}

TEST_CASE("`latest` is a hint: whatever it contains, a whole checkpoint is loaded") {
  Trial trial;
  for (const std::string hint : {"", "step-00000009", "../run/step-00000001", "step-00000001\n\n", "\xff", "/etc/passwd"}) {
    write_file(fs::path(trial.place) / "latest", hint);
    CHECK(trial.load() == "loaded");
  }
  fs::remove(fs::path(trial.place) / "latest");
  CHECK(trial.load() == "loaded");
}

TEST_CASE("indexes with a right checksum and impossible contents") {
  Trial trial;
  const fs::path file = trial.step / "index.json";
  const std::string whole = bytes_of_file(file);
  const auto said = [&](const std::function<void(std::string&)>& change) {
    write_file(file, sealed(whole, change));
    const std::string what = trial.load();
    CHECK(trial.state() == trial.before);
    return what;
  };
  const auto with = [&](const std::string& from, const std::string& to) {
    return said([&](std::string& text) { replace(text, from, to); });
  };
  CHECK(contains(with("\"weft_checkpoint\":1", "\"weft_checkpoint\":2"), "is of version 2, and this weft reads 1 to 1"));
  CHECK(contains(with("\"weft_checkpoint\":1", "\"weft_checkpoint\":0"), "is of version 0"));
  CHECK(contains(with("rank-00000.safetensors", "../../etc/passwd"), "only plain names are allowed"));
  CHECK(contains(with("rank-00000.safetensors", "/etc/passwd"), "only plain names are allowed"));
  CHECK(contains(with("rank-00000.safetensors", "..\\u002frank"), "only plain names are allowed"));
  CHECK(contains(with("rank-00000.safetensors", "rank-00001.safetensors"), "rank-00001.safetensors: cannot be opened"));
  CHECK(contains(with("\"chunk_bytes\":1048576", "\"chunk_bytes\":0"), "chunk_bytes is 0"));
  CHECK(contains(with("\"step\":1", "\"step\":1,\"step\":1"), "the key step comes twice"));
  CHECK(contains(with("\"step\":1", "\"more\":1,\"step\":1"), "has a field more, which this version of weft does not read"));
  CHECK(contains(with("\"step\":1", "\"step\":-1"), "a negative number"));
  CHECK(contains(with("\"step\":1,", ""), "it lacks one of its fields"));
  CHECK(contains(with("\"begun\":{", "\"begun\":{\"a\":9"), "its state is said to begin at step 9 of 1"));
  CHECK(contains(with("\"notes\":{", "\"notes\":{\"a\":{}"), "an object where none belongs"));
  CHECK(contains(with("\"kind\":\"parameter\"", "\"kind\":\"parameter\",\"kind\":\"parameter\""), "the key kind comes twice"));
  CHECK(contains(with("\"file\":0", "\"file\":1"), "a piece is in file 1 of 1"));
  CHECK(contains(with("\"first\":0", "\"first\":1"), "a piece does not lie inside its"));
  CHECK(contains(with("\"first\":0", "\"first\":18446744073709551615"), "a piece does not lie inside its"));
  CHECK(contains(with("\"runs\":1", "\"runs\":18446744073709551615"), "a piece does not lie inside its"));
  CHECK(contains(with("\"runs\":1", "\"runs\":0"), "a piece does not lie inside its"));
  CHECK(contains(with("\"offset\":", "\"offset\":9"), "does not lie inside rank-00000.safetensors"));
  CHECK(contains(with("\"xxh3\":[", "\"xxh3\":[\"0000000000000000\","), "has 2 checksums"));
  CHECK(contains(with("\"xxh3\":[\"", "\"xxh3\":[\"g"), "is no checksum of 16 digits"));
  CHECK(contains(with("\"type\":\"F32\"", "\"type\":\"F8\""), "its type is F8, which weft does not support"));
  CHECK(contains(with("\"shape\":[8]", "\"shape\":[9223372036854775807,8]"), "more elements than a number holds"));
  CHECK(contains(with("\"shape\":[8]", "\"shape\":[9]"), "its pieces overlap, or leave elements out"));
  CHECK(contains(said([](std::string& text) {
                   // One piece twice: as many elements as two halves, but none of the second.
                   replace(text, "\"shape\":[8]", "\"shape\":[16]");
                   const std::size_t begin = text.find("{\"file\"", text.find("\"shape\":[16]")),
                                     end = text.find("]}", begin) + 2;
                   text.insert(end, "," + text.substr(begin, end - begin));
                 }),
                 "its pieces overlap, or leave elements out"));
  CHECK(contains(said([](std::string& text) { text.insert(0, "\n"); }), "is no index of a checkpoint"));
  CHECK(contains(said([](std::string& text) { replace(text, "\"notes\":{", "\"notes\":{\"a\":" + std::string(100'000, '[')); }),
                 "an array where none belongs"));
  write_file(file, whole);
  CHECK(trial.load() == "loaded");
}

TEST_CASE("files that are links, or have other files in their place") {
  Trial trial;
  const fs::path file = trial.files()[1], other = trial.folder.path / "other";
  fs::rename(file, other);
  CHECK(contains(trial.load(), "rank-00000.safetensors: cannot be opened: No such file"));
  fs::create_symlink(other, file);
  CHECK(contains(trial.load(), "is a link, which a checkpoint does not follow"));
  fs::remove(file);
  fs::create_directory(file);
  CHECK(contains(trial.load(), "is no plain file"));
  fs::remove(file);
  fs::rename(other, file);
  CHECK(trial.state() == trial.before);
  CHECK(trial.load() == "loaded");
  fs::remove_all(trial.step);
  CHECK(contains(trial.load(), "holds no checkpoint"));
  fs::remove_all(trial.place);
  CHECK(contains(trial.load(), "is no folder"));
  CHECK_FALSE(checkpoint::exists(trial.place));
}

TEST_CASE("a folder that cannot be read is not one without checkpoints: no run starts anew there") {
  TemporaryFolder folder;
  DefaultDevice device;
  Model model(device, small_config());
  optim::AdamW optimizer(model);
  const std::string loop = (folder.path / "loop").string(), file = (folder.path / "file").string();
  fs::create_symlink("loop", loop);
  write_file(file, "text");
  CHECK(checkpoint::resume((folder.path / "none").string(), model, optimizer) == 0);
  CHECK_THROWS_WITH_AS(checkpoint::resume(loop, model, optimizer), doctest::Contains("cannot be looked at: Too many levels"),
                       checkpoint::Error);
  CHECK_THROWS_WITH_AS(checkpoint::resume(file, model, optimizer), doctest::Contains("cannot be looked at: Not a directory"),
                       checkpoint::Error);
  CHECK_THROWS_WITH_AS(checkpoint::list(file), doctest::Contains("cannot be listed: Not a directory"), checkpoint::Error);
}

TEST_CASE("a loss scale that the model cannot take is refused before a parameter changes") {
  TemporaryFolder folder;
  const std::string place = (folder.path / "run").string();
  DefaultDevice device;
  Model saved(device, small_config(), {.seed = 3, .numerics = {.loss_scale = LossScaleOptions{.initial = 1024}}});
  optim::AdamW of_saved(saved);
  checkpoint::save(place, saved, of_saved, 1);
  Model model(device, small_config(), {.seed = 4, .numerics = {.loss_scale = LossScaleOptions{.initial = 8, .largest = 16}}});
  optim::AdamW optimizer(model);
  const auto state = [&] {
    Ending ending;
    take_state(ending, model, optimizer);
    return ending.state;
  };
  const auto before = state();
  CHECK_THROWS_WITH_AS(checkpoint::load(place, model, optimizer), doctest::Contains("the restored factor 1024"),
                       checkpoint::Error);
  CHECK(state() == before);
  CHECK(model.loss_scale()->value() == 8);
}

TEST_CASE("a checkpoint of another model") {
  Trial trial;
  const auto loaded = [&](const models::GptConfig& config) -> std::string {
    Model model(trial.device, config);
    optim::AdamW optimizer(model);
    try {
      checkpoint::load(trial.place, model, optimizer);
    } catch (const checkpoint::Error& error) {
      return error.what();
    }
    return "loaded";
  };
  auto config = small_config();
  CHECK(loaded(config) == "loaded");
  config.layers = 2;
  CHECK(contains(loaded(config), "it lacks 36 tensors of this one: "));
  CHECK(contains(loaded(config), " and 31 more"));
  config = small_config();
  config.vocabulary = 23;
  CHECK(contains(loaded(config), "tensor transformer.wte.weight: is [19, 8], and [23, 8] in this model"));

  SingleDevice<models::BasicGpt<double>> wide(trial.device, small_config());
  CHECK_THROWS_WITH_AS(checkpoint::load(trial.place, wide), doctest::Contains("is of type F32, and of F64 in this model"),
                       checkpoint::Error);
  // The other way round: the checkpoint has more.
  config = small_config();
  config.layers = 2;
  Model deeper(trial.device, config);
  optim::AdamW of_deeper(deeper);
  checkpoint::save(trial.place, deeper, of_deeper, 7);
  CHECK(contains(trial.load(), "it has 36 tensors that this one has not: "));
  CHECK(checkpoint::load(trial.place, deeper) == 7);
  // Without an optimizer.
  Model alone(trial.device, small_config());
  CHECK(checkpoint::load(trial.step.string(), alone) == 1);
  checkpoint::save(trial.place, alone, 9);
  CHECK(contains(trial.load(), "holds a model without an optimizer's state"));
}

TEST_CASE("a checkpoint of another optimizer") {
  Trial trial;  // of AdamW
  Model model(trial.device, small_config());
  optim::Sgd optimizer(model, {.learning_rate = 0.1, .momentum = 0.9});
  CHECK_THROWS_WITH_AS(checkpoint::load(trial.place, model, optimizer),
                       doctest::Contains("is of another optimizer: it lacks 16 tensors of this one: "), checkpoint::Error);
}

TEST_CASE("state of parameters that are frozen now is not read, and those that were frozen then are named") {
  Trial trial;
  Model model(trial.device, small_config());
  optim::AdamW optimizer(model, {.learning_rate = 0.01});
  model.freeze("*.wte.weight", "*.bias");
  CHECK(checkpoint::load(trial.place, model, optimizer) == 1);
  CHECK(optimizer.steps() == 1);
  Model all(trial.device, small_config());
  CHECK(checkpoint::load(trial.place, all) == 1);
  for (const std::string& name : all.parameter_names()) CHECK(model.parameter(name) == all.parameter(name));
  const auto embedding = model.parameter("transformer.wte.weight");
  const auto trained = model.parameter("transformer.ln_f.weight");
  model.train_step(make_batch(1, 0, 1, 1));
  optimizer.step();
  CHECK(model.parameter("transformer.wte.weight") == embedding);
  CHECK(model.parameter("transformer.ln_f.weight") != trained);
  checkpoint::save(trial.place, model, optimizer, 2);
  const std::string said = trial.load();
  CHECK(contains(said, "has no optimizer state for parameters that are trained here, "));
  CHECK(contains(said, "): they were frozen. Freeze them, load, and unfreeze them then"));
  CHECK(contains(said, "tensor transformer.wte.weight.exp_avg"));
  CHECK(trial.state() == trial.before);
  trial.model.freeze("*.wte.weight", "*.bias");
  CHECK(trial.load() == "loaded");
  trial.model.unfreeze("*");
  trial.train(2);
  CHECK(trial.model.parameter("transformer.wte.weight") != embedding);
}

TEST_CASE("a checkpoint of a model that computes something else with the same tensors") {
  Trial trial;
  checkpoint::save(trial.place, trial.model, trial.optimizer, 2);
  const auto loaded = [&](const models::GptConfig& config, const checkpoint::LoadOptions& options = {}) -> std::string {
    Model model(trial.device, config);
    optim::AdamW optimizer(model);
    const auto before = [&] { return *model.parameter("transformer.wte.weight").data(); };
    const float value = before();
    try {
      checkpoint::load(trial.place, model, optimizer, options);
    } catch (const checkpoint::Error& error) {
      CHECK(before() == value);
      return error.what();
    }
    return "loaded";
  };
  auto config = small_config();
  config.heads = 4;
  CHECK(contains(loaded(config), "step-00000002: is of a model with heads 2, and this one has 4"));
  CHECK(loaded(config, {.same_config = false}) == "loaded");
  config = small_config();
  config.epsilon = 1e-6;
  CHECK(contains(loaded(config), "is of a model with epsilon 1e-05, and this one has 1e-06"));
  config = small_config();
  config.mask.window = 3;
  CHECK(contains(loaded(config), "is of a model with mask.window 0, and this one has 3"));
  config = small_config();  // settings that only affect training may change
  config.dropout = 0.1;
  config.recompute = Recomputation::full;
  config.standard_deviation = 0.5;
  CHECK(loaded(config) == "loaded");
  const auto notes = checkpoint::read_index(checkpoint::find(trial.place)).notes;
  CHECK(notes.at("config.heads") == "2");
  // One of an earlier weft, without these numbers.
  const fs::path index = fs::path(trial.place) / "step-00000002" / "index.json";
  write_file(index, sealed(bytes_of_file(index), [](std::string& text) {
               replace(text, "config.heads", "other.heads");
               replace(text, "config.kv_heads", "other.kv_heads");
             }));
  config = small_config();
  config.heads = 4;
  CHECK(loaded(config) == "loaded");
}

TEST_CASE("a folder in folders that are not there, and a message that names a file at the end of a long path") {
  Trial trial;
  const std::string deep = trial.place + "/with spaces/" + std::string(90, 'a') + "/und \u00fcml\u00e4uts//";
  checkpoint::save(deep, trial.model, trial.optimizer, 3);
  CHECK(checkpoint::load(deep, trial.model, trial.optimizer) == 3);
  CHECK((fs::status(deep).permissions() & fs::perms::mask) == fs::perms(0700));
  fs::resize_file(deep + "/step-00000003/rank-00000.safetensors", 100);
  CHECK_THROWS_WITH_AS(checkpoint::load(deep, trial.model, trial.optimizer),
                       doctest::Contains("/und \u00fcml\u00e4uts//step-00000003/rank-00000.safetensors: byte 100: has 100 bytes"),
                       checkpoint::Error);
  // A name that a script has left empty: a run must not start from the beginning, or end without its checkpoint.
  const auto named = doctest::Contains("the folder's name is empty");
  CHECK_THROWS_WITH_AS(checkpoint::resume("", trial.model, trial.optimizer), named, UsageError);
  CHECK_THROWS_WITH_AS(checkpoint::save("", trial.model, trial.optimizer, 3), named, UsageError);
  write_file(trial.folder.path / "file", "");
  CHECK_THROWS_AS(checkpoint::save((trial.folder.path / "file/run").string(), trial.model, trial.optimizer, 3),
                  checkpoint::Error);
}

TEST_CASE("save between train_step and the optimizer's step is refused") {
  Trial trial;
  trial.model.train_step(make_batch(2, 0, 1, 1));
  CHECK_THROWS_WITH_AS(checkpoint::save(trial.place, trial.model, trial.optimizer, 3),
                       doctest::Contains("between train_step and the optimizer's step"), UsageError);
  trial.model.discard_gradients();
  checkpoint::save(trial.place, trial.model, trial.optimizer, 3);
  CHECK(checkpoint::list(trial.place).size() == 2);
}
