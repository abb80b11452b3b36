#include "cpu/kernels/sparse_attention/forward.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <new>

namespace jaxsparse {
namespace {

constexpr int64_t kMaxWorkers = 64;

int64_t Items(const AttentionArgs& args) {
  return args.shape.batch * args.shape.heads * args.by_query.rows;
}

}  // namespace

struct AttentionJob::Worker {
  Worker(const AttentionArgs& args, const StripProducts& products, ScratchCarver carver)
      : columns(products.tiles(), products.convert(), products.width()),
        queries(carver, args.by_query.row_block, args.shape.depth),
        keys(columns.Take(carver, args.shape.depth)),
        values(columns.Take(carver, args.shape.v_depth)),
        sums(carver.Take<float>(Checked(args.by_query.row_block) * values.step)),
        scores(carver.Take<float>(kMaxProductRows * kChunk)),
        added(carver.Take<float>(kMaxProductRows * kChunk)),
        bytes(carver.used().or_max()) {}

  ColumnGather columns;
  RowStrips queries;
  GatheredTokens keys, values;
  float *sums, *scores, *added;
  float top[kMostBlockRows], total[kMostBlockRows], row_at[kMostBlockRows];
  int64_t bytes;
};

AttentionJob::AttentionJob(const AttentionArgs& args, int64_t pool_workers)
    : args_(args), items_(Items(args)) {
  bytes_ = Worker(args_, products_, ScratchCarver(nullptr)).bytes + ScratchCarver::kAlign;
  const int64_t workers = std::clamp<int64_t>(Items(args), 1, std::min(pool_workers, kMaxWorkers));
  const Checked bytes = Checked(bytes_) * workers;
  scratch_.reset(new (std::nothrow) std::byte[static_cast<size_t>(bytes.or_max())]);
  if (scratch_ != nullptr) workers_ = workers;
}

void AttentionJob::Run(int64_t worker) {
  Worker w(args_, products_, ScratchCarver(scratch_.get() + worker * bytes_));
  for (int64_t item; items_.Next(&item);) RunRow(item, w);
}

void AttentionJob::RunRow(int64_t item, Worker& w) const {
  const AttentionShape& s = args_.shape;
  const BlockLists& lists = args_.by_query;
  const int64_t block = item % lists.rows, head = item / lists.rows % s.heads;
  const int64_t b = item / lists.rows / s.heads, kv_head = head / s.group();
  const int64_t first = block * lists.row_block;
  const int64_t rows = std::min(lists.row_block, s.q_len - first);
  const auto tokens = [&](const void* at, int64_t length, int64_t heads, int64_t h, int64_t depth) {
    const void* from = ElementAt(at, (b * length * heads + h) * depth, args_.type);
    return TokenSource{from, args_.type, heads * depth, depth};
  };
  const TokenSource keys = tokens(args_.k, s.kv_len, s.kv_heads, kv_head, s.depth);
  const TokenSource values = tokens(args_.v, s.kv_len, s.kv_heads, kv_head, s.v_depth);
  const float cap = args_.soft_cap > 0.0f ? args_.soft_cap : 0.0f;
  products_.Load(w.queries, tokens(args_.q, s.q_len, s.heads, head, s.depth), first, rows,
                 cap > 0.0f ? args_.scale / cap : args_.scale);
  std::fill(w.top, w.top + rows, -std::numeric_limits<float>::infinity());
  std::fill(w.total, w.total + rows, 0.0f);
  std::fill(w.sums, w.sums + rows * w.values.step, 0.0f);
  for (int64_t r = 0; r < rows; ++r) w.row_at[r] = static_cast<float>(first + r);
  const Additions more(args_, b, head, false);
  const bool plain = cap == 0.0f && more.slope == 0.0f && more.bias->at == nullptr;
  w.columns.Start(lists, args_.words, lists.RowAt(b, head, block), rows, s.kv_len);
  while (w.columns.Next()) {
    w.columns.Load(keys, w.keys, true);
    w.columns.Load(values, w.values, false);
    for (int64_t row = 0; row < rows; row += products_.most_rows()) {
      const StripSize size = products_.Size(row, rows, w.columns.count());
      products_.Scores(w.queries.At(row), size, s.depth, w.keys, w.scores);
      const uint16_t* bits = w.columns.bits();
      if (bits != nullptr) bits += row * kChunkBits;
      if (!plain || bits != nullptr) {
        const float* added = more.Load(size, first + row, w.columns, w.added);
        products_.isa().score({size, w.scores, cap, nullptr, more.slope, w.row_at + row,
                               w.columns.tokens_as_float(), added, bits});
      }
      float shrink[kMaxProductRows];
      products_.isa().softmax({size, w.scores, w.top + row, w.total + row, shrink});
      products_.AddTokens(w.scores, size, w.values, shrink, w.sums + row * w.values.step);
    }
  }
  float* lse = args_.lse + (b * s.heads + head) * s.q_len + first;
  for (int64_t r = 0; r < rows; ++r) {
    lse[r] = w.top[r] + std::log(w.total[r]);  // -inf of nothing
    w.total[r] = w.total[r] == 0.0f ? 0.0f : 1.0f / w.total[r];
  }
  products_.Store(w.sums, w.values.step, w.total,
                  tokens(args_.out, s.q_len, s.heads, head, s.v_depth), first, rows);
}

}  // namespace jaxsparse
