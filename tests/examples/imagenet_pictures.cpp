// SPDX-License-Identifier: Apache-2.0
// Pictures of examples/08_imagenet: decoding and transforms equal Pillow's within 1 (golden/pictures), a training picture is a
// function of seed, epoch and index in every layout, and unusable files are refused in one line.

#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "examples/08_imagenet/image_folder.hpp"
#include "support/message.hpp"
#include "support/temporary_folder.hpp"

using namespace imagenet;
namespace fs = std::filesystem;

namespace {

const fs::path golden = WEFT_GOLDEN_FOLDER "/pictures";

std::vector<std::uint8_t> bytes_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  REQUIRE_MESSAGE(in.good(), file.string());
  return {std::istreambuf_iterator<char>(in), {}};
}
void write(const fs::path& file, const std::vector<std::uint8_t>& bytes) {
  fs::create_directories(file.parent_path());
  std::ofstream(file, std::ios::binary).write(reinterpret_cast<const char*>(bytes.data()), std::streamsize(bytes.size()));
}

Picture read_ppm(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::string magic;
  std::size_t width = 0, height = 0, most = 0;
  in >> magic >> width >> height >> most;
  in.get();
  REQUIRE(magic == "P6");
  Picture picture(height, width);
  in.read(reinterpret_cast<char*>(picture.pixels.data()), std::streamsize(picture.pixels.size()));
  REQUIRE(in.gcount() == std::streamsize(picture.pixels.size()));
  return picture;
}

int largest_difference(const Picture& a, const Picture& b) {
  REQUIRE(a.height == b.height);
  REQUIRE(a.width == b.width);
  int largest = 0;
  for (std::size_t i = 0; i < a.pixels.size(); ++i) largest = std::max(largest, std::abs(int(a.pixels[i]) - int(b.pixels[i])));
  return largest;
}

/// Rows [24 place, 24 place + 24) of the results of transforms.
Picture expected(std::size_t place) {
  static const Picture all = read_ppm(golden / "transforms.ppm");
  Picture part(24, 24);
  REQUIRE(24 * (place + 1) <= all.height);
  std::copy_n(all.at(24 * place, 0), part.pixels.size(), part.pixels.data());
  return part;
}

/// Two classes of golden pictures.
std::shared_ptr<const ImageFolder> make_folder(const fs::path& place) {
  for (const char* name : {"colours.png", "full.jpg", "half.jpg", "grey.jpg"}) {
    fs::create_directories(place / "cat");
    fs::create_directories(place / "dog/puppies");
    fs::copy_file(golden / name, place / "cat" / name);
    fs::copy_file(golden / name, place / "dog/puppies" / (std::string("b_") + name));
  }
  fs::copy_file(golden / "wide.png", place / "dog/z.PNG");
  std::ofstream(place / "cat/notes.txt") << "no picture";
  return std::make_shared<const ImageFolder>(place.string(), "--train");
}

std::string refusal(const fs::path& file, const DecodeOptions& options = {}) {
  return weft_test::message<UsageError>([&] { read_picture(file.string(), options); });
}

}  // namespace

TEST_CASE("decoded pixels equal Pillow's within 1") {
  std::size_t files = 0;
  for (const auto& entry : fs::directory_iterator(golden)) {
    const std::string name = entry.path().filename().string();
    if (!name.ends_with(".ppm") || name == "transforms.ppm") continue;
    const std::string file = entry.path().string().substr(0, entry.path().string().size() - 4);
    CAPTURE(file);
    CHECK(largest_difference(read_picture(file, {.convert_cmyk = true}), read_ppm(entry.path())) <= 1);
    ++files;
  }
  CHECK(files == 14);
}

