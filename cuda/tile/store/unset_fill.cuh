// UnsetFill: the multiplying warps write the zeros of a result that starts as nothing, while the
// tensor cores are busy with what they gave them. One thread of each walks the warp's words of the
// mask and sends a strip of zeros from shared memory to a piece of the next run of unset pixels: a
// bulk copy of up to 4 KB, no L1, no waiting. Where runs of narrow pixels are short the whole warp
// stores as many bytes, lane by lane: a bulk copy takes as long for 128 bytes as for a kilobyte.
// Both are spread over the steps of the products: sent at once, the copies of the operands would
// queue behind them. What is left when the products are done goes out then.
//
// With `Shares`, for tiles whose waves are few and long, CTAs that have fewer tiles than others
// (SpareCtas) take more of the words: they write while the others multiply. Of every 64 words they
// get the first ones and the others the rest, and within both words go to CTAs in turn, so that
// shares are even whatever the mask looks like. The pixels whose bit is set are left to their
// tiles: no order between the two.
//
// No loop here is unrolled: this code stands in the loops over K, and with them must fit into the
// first instruction caches.
#pragma once

#include "cuda/core/async_copy.cuh"
#include "cuda/core/mbarrier.cuh"
#include "cuda/core/warpgroup.cuh"
#include "cuda/tile/conv/params.h"
#include "cuda/tile/conv/partial_tile.cuh"
#include "cuda/tile/conv/schedule.cuh"

namespace jaxsparse {

template <bool Shares>
class UnsetFill {
 public:
  static constexpr uint32_t kStripBytes = 4096;
  static constexpr int kBatch = 32;         // words of a warp that are read at once
  static constexpr uint32_t kPeriod = 64;   // words that are shared between spare CTAs and others
  static constexpr int kManyRuns = 4;       // of a word: from there on they are short
  static constexpr uint32_t kPiece = 512;   // bytes that a warp stores at once
  static constexpr uint32_t kNarrow = 256;  // bytes of the widest pixel that warps store

  // In shared memory: the multiplying warps have no registers to spare.
  struct alignas(128) Shared {
    uint8_t strip[kStripBytes];  // on a line: copies from elsewhere would cut lines of the target
    struct Place {
      char* target;           // of the next copy of the current run,
      uint32_t rest;          // and the bytes to go
      uint32_t pixel;         // the first of the current word,
      uint32_t unset;         // its unset bits that are left,
      uint32_t pieces;        // and whether the warp stores them itself
      uint32_t turn;          // the next word's number among those of such CTAs,
      uint32_t stride;        // of this warp's,
      uint32_t first, width;  // and which of a period those are
      uint32_t taken;         // words so far
      uint32_t interval;      // calls of Step for one copy
      uint32_t ahead[kBatch];
    } at[kConsumerWarps];

    // The multiplying threads, before they meet.
    __device__ void ClearStrip(int thread) {
      static_assert(kConsumerThreads * sizeof(uint4) == kStripBytes);
      reinterpret_cast<uint4*>(strip)[thread] = uint4{};
      ptx::FenceAsyncProxy();
    }
  };

  // Each multiplying warp. `steps`: how often it will call Step.
  __device__ UnsetFill(const ConvParams& p, Shared& shared, int lane, int64_t steps,
                       const SpareCtas& spare)
      : p_(p), shared_(shared), at_(shared.at[threadIdx.x / 32]), lane_(lane) {
    if (!p_.zero_fill) return;
    if (lane_ == 0) Begin(steps, spare);
    __syncwarp();
    wait_ = at_.interval;
  }

  // One copy, every so many calls; whole warps.
  __device__ __forceinline__ void Step() {
    if (--wait_ != 0) return;
    wait_ = at_.interval;
    Send();
  }

