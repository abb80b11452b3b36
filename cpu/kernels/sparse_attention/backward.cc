#include "cpu/kernels/sparse_attention/backward.h"

#include <algorithm>
#include <cmath>
#include <new>

namespace jaxsparse {
namespace {

constexpr int64_t kMaxWorkers = 64;

int64_t KeyItems(const AttentionGradArgs& args) {
  return args.forward.shape.batch * args.forward.shape.kv_heads * args.by_key.rows;
}

int64_t Items(const AttentionGradArgs& args) {
  const AttentionShape& s = args.forward.shape;
  return KeyItems(args) + s.batch * s.heads * args.forward.by_query.rows;
}

}  // namespace

// Rows are queries, with their cotangents, and columns keys, with their values; or the other way
// round. `first` is of the depth of q and k, `second` of that of v.
struct AttentionGradJob::Worker {
  Worker(const AttentionShape& shape, const StripProducts& products, ScratchCarver carver)
      : columns(products.tiles(), products.convert(), products.width()),
        first_rows(carver, kMostBlockRows, shape.depth),
        second_rows(carver, kMostBlockRows, shape.v_depth),
        first(columns.Take(carver, shape.depth)),
        second(columns.Take(carver, shape.v_depth)),
        first_sums(carver.Take<float>(Checked(kMostBlockRows) * first.step)),
        second_sums(carver.Take<float>(Checked(kMostBlockRows) * second.step)),
        scores(carver.Take<float>(kMaxProductRows * kChunk)),
        slopes(carver.Take<float>(kMaxProductRows * kChunk)),
        bend(carver.Take<float>(kMaxProductRows * kChunk)),
        added(carver.Take<float>(kMaxProductRows * kChunk)),
        gout(carver.Take<float>(shape.v_depth)),
        out(carver.Take<float>(shape.v_depth)),
        bytes(carver.used().or_max()) {}

  void Clear(int64_t rows) const {
    std::fill(first_sums, first_sums + rows * first.step, 0.0f);
    std::fill(second_sums, second_sums + rows * second.step, 0.0f);
  }