TEST_CASE("resize, crops, flip and colours equal torchvision's on Pillow within 1") {
  const Picture colours = read_picture((golden / "colours.png").string()), wide = read_picture((golden / "wide.png").string()),
                small = expected(12);
  const TransformOptions evaluation{.size = 24, .resize = 27};
  const auto changed = [&](auto&& change) {
    Picture picture = small;
    change(picture);
    return picture;
  };
  const std::vector<Picture> results{
      resized(colours, {3, 5, 40, 30}, 24, 24),
      resized(colours, {30, 20, 9, 11}, 24, 24),
      centred(colours, evaluation),
      centred(wide, evaluation),
      changed([](Picture& picture) { change_brightness(picture, 1.3); }),
      changed([](Picture& picture) { change_contrast(picture, 0.6); }),
      changed([](Picture& picture) { change_contrast(picture, 1.7); }),
      changed([](Picture& picture) { change_saturation(picture, 0.2); }),
      changed([](Picture& picture) { change_saturation(picture, 1.8); }),
      changed([](Picture& picture) { change_hue(picture, 0.3); }),
      changed([](Picture& picture) { change_hue(picture, -0.2); }),
      changed([](Picture& picture) { flip(picture); }),
      resized(colours, {0, 0, 50, 37}, 24, 24),
  };
  for (std::size_t i = 0; i < results.size(); ++i) {
    CAPTURE(i);
    CHECK(largest_difference(results[i], expected(i)) <= 1);
    if (i < 12) CHECK(largest_difference(results[i], expected((i + 1) % 12)) > 8);  // the bound would see another transform
  }
}

TEST_CASE("normalised values are (x / 255 - mean) / deviation, in planes") {
  Picture picture(1, 2);
  const std::uint8_t pixels[] = {0, 128, 255, 10, 20, 30};
  std::copy_n(pixels, 6, picture.pixels.data());
  std::vector<float> out(6);
  normalise(picture, out);
  const double mean[] = {0.485, 0.456, 0.406}, deviation[] = {0.229, 0.224, 0.225};
  for (std::size_t c = 0; c < 3; ++c)
    for (std::size_t i = 0; i < 2; ++i)
      CHECK(out[2 * c + i] == doctest::Approx((pixels[3 * i + c] / 255.0 - mean[c]) / deviation[c]).epsilon(1e-6));
}

TEST_CASE("a random box lies in the picture and has the area and the aspect ratio of torchvision's") {
  double area = 0, least = 1, most = 0;
  constexpr int draws = 4000;
  for (std::uint64_t key = 0; key < draws; ++key) {
    const Box box = random_box(300, 400, key_of(key));
    CHECK(box.height >= 1);
    CHECK(box.width >= 1);
    CHECK(box.top + box.height <= 300);
    CHECK(box.left + box.width <= 400);
    const double part = double(box.height * box.width) / 120000;
    area += part / draws;
    least = std::min(least, part), most = std::max(most, part);
    CHECK(double(box.width) / double(box.height) > 0.74);
    CHECK(double(box.width) / double(box.height) < 1.35);
  }
  CHECK(least < 0.1);
  CHECK(most > 0.9);
  CHECK(area == doctest::Approx(0.5).epsilon(0.1));
  const Box middle = random_box(10, 4000, 1);  // no box fits
  CHECK(middle.height == 10);
  CHECK(middle.width == 13);
  CHECK(middle.left == 1993);
}

TEST_CASE("classes and pictures have torchvision's order") {
  const weft_test::TemporaryFolder folder;
  const auto pictures = make_folder(folder.path / "train");
  CHECK(pictures->classes() == std::vector<std::string>{"cat", "dog"});
  std::string names;
  for (std::size_t i = 0; i < pictures->size(); ++i)
    names += fs::relative(pictures->file(i), folder.path / "train").string() + "=" + std::to_string(pictures->label(i)) + " ";
  CHECK(names ==
        "cat/colours.png=0 cat/full.jpg=0 cat/grey.jpg=0 cat/half.jpg=0 dog/z.PNG=1 dog/puppies/b_colours.png=1 "
        "dog/puppies/b_full.jpg=1 dog/puppies/b_grey.jpg=1 dog/puppies/b_half.jpg=1 ");
}

