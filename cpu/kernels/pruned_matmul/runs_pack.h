// Packs kept weights into runs of 16 for the CUDA executor `runs` (docs/kernels/pruned_gpu.md): a
// pattern of millions of entries in a fraction of a second. Host code: no handler calls it.
#pragma once

#include <cstdint>

namespace jaxsparse {

inline constexpr int kPackEntries = 16;  // of a run

// A pattern, and how its runs are laid out. A stream is what an output keeps in one part.
struct RunsPattern {
  const int32_t* indptr;    // [outputs + 1]
  const int32_t* indices;   // ascending within an output
  int64_t outputs, inputs;  // inputs of a part
  int64_t parts;
  int units;  // of 16 bytes that 8 neighbouring inputs take in shared memory: 2, 4 or 8
  int bits;   // of a place: 4 or 8
};

// Where runs go: run r of stream s lies in block[s], chunk r % chunks, thread[s] + r / chunks.
struct RunsSlots {
  const int64_t *block, *thread;
  int64_t blocks, chunks, threads;
};

// Packed arrays, zeroed, `order` all -1.
struct RunsArrays {
  uint16_t* bases;  // [blocks, chunks, threads]
  uint8_t* places;  // [blocks, chunks, threads, 2 * bits]
  int32_t* order;   // [blocks, chunks, 2, threads, 8]
};

// Writes how many runs each stream takes.
void CountRuns(const RunsPattern& pattern, int64_t* counts);

// Fills the arrays. With 8 bits a place the entries of a run are ordered so that the `lanes`
// threads that load together use different banks, as far as a greedy choice finds.
void PlaceRuns(const RunsPattern& pattern, const RunsSlots& slots, int lanes,
               const RunsArrays& arrays);

}  // namespace jaxsparse
