// Sixteen pixels at a time. Packing takes the signs of compared bytes; unpacking copies a byte over
// eight so that each keeps its own bit. Where the processor has no such instructions, 64-bit
// arithmetic does the same for eight: a multiplication moves the low bits of eight bytes into one.
#include "cpu/bits/pack.h"

#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace jaxsparse::cpu {
namespace {

constexpr uint64_t kDiagonal = 0x8040201008040201u;  // byte i holds bit i

#if defined(__SSE2__)

uint32_t PackSixteen(const uint8_t* bytes) {
  const __m128i x = _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes));
  return _mm_movemask_epi8(_mm_cmpeq_epi8(x, _mm_setzero_si128())) ^ 0xffff;
}

void UnpackSixteen(uint32_t bits, uint8_t* bytes) {
  const __m128i diagonal = _mm_set1_epi64x(static_cast<int64_t>(kDiagonal));
  __m128i x = _mm_cvtsi32_si128(static_cast<int>(bits));
  x = _mm_unpacklo_epi8(x, x);
  x = _mm_unpacklo_epi16(x, x);
  x = _mm_unpacklo_epi32(x, x);  // each of the two bytes eight times
  x = _mm_cmpeq_epi8(_mm_and_si128(x, diagonal), diagonal);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(bytes), _mm_and_si128(x, _mm_set1_epi8(1)));
}

#else

constexpr uint64_t kLowBits = 0x0101010101010101u;
constexpr uint64_t kLow7 = 0x7f7f7f7f7f7f7f7fu;

uint32_t PackEight(const uint8_t* bytes) {
  uint64_t x = 0;
  for (int i = 0; i < 8; ++i) x |= static_cast<uint64_t>(bytes[i]) << (8 * i);
  const uint64_t flags = ((((x & kLow7) + kLow7) | x) >> 7) & kLowBits;  // 1 for a nonzero byte
  return static_cast<uint32_t>((flags * 0x0102040810204080u) >> 56);
}

void UnpackEight(uint32_t byte, uint8_t* bytes) {
  const uint64_t spread = (byte * kLowBits) & kDiagonal;
  const uint64_t flags = ((spread + kLow7) >> 7) & kLowBits;
  for (int i = 0; i < 8; ++i) bytes[i] = static_cast<uint8_t>(flags >> (8 * i));
}

uint32_t PackSixteen(const uint8_t* bytes) { return PackEight(bytes) | PackEight(bytes + 8) << 8; }

void UnpackSixteen(uint32_t bits, uint8_t* bytes) {
  UnpackEight(bits & 0xffu, bytes);
  UnpackEight(bits >> 8 & 0xffu, bytes + 8);
}

#endif

uint32_t PackWord(const uint8_t* bytes) {
  return PackSixteen(bytes) | PackSixteen(bytes + 16) << 16;
}

void UnpackWord(uint32_t word, uint8_t* bytes) {
  UnpackSixteen(word & 0xffffu, bytes);
  UnpackSixteen(word >> 16, bytes + 16);
}

}  // namespace

void PackMask(const uint8_t* mask, int64_t rows, int64_t n, uint32_t* words) {
  const int64_t full = n / 32, rest = n % 32;
  for (int64_t row = 0; row < rows; ++row, mask += n) {
    for (int64_t w = 0; w < full; ++w) *words++ = PackWord(mask + 32 * w);
    if (rest == 0) continue;
    uint8_t tail[32] = {};
    std::memcpy(tail, mask + 32 * full, rest);
    *words++ = PackWord(tail);
  }
}

void UnpackMask(const uint32_t* words, int64_t rows, int64_t n, uint8_t* mask) {
  const int64_t full = n / 32, rest = n % 32;
  for (int64_t row = 0; row < rows; ++row, mask += n) {
    for (int64_t w = 0; w < full; ++w) UnpackWord(*words++, mask + 32 * w);
    if (rest == 0) continue;
    uint8_t tail[32];
    UnpackWord(*words++, tail);
    std::memcpy(mask + 32 * full, tail, rest);
  }
}

}  // namespace jaxsparse::cpu