TEST_CASE("the same pixels on 1, 2 and 4 ranks, with any threads, and in a resumed run") {
  const weft_test::TemporaryFolder folder;
  const TrainingImages pictures{{make_folder(folder.path / "train"), {.size = 32, .colour_jitter = 0.4, .hue = 0.1}}, 7};
  using Sample = std::pair<std::uint64_t, std::size_t>;  // step, place in the global batch
  const auto seen = [&](std::size_t ranks, std::size_t threads, std::uint64_t first_step) {
    std::map<Sample, std::vector<float>> all;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      data::Loader loader(data::Share{rank, ranks}, pictures,
                          {.global_batch = 4, .seed = 3, .epochs = 3, .first_step = first_step, .threads = threads});
      for (auto&& batch : loader)
        for (std::size_t i = 0; i < batch.samples; ++i) {
          const auto values = batch[image].sample(i);
          all[{loader.progress().step, batch.first_sample + i}].assign(values.begin(), values.end());
        }
    }
    return all;
  };
  const auto one = seen(1, 1, 0);
  CHECK(one.size() == 24);
  CHECK(seen(2, 1, 0) == one);
  CHECK(seen(4, 3, 0) == one);
  auto resumed = seen(2, 2, 3);
  CHECK(resumed.size() == 12);
  for (const auto& [place, values] : resumed) CHECK(one.at(place) == values);

  const Picture picture = read_picture((golden / "colours.png").string());
  const auto made = [&](std::uint64_t seed, std::uint64_t epoch, std::uint64_t index) {
    return augmented(picture, pictures.transform, seed, epoch, index).pixels;
  };
  CHECK(made(7, 1, 5) == made(7, 1, 5));
  CHECK(made(7, 1, 5) != made(8, 1, 5));
  CHECK(made(7, 1, 5) != made(7, 2, 5));
  CHECK(made(7, 1, 5) != made(7, 1, 6));
}

TEST_CASE("an evaluation has every picture once, and zeros up to a multiple of the ranks") {
  const weft_test::TemporaryFolder folder;
  const EvaluationImages pictures{{make_folder(folder.path / "val"), {.size = 32, .resize = 36}}, 4};
  CHECK(pictures.folder->size() == 9);
  CHECK(pictures.size() == 12);
  std::size_t samples = 0;
  for (std::size_t rank = 0; rank < 4; ++rank)
    for (auto&& batch : data::Loader(data::Share{rank, 4}, pictures, {.global_batch = 8, .shuffle = false, .drop_last = false})) {
      samples += batch.samples;
      for (std::size_t i = 0; i < batch.samples; ++i) {
        const std::size_t index = std::size_t(batch.first_sample + i) + (batch.samples == 1 ? 8 : 0);
        if (index < 9) CHECK(batch[label].values()[i] == pictures.folder->label(index));
        else CHECK(batch[image].sample(i)[5] == 0);
      }
    }
  CHECK(samples == 12);
}

