#include "cpu/kernels/bounded_matmul/job.h"

#include <algorithm>

namespace jaxsparse {
BoundedMatmulJob::BoundedMatmulJob(const BoundedMatmulArgs& args, int64_t pool_workers)
    : args_(args), isa_(BoundedIsaOfMachine()) {
  Plan(args_.batch, std::max(args_.layer.n_in, args_.layer.distinct), args_.scratch,
       args_.scratch_bytes, pool_workers);
}

BoundedMatmulJob::Worker BoundedMatmulJob::Take(ScratchCarver& carver) const {
  Worker worker;
  worker.in = carver.Take<float>(args_.layer.n_in * tile());
  worker.out = carver.Take<float>(args_.layer.distinct * tile());
  worker.lowest = carver.Take<float>(tile());
  worker.highest = carver.Take<float>(tile());
  worker.taint = carver.Take<float>(tile());
  worker.rows = carver.Take<int32_t>(tile());
  return worker;
}

// The code that a whole row is proven to come out with, or kMixed.
uint8_t BoundedMatmulJob::Decided(int64_t row) const {
  const uint8_t* codes = args_.codes + row * args_.segments_in;
  if (args_.segments_in == 0 || (codes[0] != kZero && codes[0] != kUpper)) return kMixed;
  if (codes[0] == kZero ? !args_.zero_stays : !args_.keeps_upper) return kMixed;
  for (int64_t s = 1; s < args_.segments_in; ++s) {
    if (codes[s] != codes[0]) return kMixed;
  }
  return codes[0];
}

void BoundedMatmulJob::WriteDecided(int64_t row, uint8_t code) const {
  std::fill_n(args_.out_codes + row * args_.segments, args_.segments,
              args_.record ? code : static_cast<uint8_t>(kMixed));
  if (args_.record) return;
  std::fill_n(args_.out + row * args_.n_out, args_.n_out,
              code == kUpper ? args_.layer.upper : 0.0f);
}

void BoundedMatmulJob::RunTile(int64_t first, int64_t count, const Worker& worker) const {
  int64_t live = 0;
  for (int64_t row = first; row < first + count; ++row) {
    const uint8_t code = Decided(row);
    if (code == kMixed) {
      worker.rows[live++] = static_cast<int32_t>(row);
    } else {
      WriteDecided(row, code);
    }
  }
  if (live == 0) return;
  const int64_t images = BoundedBlockUp(live);
  Read(worker, live, images);
  isa_.multiply({args_.layer, worker.in, tile(), worker.out, tile(), images, worker.lowest,
                 worker.highest, worker.taint});
  for (int64_t c = 0; c < live; c += kBoundedBlock) {
    Write(worker, c, std::min(kBoundedBlock, live - c));
  }
}

// Rows become columns; a segment under a code is filled with what it stands for.
void BoundedMatmulJob::Read(const Worker& worker, int64_t count, int64_t images) const {
  const int64_t n_in = args_.layer.n_in;
  for (int64_t c = 0; c < images; ++c) {
    float* column = worker.in + c;
    if (c >= count) {
      for (int64_t i = 0; i < n_in; ++i) column[i * tile()] = 0.0f;
      continue;
    }
    const float* row = args_.values + worker.rows[c] * n_in;
    const uint8_t* codes = args_.codes + worker.rows[c] * args_.segments_in;
    for (int64_t s = 0; s < args_.segments_in; ++s) {
      const int64_t end = std::min((s + 1) * args_.segment_in, n_in);
      const bool set = codes[s] == kZero || codes[s] == kUpper;  // any other number is kMixed
      const float known = codes[s] == kUpper ? args_.upper_in : 0.0f;
      for (int64_t i = s * args_.segment_in; i < end; ++i) {
        column[i * tile()] = set ? known : row[i];
      }
    }
  }
}

// Up to sixteen columns become rows: first their codes, then the mixed segments' values.
void BoundedMatmulJob::Write(const Worker& worker, int64_t first, int64_t count) const {
  const float* block = worker.out + first;
  const int32_t* rows = worker.rows + first;
  for (int64_t s = 0; s < args_.segments; ++s) {
    const int64_t begin = s * args_.segment, end = std::min(begin + args_.segment, args_.n_out);
    int32_t not_zero[kBoundedBlock] = {}, not_upper[kBoundedBlock] = {};
    for (int64_t n = begin; args_.record && n < end; ++n) {
      const float* y = block + (args_.expand ? args_.expand[n] : n) * tile();
      for (int64_t c = 0; c < kBoundedBlock; ++c) {
        not_zero[c] |= y[c] != 0.0f;
        not_upper[c] |= y[c] != args_.layer.upper;
      }
    }
    for (int64_t c = 0; c < count; ++c) {
      uint8_t& code = args_.out_codes[rows[c] * args_.segments + s];
      code = !args_.record || (not_zero[c] && not_upper[c]) ? kMixed : not_zero[c] ? kUpper : kZero;
      if (code != kMixed) continue;
      float* out = args_.out + rows[c] * args_.n_out;
      for (int64_t n = begin; n < end; ++n) {
        out[n] = block[(args_.expand ? args_.expand[n] : n) * tile() + c];
      }
    }
  }
}

}  // namespace jaxsparse
