// SPDX-License-Identifier: Apache-2.0
#pragma once
// A picture of 8-bit red, green and blue, and its decoding from a JPEG or PNG file by libjpeg-turbo and libpng. Pixels are those
// of Pillow's Image.open(file).convert("RGB") within 1: palettes are resolved, transparency is dropped, grey becomes three equal
// colours, and the orientation of EXIF is ignored. The high 8 of 16 bits are kept (Pillow cuts grey off at 255). The content
// decides on the format, not the name. Every error is a UsageError of one line with the file and the remedy.
//
//   const Picture picture = read_picture("train/n01440764/n01440764_10026.JPEG");
//   picture.at(y, x)[0]   // red

#include <cerrno>
#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jpeglib.h>

#include <jerror.h>
#include <png.h>

#include <weft/core/error.hpp>
#include <weft/core/text.hpp>

namespace imagenet {

/// Row-major pixels of three bytes.
struct Picture {
  std::size_t height = 0, width = 0;
  std::vector<std::uint8_t> pixels = {};  // [height, width, 3]

  Picture() = default;
  Picture(std::size_t high, std::size_t wide) : height(high), width(wide), pixels(3 * high * wide) {}
  std::uint8_t* at(std::size_t y, std::size_t x) { return pixels.data() + 3 * (y * width + x); }
  const std::uint8_t* at(std::size_t y, std::size_t x) const { return pixels.data() + 3 * (y * width + x); }
};

struct DecodeOptions {
  /// Convert CMYK with Pillow's formula, which ignores colour profiles. Otherwise such a file is refused.
  bool convert_cmyk = false;
  /// A larger picture is refused before its memory is allocated.
  std::size_t most_pixels = 100'000'000;
};

namespace detail {

[[noreturn]] inline void refuse_picture(const std::string& file, std::string_view reason, std::string_view remedy) {
  weft::throw_error<weft::UsageError>({"cannot read '", weft::detail::shown(file, 300), "': ", reason, "; ", remedy});
}
inline constexpr std::string_view fetch_again = "copy the file again from its source, or remove it from the folder";

/// All bytes of a regular file.
inline std::vector<std::uint8_t> read_bytes(const std::string& file) {
  const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) refuse_picture(file, std::strerror(errno), "make it readable, or remove it from the folder");
  struct Closed {
    int descriptor;
    ~Closed() { ::close(descriptor); }
  } const closed{descriptor};
  struct stat status {};
  if (::fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode))
    refuse_picture(file, "it is no regular file", "remove it from the folder");
  std::vector<std::uint8_t> bytes(std::size_t(status.st_size));
  for (std::size_t at = 0; at < bytes.size();) {
    const ssize_t count = ::read(descriptor, bytes.data() + at, bytes.size() - at);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) refuse_picture(file, count < 0 ? std::strerror(errno) : "it became shorter while it was read", fetch_again);
    at += std::size_t(count);
  }
  if (bytes.empty()) refuse_picture(file, "it is empty", fetch_again);
  return bytes;
}

inline void require_pixels(const std::string& file, std::size_t width, std::size_t height, const DecodeOptions& options) {
  if (width == 0 || height == 0) refuse_picture(file, "it has no pixels", fetch_again);
  if (width > options.most_pixels / height)
    refuse_picture(file,
                   weft::detail::joined({"it has ", width, " x ", height, " pixels, and at most ", options.most_pixels,
                                         " are read, since a small file can announce any size"}),
                   "shrink it, or remove it from the folder");
}

/// A scan of libjpeg in progress. The library returns from errors by longjmp, so that the functions between setjmp and the error
/// have no objects with destructors.
struct JpegScan {
  jpeg_decompress_struct info{};
  jpeg_error_mgr errors{};
  std::jmp_buf back;
  char message[JMSG_LENGTH_MAX] = "";
  bool ended_early = false;