TEST_CASE("files that are no usable picture are refused in one line with the file and the remedy") {
  const weft_test::TemporaryFolder folder;
  const fs::path place = folder.path / "a picture.jpg";
  const auto refused = [&](const std::vector<std::uint8_t>& bytes, const std::string& reason, const DecodeOptions& options = {}) {
    write(place, bytes);
    const std::string text = refusal(place, options);
    CAPTURE(text);
    CHECK(text.starts_with("weft: cannot read '" + place.string() + "': "));
    CHECK(text.find(reason) != text.npos);
    CHECK(text.find('\n') == text.npos);
    CHECK(text.find("; ") != text.npos);  // the remedy
  };
  refused({}, "it is empty");
  refused({'h', 'e', 'l', 'l', 'o'}, "neither JPEG nor PNG");
  for (const char* name : {"colours.png", "full.jpg", "progressive.jpg", "grey.jpg"}) {
    CAPTURE(name);
    const auto whole = bytes_of(golden / name);
    for (const double part : {0.02, 0.3, 0.6, 0.9}) {
      auto cut = whole;
      cut.resize(std::size_t(double(whole.size()) * part));
      if (cut.size() > 12) refused(cut, "the file is truncated");
    }
  }
  // A header that announces 60000 x 60000 pixels needs no memory to be refused.
  auto huge = bytes_of(golden / "full.jpg");
  for (std::size_t i = 0; i + 8 < huge.size(); ++i)
    if (huge[i] == 0xff && huge[i + 1] == 0xc0) {
      huge[i + 5] = huge[i + 7] = 60000 >> 8;
      huge[i + 6] = huge[i + 8] = 60000 & 255;
      break;
    }
  refused(huge, "it has 60000 x 60000 pixels, and at most 100000000 are read");
  refused(bytes_of(golden / "colours.png"), "37 x 50 pixels", {.most_pixels = 1849});
  refused(bytes_of(golden / "cmyk.jpg"), "CMYK");
  auto wrong = bytes_of(golden / "colours.png");
  wrong[wrong.size() / 2] ^= 0x55;
  refused(wrong, "the PNG is damaged");
  auto header = bytes_of(golden / "full.jpg");
  for (std::size_t i = 2; i < 40; ++i) header[i] = 0;
  refused(header, "the JPEG is damaged");
  CHECK(refusal(folder.path / "none.jpg").find("No such file or directory") != std::string::npos);
  CHECK(refusal(folder.path).find("no regular file") != std::string::npos);
}

TEST_CASE("folders that are no data set are refused with the folder and the remedy") {
  const weft_test::TemporaryFolder folder;
  const auto refused = [&](const fs::path& place, const std::string& reason) {
    const std::string text = weft_test::message<UsageError>([&] { ImageFolder(place.string(), "--validation"); });
    CAPTURE(text);
    CHECK(text.starts_with("weft: imagenet: --validation: '" + place.string()));
    CHECK(text.find(reason) != text.npos);
    CHECK(text.find('\n') == text.npos);
  };
  const fs::path train = folder.path / "train";
  refused(train, "there is no such folder");
  fs::create_directories(train);
  refused(train, "it has no sub-folders");
  fs::create_directories(train / "cat");
  refused(train, "this class has no picture");
  fs::copy_file(golden / "full.jpg", train / "cat/a.jpg");
  std::ofstream(train / "cat/b.webp") << "x";
  refused(train, "pictures are JPEG or PNG");
  fs::remove(train / "cat/b.webp");
  const ImageFolder one(train.string(), "--train");
  fs::create_directories(folder.path / "val/dog");
  fs::copy_file(golden / "full.jpg", folder.path / "val/dog/a.jpg");
  const ImageFolder other((folder.path / "val").string(), "--validation");
  const std::string text = weft_test::message<UsageError>([&] { ImageFolder::require_same_classes(one, other); });
  CHECK(text.find("--train " + train.string() + " has the class 'cat'") != text.npos);
  CHECK(text.find("1 and 1 classes") != text.npos);
}

TEST_CASE("an unreadable picture ends the step that needs it, with its name") {
  const weft_test::TemporaryFolder folder;
  make_folder(folder.path / "train");
  write(folder.path / "train/cat/bad.jpg", {0xff, 0xd8, 0xff});
  const auto pictures = std::make_shared<const ImageFolder>((folder.path / "train").string(), "--train");
  data::Loader loader(data::Share{}, TrainingImages{{pictures, {.size = 32}}, 1}, {.global_batch = 10, .threads = 3});
  const std::string text = weft_test::message<Error>([&] { loader.begin(); });
  CAPTURE(text);
  CHECK(text.starts_with("weft: loader: sample 0 of step 0: rank 0 cannot read '"));
  CHECK(text.find("bad.jpg': ") != text.npos);
}