  // The rest; the strip may go when it returns.
  __device__ void Finish() {
    if (p_.zero_fill) {
      if (Narrow()) {
        while (__shfl_sync(~0u, Left(), 0)) Send();
      } else {
        while (Left()) Take(nullptr);
      }
      if (lane_ == 0) ptx::FinishBulkStores();
    }
    __syncwarp();  // a cluster's barrier takes whole warps
  }

 private:
  __device__ uint32_t RowWords() const { return (p_.out_w + 31) / 32; }
  __device__ uint32_t Words() const {
    return static_cast<uint32_t>(p_.batch) * p_.out_h * RowWords();
  }
  __device__ uint32_t PixelBytes() const { return p_.out_c * (p_.out_f32 ? 4 : 2); }
  __device__ bool Narrow() const { return !Shares && PixelBytes() <= kNarrow; }
  __device__ bool Left() const {
    return lane_ == 0 && (Word() < Words() || at_.unset != 0 || at_.rest != 0);
  }

  // The next word.
  __device__ uint32_t Word() const {
    const uint32_t turn = at_.turn;
    if constexpr (!Shares) return turn;
    const uint32_t period = turn / at_.width;
    return period * kPeriod + at_.first + turn - period * at_.width;
  }

  // How many words of a period the spare CTAs take: what fits beside the steps that they have less,
  // and their share of the others.
  __device__ uint32_t SpareShare(const SpareCtas& spare) const {
    if (!Shares || spare.ctas == 0) return 0;
    const float words = max(Words(), 1u);
    const float fits = __fdividef(spare.bytes, 32.0f * PixelBytes());
    const float extra = fminf(fits, words);
    const float share =
        __fdividef(extra + (words - extra) * __fdividef(spare.ctas, gridDim.x), words);
    return max(static_cast<uint32_t>(share * kPeriod + 0.5f), 1u);
  }

  __device__ void Begin(int64_t steps, const SpareCtas& spare) {
    uint32_t cta = blockIdx.x, ctas = gridDim.x;
    const uint32_t share = SpareShare(spare);
    const bool own = share != 0 && cta - spare.first < spare.ctas;
    if (share != 0) {
      ctas = own ? spare.ctas : ctas - spare.ctas;
      if (own || cta >= spare.first) cta -= own ? spare.first : spare.ctas;
    }
    at_.first = own ? 0 : share;
    at_.width = own ? share : max(kPeriod - share, 1u);
    at_.turn = share == kPeriod && !own ? Words() / kPeriod + 1 : cta + ctas * (threadIdx.x / 32);
    at_.stride = ctas * kConsumerWarps;
    at_.target = nullptr;
    at_.rest = at_.unset = at_.taken = 0;
    const uint32_t whole = Words() / kPeriod * at_.width + min(Words() % kPeriod, at_.width);
    const uint32_t mine = at_.turn < whole ? (whole - at_.turn - 1) / at_.stride + 1 : 0;
    const uint32_t copies = mine * ((32 * PixelBytes() + kStripBytes - 1) / kStripBytes);
    if (own) steps += spare.steps;
    // About: divisions that are exact, and of 64 bits, are calls.
    at_.interval = static_cast<uint32_t>(fmaxf(1.0f, __fdividef(steps, max(1u, copies))));
    LookAhead();
  }

  __device__ __forceinline__ void Send() {
    uint32_t bits = 0, pixel = 0;
    if (lane_ == 0) bits = Take(&pixel);
    if (!Narrow()) return;
    bits = __shfl_sync(~0u, bits, 0);
    if (bits != 0) StorePieces(__shfl_sync(~0u, pixel, 0), bits);
  }

  // One lane: sends a strip and returns 0, or returns which pixels from `*pixel` on are the warp's.
  __device__ __forceinline__ uint32_t Take(uint32_t* pixel) {
    if (at_.rest == 0) {
      if (at_.unset == 0) TakeWord();
      if (at_.unset == 0) return 0;
      if (at_.pieces) return TakePieces(pixel);
      TakeRun();
    }
    const uint32_t bytes = min(at_.rest, kStripBytes);
    ptx::StoreBulk(at_.target, ptx::SharedAddress(shared_.strip), bytes);
    at_.target += bytes;
    at_.rest -= bytes;
    return 0;
  }

