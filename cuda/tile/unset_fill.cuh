// UnsetFill: the multiplying warps write the zeros of a result that starts as nothing, while the
// tensor cores are busy with what they gave them. One thread of each walks the warp's words of the
// mask and sends a strip of zeros from shared memory to a piece of the next run of unset pixels: a
// bulk copy of up to 4 KB, no L1, no waiting. The copies are spread over the steps of the products:
// sent at once, the copies of the operands would queue behind them. What is left when the products
// are done goes out then.
//
// Words go to CTAs in turn, so that the share of every multiprocessor is the same whatever the mask
// looks like. The pixels whose bit is set are left to their tiles: no order between the two.
#pragma once

#include "cuda/core/async_copy.cuh"
#include "cuda/core/mbarrier.cuh"
#include "cuda/core/warpgroup.cuh"
#include "cuda/tile/conv_params.h"
#include "cuda/tile/partial_tile.cuh"

namespace jaxsparse {

class UnsetFill {
 public:
  static constexpr uint32_t kStripBytes = 4096;
  static constexpr int kBatch = 32;  // words of a warp that are read at once

  // In shared memory: the multiplying warps have no registers to spare.
  struct alignas(128) Shared {
    uint8_t strip[kStripBytes];  // on a line: copies from elsewhere would cut lines of the target
    struct Place {
      char* target;       // of the next copy of the current run,
      uint32_t rest;      // and the bytes to go
      uint32_t pixel;     // the first of the current word,
      uint32_t unset;     // and its unset bits behind that run
      uint32_t word;      // the next word's number,
      uint32_t taken;     // and how many came before it
      uint32_t interval;  // calls of Step for one copy
      uint32_t ahead[kBatch];
    } at[kConsumerWarps];

    // All threads of the CTA, before they meet.
    __device__ void ClearStrip(int thread, int threads) {
      for (uint32_t i = thread * 16; i < kStripBytes; i += threads * 16) {
        *reinterpret_cast<uint4*>(strip + i) = uint4{};
      }
      ptx::FenceAsyncProxy();
    }
  };

  // Each multiplying warp. `steps`: how often it will call Step.
  __device__ UnsetFill(const ConvParams& p, Shared& shared, int64_t steps)
      : p_(p), shared_(shared), at_(shared.at[threadIdx.x / 32]) {
    if (!Fills()) return;
    const uint32_t word = blockIdx.x + gridDim.x * (threadIdx.x / 32);
    const uint32_t mine = word < Words() ? (Words() - word - 1) / Stride() + 1 : 0;
    const uint32_t copies = mine * ((32 * PixelBytes() + kStripBytes - 1) / kStripBytes);
    at_.target = nullptr;
    at_.rest = at_.unset = at_.taken = 0;
    at_.word = word;
    at_.interval = static_cast<uint32_t>(max(int64_t{1}, steps / max(1u, copies)));
    wait_ = at_.interval;
    LookAhead();
  }

  // One copy, every so many calls.
  __device__ __forceinline__ void Step() {
    if (--wait_ != 0) return;
    wait_ = at_.interval;
    Send();
  }

  // The rest; the strip may go when it returns.
  __device__ void Finish() {
    if (Fills()) {
      while (at_.word < Words() || at_.unset != 0 || at_.rest != 0) Send();
      ptx::FinishBulkStores();
    }
    __syncwarp();  // a cluster's barrier takes whole warps
  }

 private:
  __device__ bool Fills() const { return p_.zero_fill && threadIdx.x % 32 == 0; }
  __device__ uint32_t RowWords() const { return (p_.out_w + 31) / 32; }
  __device__ uint32_t Words() const {
    return static_cast<uint32_t>(p_.batch) * p_.out_h * RowWords();
  }
  __device__ uint32_t PixelBytes() const { return p_.out_c * (p_.out_f32 ? 4 : 2); }
  __device__ static uint32_t Stride() { return gridDim.x * kConsumerWarps; }

  __device__ __forceinline__ void Send() {
    if (at_.rest == 0) {
      if (at_.unset == 0) TakeWord();
      if (at_.unset == 0) return;
      TakeRun();
    }
    const uint32_t bytes = min(at_.rest, kStripBytes);
    ptx::StoreBulk(at_.target, ptx::SharedAddress(shared_.strip), bytes);
    at_.target += bytes;
    at_.rest -= bytes;
  }

  __device__ void TakeWord() {
    if (at_.word >= Words()) return;
    const uint32_t place = at_.taken++ % kBatch;
    if (place == 0 && at_.taken > 1) LookAhead();
    if (place == 0) ptx::WaitForCopies();
    const uint32_t row = at_.word / RowWords();
    const uint32_t first = (at_.word - row * RowWords()) * 32;
    at_.unset = ~at_.ahead[place] & 0xFFFFFFFFu >> (32 - min(p_.out_w - first, 32u));
    at_.pixel = row * p_.out_w + first;
    at_.word += Stride();
  }

  // The words from the next one on.
  __device__ void LookAhead() {
    uint32_t word = at_.word;
    for (int i = 0; i < kBatch && word < Words(); ++i, word += Stride()) {
      ptx::CopyAsync4(ptx::SharedAddress(&at_.ahead[i]), p_.words + word);
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

  const ConvParams& p_;
  Shared& shared_;
  Shared::Place& at_;
  uint32_t wait_ = 0;  // calls to the next copy; 0 counts as never
};

}  // namespace jaxsparse
