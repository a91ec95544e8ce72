// SPDX-License-Identifier: Apache-2.0
#pragma once
// The end of a program: an error becomes one line and an exit code, failed writes to standard output are reported, and closed
// standard streams are opened. `run` ends programs with ranks in this way, `run_alone` programs without ranks.
//
//   int main(int argc, char** argv) {
//     return weft::runtime::run_alone([&] { return list(argv[1]); });
//   }

#include <fcntl.h>
#include <sys/resource.h>
#if __has_include(<execinfo.h>)
#include <execinfo.h>
#endif
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <system_error>
#include <type_traits>

#include <weft/comm/errors.hpp>
#include <weft/comm/flight_file.hpp>
#include <weft/core/error.hpp>

namespace weft::runtime {

namespace detail {

/// An error's text as one line, and its exit code.
struct Report {
  std::string text = "weft: unknown error";
  int code = 1;

  explicit Report(const std::exception_ptr& error) {
    try {
      std::rethrow_exception(error);
    } catch (const CommunicationError& caught) {
      text = caught.what() + comm::flight_hint();
      if (caught.exit_code() != 0) code = caught.exit_code();
    } catch (const Error& caught) {
      text = caught.what();
      if (caught.exit_code() != 0) code = caught.exit_code();
    } catch (const std::bad_alloc&) {
      text =
          "weft: out of memory: the host could not allocate the requested memory; use a smaller batch, sequence or model, or "
          "fewer "
          "ranks on this machine";
    } catch (const std::system_error& caught) {
      const bool limit =
          caught.code() == std::errc::resource_unavailable_try_again || caught.code() == std::errc::not_enough_memory;
      text = caught.what();
      if (limit)
        text = weft::detail::joined(
            {"weft: the system has no thread or memory left for this process (ulimit -u, ulimit -v): ", text});
    } catch (const std::exception& caught) {
      text = caught.what();
    } catch (...) {}
    for (char& c : text)  // names of files and options may contain any character
      if (static_cast<unsigned char>(c) < ' ' || c == '\x7f') c = ' ';
  }
  void print() const {
    std::fprintf(stderr, "%s\n", text.c_str());
    std::fflush(stderr);
  }
};

/// True if the process has a limit on its address space (`ulimit -v`).
inline bool address_space_is_limited() {
  rlimit limit{};
  return ::getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
}

/// Prepares for a later failure to allocate. Loads the library with which the C library unwinds its own frames; without it an
/// exception would end the process. With a limited address space, threads share one heap: glibc reserves 64 MB for each thread's
/// heap.
WEFT_COLD inline void prepare_for_end_of_memory() {
#if __has_include(<execinfo.h>)
  void* frame = nullptr;
  (void)::backtrace(&frame, 1);
#endif
#ifdef __GLIBC__
  if (address_space_is_limited()) (void)::mallopt(M_ARENA_MAX, 1);
#endif
}

}  // namespace detail

/// Opens standard input, output and error if the program was started with one of them closed (`>&-`): otherwise the next opened
/// file would become that stream. Writes to such a stream still fail. `run` calls this; a program that opens files before `run`
/// calls it first.
WEFT_COLD inline void open_standard_streams() {
  for (int stream = 0; stream <= 2; ++stream)
    if (::fcntl(stream, F_GETFD) == -1 && errno == EBADF)
      (void)::open("/dev/null", O_RDONLY);  // open returns the lowest free
                                            // number
}

/// The exit code of a program that has ended, or `otherwise` if writes to standard output failed. `lost_before`: standard output
/// had already failed when the program began.
WEFT_COLD inline int written(int code = 0, bool lost_before = false, int otherwise = 1) {
  errno = 0;
  const bool lost = std::fflush(stdout) != 0 || std::ferror(stdout) != 0;
  if (!lost || lost_before || (code != 0 && otherwise == 1)) return code;
  std::fprintf(stderr, "weft: standard output was not written: %s\n", errno != 0 ? std::strerror(errno) : "some of it is lost");
  return otherwise;
}

/// Prints an error on one line, as `run` does, and returns its exit code, or `otherwise` if the error has none.
WEFT_COLD inline int report(const std::exception_ptr& error, int otherwise = 1) {
  const detail::Report report(error);
  report.print();
  return report.code == 1 ? otherwise : report.code;
}

/// Runs f() as a program without ranks and returns its exit code: the number that f returns (0 if it returns nothing), or the
/// code of its error. `otherwise`: the code of errors without a code, and of failed output.
template <class F>
int run_alone(F&& f, int otherwise = 1) {
  open_standard_streams();
  const bool lost_before = std::ferror(stdout) != 0;
  try {
    int code = 0;
    if constexpr (std::is_void_v<decltype(f())>) f();
    else code = f();
    return written(code, lost_before, otherwise);
  } catch (...) {
    return report(std::current_exception(), otherwise);
  }
}

}  // namespace weft::runtime