  JpegScan() {
    info.err = jpeg_std_error(&errors);
    info.client_data = this;
    errors.error_exit = [](j_common_ptr common) {
      auto& scan = *static_cast<JpegScan*>(common->client_data);
      common->err->format_message(common, scan.message);
      std::longjmp(scan.back, 1);
    };
    errors.emit_message = [](j_common_ptr common, int level) {
      if (level < 0 && common->err->msg_code == JWRN_JPEG_EOF) static_cast<JpegScan*>(common->client_data)->ended_early = true;
    };
    errors.output_message = [](j_common_ptr) {};
  }
  JpegScan(const JpegScan&) = delete;
  JpegScan& operator=(const JpegScan&) = delete;
  ~JpegScan() { jpeg_destroy_decompress(&info); }

  // False after an error, whose text is in `message`.
  bool read_header(const std::vector<std::uint8_t>& bytes) {
    if (setjmp(back) != 0) return false;
    jpeg_create_decompress(&info);
    jpeg_mem_src(&info, bytes.data(), bytes.size());
    jpeg_read_header(&info, TRUE);
    return true;
  }
  bool start() {
    if (setjmp(back) != 0) return false;
    return jpeg_start_decompress(&info) != 0;
  }
  bool read_rows(std::uint8_t* rows, std::size_t row_bytes) {
    if (setjmp(back) != 0) return false;
    while (info.output_scanline < info.output_height && !ended_early) {
      JSAMPROW row = rows + info.output_scanline * row_bytes;
      if (jpeg_read_scanlines(&info, &row, 1) != 1) break;
    }
    return true;
  }
};

/// One pixel of Adobe's inverted CMYK: Pillow's rounding of (255 - c) (255 - k) / 255 per colour.
inline void cmyk_to_rgb(const std::uint8_t* ink, bool inverted, std::uint8_t* out) {
  const auto amount = [&](int i) { return inverted ? 255 - ink[i] : int(ink[i]); };
  const int light = 255 - amount(3);
  for (int colour = 0; colour < 3; ++colour) {
    const int product = amount(colour) * light + 128;
    out[colour] = std::uint8_t(light - ((product >> 8) + product) / 256);
  }
}

inline Picture decode_jpeg(const std::string& file, const std::vector<std::uint8_t>& bytes, const DecodeOptions& options) {
  JpegScan scan;
  const auto damaged = [&] {
    refuse_picture(file, weft::detail::joined({"the JPEG is damaged: ", std::string_view(scan.message)}), fetch_again);
  };
  const std::string_view early = "the JPEG ends early: the file is truncated";
  if (!scan.read_header(bytes)) {
    if (scan.ended_early) refuse_picture(file, early, fetch_again);
    damaged();
  }
  auto& info = scan.info;
  require_pixels(file, info.image_width, info.image_height, options);
  const bool cmyk = info.jpeg_color_space == JCS_CMYK || info.jpeg_color_space == JCS_YCCK;
  if (cmyk && !options.convert_cmyk)
    refuse_picture(file, "it has the four colours of a printer, CMYK, whose red, green and blue depend on a profile",
                   "convert it to RGB, or give --convert-cmyk, which ignores profiles as Pillow does");
  info.out_color_space = cmyk ? JCS_CMYK : info.jpeg_color_space == JCS_GRAYSCALE ? JCS_GRAYSCALE : JCS_RGB;
  if (!scan.start()) damaged();
  Picture picture(info.output_height, info.output_width);
  const std::size_t colours = std::size_t(info.output_components), count = picture.height * picture.width;
  std::vector<std::uint8_t> other(colours == 3 ? 0 : count * colours);
  std::uint8_t* const rows = colours == 3 ? picture.pixels.data() : other.data();
  if (!scan.read_rows(rows, picture.width * colours)) damaged();
  if (scan.ended_early) refuse_picture(file, early, fetch_again);
  for (std::size_t i = 0; i < count && colours != 3; ++i) {
    if (cmyk) cmyk_to_rgb(&other[4 * i], info.saw_Adobe_marker != 0, &picture.pixels[3 * i]);
    else std::memset(&picture.pixels[3 * i], other[i], 3);
  }
  return picture;
}

/// libpng's counterpart of JpegScan.
struct PngScan {
  png_structp png = nullptr;
  png_infop info = nullptr;
  const std::vector<std::uint8_t>* bytes = nullptr;
  std::size_t at = 0;
  char message[200] = "";
  bool ended_early = false;

