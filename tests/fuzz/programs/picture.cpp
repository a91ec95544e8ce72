// SPDX-License-Identifier: Apache-2.0
// links: -ljpeg -lpng
// A picture of examples/08_imagenet, any bytes: refused in one line with the file's name, or as many pixels as its size has, at
// most those that are allowed.
#include <csetjmp>
#include <cstdlib>

#include "../../../examples/08_imagenet/picture.hpp"

#include "fuzz/support/fuzz.hpp"

using namespace imagenet;

namespace {

std::string jpeg(int width, int height, bool progressive, J_COLOR_SPACE space, int colours) {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &bytes, &size);
  info.image_width = JDIMENSION(width);
  info.image_height = JDIMENSION(height);
  info.input_components = colours;
  info.in_color_space = space;
  jpeg_set_defaults(&info);
  if (progressive) jpeg_simple_progression(&info);
  jpeg_start_compress(&info, TRUE);
  for (int y = 0; y < height; ++y) {
    std::vector<JSAMPLE> row;
    for (int x = 0; x < width * colours; ++x) row.push_back(JSAMPLE(x * 7 + y * 11));
    JSAMPROW pointer = row.data();
    jpeg_write_scanlines(&info, &pointer, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  std::string text(reinterpret_cast<const char*>(bytes), size);
  std::free(bytes);
  return text;
}

std::string png(int width, int height, unsigned format) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = png_uint_32(width);
  image.height = png_uint_32(height);
  image.format = format;
  std::vector<unsigned char> pixels(PNG_IMAGE_SIZE(image));
  for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = (unsigned char)(i * 5);
  png_alloc_size_t size = 0;
  png_image_write_get_memory_size(image, size, 0, pixels.data(), 0, nullptr);
  std::string text(size, '\0');
  png_image_write_to_memory(&image, text.data(), &size, 0, pixels.data(), 0, nullptr);
  text.resize(size);
  return text;
}

}  // namespace

void weft_test::target(Input input) {
  const std::string_view text = input.rest();
  const std::vector<std::uint8_t> bytes(text.begin(), text.end());
  try {
    const Picture picture = decode_picture("a picture", bytes, {.convert_cmyk = true, .most_pixels = 10000});
    expect(picture.height > 0 && picture.width > 0 && picture.height * picture.width <= 10000);
    expect(picture.pixels.size() == 3 * picture.height * picture.width);
  } catch (const weft::Error& error) {
    expect_message(error.what());
    expect(std::string_view(error.what()).starts_with("weft: cannot read 'a picture': "));
  }
}

std::vector<std::string> weft_test::seeds() {
  return {jpeg(20, 9, false, JCS_RGB, 3), jpeg(9, 20, true, JCS_RGB, 3), jpeg(8, 8, false, JCS_GRAYSCALE, 1),
          jpeg(9, 9, false, JCS_CMYK, 4), png(9, 7, PNG_FORMAT_RGB),     png(7, 9, PNG_FORMAT_RGBA),
          png(8, 8, PNG_FORMAT_GRAY)};
}