  ColumnGather columns;
  RowStrips first_rows, second_rows;
  GatheredTokens first, second;
  float *first_sums, *second_sums, *scores, *slopes, *bend, *added, *gout, *out;
  float lse[kMostBlockRows], delta[kMostBlockRows];  // of rows, or of columns
  float row_at[kMostBlockRows], factor[kMostBlockRows];
  int64_t bytes;
};

AttentionGradJob::AttentionGradJob(const AttentionGradArgs& args, int64_t pool_workers)
    : args_(args), key_items_(KeyItems(args)), items_(Items(args)) {
  cap_ = args.forward.soft_cap > 0.0f ? args.forward.soft_cap : 0.0f;
  score_scale_ = cap_ > 0.0f ? args.forward.scale / cap_ : args.forward.scale;
  const AttentionShape& shape = args_.forward.shape;
  bytes_ = Worker(shape, products_, ScratchCarver(nullptr)).bytes + ScratchCarver::kAlign;
  const int64_t workers = std::clamp<int64_t>(Items(args), 1, std::min(pool_workers, kMaxWorkers));
  const Checked bytes = Checked(bytes_) * workers;
  scratch_.reset(new (std::nothrow) std::byte[static_cast<size_t>(bytes.or_max())]);
  if (scratch_ != nullptr) workers_ = workers;
}

void AttentionGradJob::Run(int64_t worker) {
  Worker w(args_.forward.shape, products_, ScratchCarver(scratch_.get() + worker * bytes_));
  for (int64_t item; items_.Next(&item);) {
    if (item < key_items_) {
      RunKeys(item, w);
    } else {
      RunQueries(item - key_items_, w);
    }
  }
}

TokenSource AttentionGradJob::Tokens(const void* at, bool of_queries, int64_t b, int64_t head,
                                     int64_t depth) const {
  const AttentionShape& s = args_.forward.shape;
  const int64_t length = of_queries ? s.q_len : s.kv_len;
  const int64_t heads = of_queries ? s.heads : s.kv_heads;
  const int64_t own = of_queries ? head : head / s.group();
  const void* from = ElementAt(at, (b * length * heads + own) * depth, args_.forward.type);
  return {from, args_.forward.type, heads * depth, depth};
}

// lse, 0 where a query keeps nothing, and delta of query `token`.
void AttentionGradJob::LoadStats(const Row& row, int64_t token, float* lse, float* delta,
                                 Worker& w) const {
  const AttentionShape& s = args_.forward.shape;
  const DType type = args_.forward.type;
  const int64_t at = (row.b * s.heads + row.head) * s.q_len + token;
  const int64_t from = ((row.b * s.q_len + token) * s.heads + row.head) * s.v_depth;
  products_.convert().to_f32(type, ElementAt(args_.gout, from, type), s.v_depth, w.gout);
  products_.convert().to_f32(type, ElementAt(args_.forward.out, from, type), s.v_depth, w.out);
  *lse = std::isinf(args_.forward.lse[at]) ? 0.0f : args_.forward.lse[at];
  *delta = products_.isa().dot(w.gout, w.out, s.v_depth);
  if (args_.glse != nullptr) *delta -= args_.glse[at];
}

void AttentionGradJob::RunQueries(int64_t item, Worker& w) const {
  const AttentionShape& s = args_.forward.shape;
  const BlockLists& lists = args_.forward.by_query;
  Row row = {
      item / lists.rows / s.heads, item / lists.rows % s.heads, 0, 0, &lists, item % lists.rows};
  row.first = row.block * lists.row_block;
  row.count = std::min(lists.row_block, s.q_len - row.first);
  const TokenSource q = Tokens(args_.forward.q, true, row.b, row.head, s.depth);
  const TokenSource gout = Tokens(args_.gout, true, row.b, row.head, s.v_depth);
  products_.Load(w.first_rows, q, row.first, row.count, score_scale_);
  products_.Load(w.second_rows, gout, row.first, row.count, 1.0f);
  for (int64_t r = 0; r < row.count; ++r) {
    LoadStats(row, row.first + r, w.lse + r, w.delta + r, w);
  }
  w.Clear(row.count);
  AddColumns(row, w);
  std::fill(w.factor, w.factor + row.count, args_.forward.scale);
  products_.Store(w.first_sums, w.first.step, w.factor,
                  Tokens(args_.dq, true, row.b, row.head, s.depth), row.first, row.count);
}

void AttentionGradJob::RunKeys(int64_t item, Worker& w) const {
  const AttentionShape& s = args_.forward.shape;
  const BlockLists& lists = args_.by_key;
  const int64_t kv_head = item / lists.rows % s.kv_heads;
  Row row = {item / lists.rows / s.kv_heads, kv_head * s.group(), 0, 0, &lists, item % lists.rows};
  row.first = row.block * lists.row_block;
  row.count = std::min(lists.row_block, s.kv_len - row.first);
  const TokenSource k = Tokens(args_.forward.k, false, row.b, row.head, s.depth);
  const TokenSource v = Tokens(args_.forward.v, false, row.b, row.head, s.v_depth);
  products_.Load(w.first_rows, k, row.first, row.count, score_scale_);
  products_.Load(w.second_rows, v, row.first, row.count, 1.0f);
  w.Clear(row.count);
  for (int64_t i = 0; i < s.group(); ++i, ++row.head) AddColumns(row, w);
  --row.head;
  std::fill(w.factor, w.factor + row.count, args_.forward.scale);
  products_.Store(w.first_sums, w.first.step, w.factor,
                  Tokens(args_.dk, false, row.b, row.head, s.depth), row.first, row.count);
  std::fill(w.factor, w.factor + row.count, 1.0f);
  products_.Store(w.second_sums, w.second.step, w.factor,
                  Tokens(args_.dv, false, row.b, row.head, s.v_depth), row.first, row.count);
}

// Adds what the columns that the row's list names give its sums.
void AttentionGradJob::AddColumns(const Row& row, Worker& w) const {
  const AttentionArgs& args = args_.forward;
  const AttentionShape& s = args.shape;
  const bool turned = row.lists->turned;
  const Additions more(args, row.b, row.head, turned);
  const bool plain = cap_ == 0.0f && more.slope == 0.0f && more.bias->at == nullptr;
  const TokenSource first = Tokens(turned ? args.q : args.k, turned, row.b, row.head, s.depth);
  const TokenSource second =
      Tokens(turned ? args_.gout : args.v, turned, row.b, row.head, s.v_depth);
  float* bend = cap_ > 0.0f ? w.bend : nullptr;
  for (int64_t r = 0; r < row.count; ++r) w.row_at[r] = static_cast<float>(row.first + r);
  w.columns.Start(*row.lists, args.words, row.lists->RowAt(row.b, row.head, row.block), row.count,
                  turned ? s.q_len : s.kv_len);
  while (w.columns.Next()) {
    w.columns.Load(first, w.first, true);
    w.columns.Load(second, w.second, true);
    for (int64_t c = 0; turned && c < w.columns.count(); ++c) {
      const int64_t token = w.columns.tokens()[c];
      w.lse[c] = w.delta[c] = 0.0f;
      if (token >= 0) LoadStats(row, token, w.lse + c, w.delta + c, w);
    }
    for (int64_t r = 0; r < row.count; r += products_.most_rows()) {
      const StripSize size = products_.Size(r, row.count, w.columns.count());
      products_.Scores(w.first_rows.At(r), size, s.depth, w.first, w.scores);
      products_.Scores(w.second_rows.At(r), size, s.v_depth, w.second, w.slopes);
      const uint16_t* bits = w.columns.bits();
      if (bits != nullptr) bits += r * kChunkBits;
      if (!plain || bits != nullptr) {
        const float* added = more.Load(size, row.first + r, w.columns, w.added);
        products_.isa().score({size, w.scores, cap_, bend, more.slope, w.row_at + r,
                               w.columns.tokens_as_float(), added, bits});
      }
      const int64_t at = turned ? 0 : r;
      products_.isa().gradient(
          {size, w.scores, w.slopes, bend, w.lse + at, w.delta + at, turned, bits});
      products_.AddTokens(w.slopes, size, w.first, nullptr, w.first_sums + r * w.first.step);
      if (!turned) continue;
      products_.AddTokens(w.scores, size, w.second, nullptr, w.second_sums + r * w.second.step);
    }
  }
}

}  // namespace jaxsparse