  explicit PngScan(const std::vector<std::uint8_t>& of) : bytes(&of) {
    png = png_create_read_struct(
        PNG_LIBPNG_VER_STRING, this,
        [](png_structp at_png, png_const_charp text) {
          auto& scan = *static_cast<PngScan*>(png_get_error_ptr(at_png));
          std::snprintf(scan.message, sizeof scan.message, "%s", text);
          png_longjmp(at_png, 1);
        },
        [](png_structp, png_const_charp) {});
    if (png != nullptr) info = png_create_info_struct(png);
    if (info == nullptr) throw std::bad_alloc();
    png_set_read_fn(png, this, [](png_structp at_png, png_bytep out, std::size_t count) {
      auto& scan = *static_cast<PngScan*>(png_get_io_ptr(at_png));
      if (count > scan.bytes->size() - scan.at) {
        scan.ended_early = true;
        png_error(at_png, "the file ends early");
      }
      std::memcpy(out, scan.bytes->data() + scan.at, count);
      scan.at += count;
    });
  }
  PngScan(const PngScan&) = delete;
  PngScan& operator=(const PngScan&) = delete;
  ~PngScan() { png_destroy_read_struct(&png, &info, nullptr); }

  bool read_header() {
    if (setjmp(png_jmpbuf(png)) != 0) return false;
    png_set_user_limits(png, 0x7fffffff, 0x7fffffff);
    png_read_info(png, info);
    return true;
  }
  bool start() {
    if (setjmp(png_jmpbuf(png)) != 0) return false;
    const int type = png_get_color_type(png, info);
    if (type == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(png);
    if (type == PNG_COLOR_TYPE_GRAY) png_set_expand_gray_1_2_4_to_8(png);
    if ((type & PNG_COLOR_MASK_COLOR) == 0) png_set_gray_to_rgb(png);
    png_set_strip_16(png);
    png_set_strip_alpha(png);
    png_set_interlace_handling(png);
    png_read_update_info(png, info);
    return true;
  }
  bool read_rows(png_bytepp rows) {
    if (setjmp(png_jmpbuf(png)) != 0) return false;
    png_read_image(png, rows);
    return true;
  }
};

inline Picture decode_png(const std::string& file, const std::vector<std::uint8_t>& bytes, const DecodeOptions& options) {
  PngScan scan(bytes);
  const auto refuse = [&] {
    if (scan.ended_early) refuse_picture(file, "the PNG ends early: the file is truncated", fetch_again);
    refuse_picture(file, weft::detail::joined({"the PNG is damaged: ", std::string_view(scan.message)}), fetch_again);
  };
  if (!scan.read_header()) refuse();
  require_pixels(file, png_get_image_width(scan.png, scan.info), png_get_image_height(scan.png, scan.info), options);
  if (!scan.start()) refuse();
  Picture picture(png_get_image_height(scan.png, scan.info), png_get_image_width(scan.png, scan.info));
  if (png_get_rowbytes(scan.png, scan.info) != 3 * picture.width)
    refuse_picture(file, "the PNG has a colour type that is not read", "convert it to RGB");
  std::vector<png_bytep> rows(picture.height);
  for (std::size_t y = 0; y < picture.height; ++y) rows[y] = picture.at(y, 0);
  if (!scan.read_rows(rows.data())) refuse();
  return picture;
}

}  // namespace detail

/// The picture in `bytes`, of which `file` is the name in errors. Throws UsageError.
inline Picture decode_picture(const std::string& file, const std::vector<std::uint8_t>& bytes,
                              const DecodeOptions& options = {}) {
  const auto starts = [&](std::string_view magic) {
    return bytes.size() >= magic.size() && std::memcmp(bytes.data(), magic.data(), magic.size()) == 0;
  };
  if (starts("\xff\xd8")) return detail::decode_jpeg(file, bytes, options);
  if (starts("\x89PNG\r\n\x1a\n")) return detail::decode_png(file, bytes, options);
  detail::refuse_picture(file, "its content is neither JPEG nor PNG", "convert it to one of them, or remove it from the folder");
}
inline Picture read_picture(const std::string& file, const DecodeOptions& options = {}) {
  return decode_picture(file, detail::read_bytes(file), options);
}

}  // namespace imagenet