  __device__ void TakeWord() {
    const uint32_t word = Word();
    if (word >= Words()) return;
    const uint32_t place = at_.taken++ % kBatch;
    if (place == 0 && at_.taken > 1) LookAhead();
    if (place == 0) ptx::WaitForCopies();
    uint32_t pixel = word * 32, width = 32;
    if (p_.out_w % 32 != 0) {
      const uint32_t row = word / RowWords(), first = (word - row * RowWords()) * 32;
      pixel = row * p_.out_w + first;
      width = min(p_.out_w - first, 32u);
    }
    const uint32_t unset = ~at_.ahead[place] & 0xFFFFFFFFu >> (32 - width);
    at_.unset = unset;
    at_.pieces = Narrow() && __popc(unset & ~(unset << 1)) >= kManyRuns;
    at_.pixel = pixel;
    at_.turn += at_.stride;
  }

  // The words from the next one on.
  __device__ void LookAhead() {
    const uint32_t words = Words(), stride = at_.stride;
    // turn = period * width + rest; without shares `rest` is the word. Divisions take long.
    const uint32_t width = Shares ? at_.width : ~0u;
    uint32_t period = Shares ? at_.turn / width : 0, rest = at_.turn - period * width;
    const uint32_t periods = Shares ? stride / width : 0, step = stride - periods * width;
#pragma unroll 1
    for (int i = 0; i < kBatch; ++i) {
      const uint32_t word = Shares ? period * kPeriod + at_.first + rest : rest;
      if (word >= words) return;
      ptx::CopyAsync4(ptx::SharedAddress(&at_.ahead[i]), p_.words + word);
      period += periods;
      rest += step;
      if (rest >= width) rest -= width, ++period;
    }
  }

  // The lowest run of set bits in `unset`.
  __device__ void TakeRun() {
    const uint32_t unset = at_.unset;
    const uint32_t begin = __ffs(unset) - 1;
    const uint32_t after = unset + (1u << begin);  // the carry goes to the bit behind the run
    const uint32_t end = after == 0 ? 32 : __ffs(after & ~unset) - 1;
    at_.target =
        static_cast<char*>(p_.out) + static_cast<int64_t>(at_.pixel + begin) * PixelBytes();
    at_.rest = (end - begin) * PixelBytes();
    at_.unset = unset & after;
  }

  // Pixels of a strip's bytes.
  __device__ uint32_t PiecePixels() const { return min(kStripBytes / PixelBytes(), 32u); }

  // The lowest bits of `unset`, from the first set one on.
  __device__ uint32_t TakePieces(uint32_t* pixel) {
    const uint32_t unset = at_.unset, begin = __ffs(unset) - 1;
    const uint32_t here = 0xFFFFFFFFu >> (32 - PiecePixels());
    *pixel = at_.pixel + begin;
    at_.unset = unset & ~(here << begin);
    return unset >> begin & here;
  }

  __device__ void StorePieces(uint32_t pixel, uint32_t bits) const {
    const uint32_t bytes = PixelBytes(), all = PiecePixels() * bytes;
    char* out = static_cast<char*>(p_.out) + static_cast<int64_t>(pixel) * bytes;
#pragma unroll 1
    for (uint32_t at = lane_ * 16; at < all; at += kPiece) {
      if (bits >> (at / bytes) & 1) __stcs(reinterpret_cast<uint4*>(out + at), uint4{});
    }
  }

  const ConvParams& p_;
  Shared& shared_;
  typename Shared::Place& at_;
  const int lane_;
  uint32_t wait_ = 0;  // calls to the next copy; 0 counts as never
};

}  // namespace jaxsparse
