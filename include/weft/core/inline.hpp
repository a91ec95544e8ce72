// SPDX-License-Identifier: Apache-2.0
#pragma once
// The mark of a definition that the library weft::compiled holds. Without WEFT_COMPILED weft is header-only: `foo.hpp` includes
// `foo_impl.hpp`, whose definitions are inline. With WEFT_COMPILED a program sees declarations alone, and src/*.cpp compile the
// rest once.
//
//   WEFT_INLINE std::string joined(Words words) { ... }   // in text_impl.hpp; text.hpp declares it

#include <weft/core/standard.hpp>

#ifdef WEFT_COMPILED
#define WEFT_INLINE
#else
#define WEFT_INLINE inline
#endif

// The linker's refusals. A program whose translation units are not all with WEFT_COMPILED, or all without, fails to link on a
// symbol that is thread-local in one of them only ("TLS definition ... mismatches non-TLS reference"). One that was compiled for
// other vector registers than the library, and would get sums of another order from it, asks for a symbol that the library does
// not have.
#if defined(__AVX512F__)
#define WEFT_REGISTERS weft_compiled_for_registers_of_64_bytes
#elif defined(__AVX__)
#define WEFT_REGISTERS weft_compiled_for_registers_of_32_bytes
#else
#define WEFT_REGISTERS weft_compiled_for_registers_of_16_bytes
#endif

#if defined(__GNUC__) && defined(__ELF__) && !defined(__CUDA_ARCH__)
namespace weft::detail {
#ifdef WEFT_COMPILED
extern "C" char weft_with_and_without_WEFT_COMPILED, WEFT_REGISTERS;
[[gnu::used]] static const char* const weft_linker_checks[] = {&weft_with_and_without_WEFT_COMPILED, &WEFT_REGISTERS};
#else
extern "C" {
[[gnu::used]] inline thread_local char weft_with_and_without_WEFT_COMPILED = 0;
}
#endif
}  // namespace weft::detail
#endif
