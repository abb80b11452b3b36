#include "cpu/kernels/sparse_ffn/network.h"

#include <algorithm>
#include <new>

#include "cpu/kernels/sparse_ffn/lists.h"

namespace jaxsparse {
namespace {

constexpr int64_t kLeastPanel = 64, kMostPanel = 512;
constexpr int64_t kBlockBytes = 64 << 10;  // of rows that are taken together: near in memory
// A multiply-add of tokens together takes this share of the time of one of a token alone.
constexpr double kTogether = 0.4;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Columns of an item: three for each worker where a matrix is that wide.
int64_t PanelOf(int64_t columns, int64_t workers) {
  const int64_t wanted = CeilDiv(CeilDiv(columns, 3 * workers), kLeastPanel) * kLeastPanel;
  return std::clamp(wanted, kLeastPanel, kMostPanel);
}

int64_t BlockOf(int64_t columns, int64_t bytes) {
  return std::clamp<int64_t>(kBlockBytes / (columns * bytes), 16, 256);
}

const std::byte* At(const void* data, int64_t element, DType type) {
  return static_cast<const std::byte*>(data) + element * SizeOf(type);
}

}  // namespace

FfnJob::FfnJob(const FfnArgs& args, int64_t pool_workers)
    : a_(args),
      up_panel_(PanelOf(args.hidden, pool_workers)),
      down_panel_(PanelOf(args.outputs, pool_workers)),
      activations_(CeilDiv(args.hidden, up_panel_)),
      lists_(CeilDiv(args.tokens, kFfnMostTogether)),
      sums_(CeilDiv(args.outputs, down_panel_)) {
  ScratchCarver size(nullptr);
  Carve(size);
  const Checked bytes = size.used() + ScratchCarver::kAlign;
  scratch_.reset(new (std::nothrow) std::byte[static_cast<size_t>(bytes.or_max())]);
  if (scratch_ == nullptr) return;
  ScratchCarver carver(scratch_.get());
  Carve(carver);
  isa_.load(a_.x, a_.type, a_.tokens * a_.depth, x_);
  const int64_t items = std::max(CeilDiv(a_.hidden, up_panel_), CeilDiv(a_.outputs, down_panel_));
  workers_ = std::clamp<int64_t>(items, 1, pool_workers);
}

void FfnJob::Carve(ScratchCarver& carver) {
  const Checked all = Checked(a_.tokens) * a_.hidden;
  x_ = carver.Take<float>(Checked(a_.tokens) * a_.depth);
  h_ = carver.Take<float>(all);
  values_ = carver.Take<float>(all);
  rows_ = carver.Take<int32_t>(all);
  some_ = carver.Take<uint8_t>(Checked(CeilDiv(a_.tokens, kFfnMostTogether)) * a_.hidden);
}

void FfnJob::Run(int64_t) {
  activations_.Run([&](int64_t item) { Activate(item); });
  lists_.Run([&](int64_t item) { List(item); });
  sums_.Run([&](int64_t item) { Sum(item); });
}

// One panel of the first product, or of both with a gate, and of the activations.
void FfnJob::Activate(int64_t panel) {
  const int64_t column = panel * up_panel_, columns = std::min(up_panel_, a_.hidden - column);
  float pre[kFfnMostTokens * kMostPanel];
  std::fill(pre, pre + a_.tokens * columns, 0.0f);
  const void* first = a_.w_gate != nullptr ? a_.w_gate : a_.w_up;
  if (first != nullptr) {
    AddDense(first, column, columns, pre, columns);
  } else {
    DotUp(column, columns, nullptr, pre);
  }
  // Every product, and every step of the activation, is rounded to the operands' type.
  alignas(64) float rounded[kMostPanel];
  const auto round = [&](float* at) {
    if (a_.type == DType::kF32) return;
    isa_.store(at, a_.type, columns, rounded);
    isa_.load(rounded, a_.type, columns, at);
  };
  for (int64_t t = 0; t < a_.tokens; ++t) {
    float* const at = pre + t * columns;
    round(at);
    for (int64_t c = 0; c < columns; ++c) at[c] = at[c] <= 0.0f ? 0.0f : at[c];
    if (!a_.squared) continue;
    for (int64_t c = 0; c < columns; ++c) at[c] *= at[c];
    round(at);
  }
  float up[kFfnMostTokens * kMostPanel];
  if (a_.w_gate != nullptr) {
    a_.w_up != nullptr ? AddUp(column, columns, pre, up) : DotUp(column, columns, pre, up);
  }
  for (int64_t t = 0; t < a_.tokens; ++t) {
    float* const at = pre + t * columns;
    if (a_.w_gate != nullptr) {
      round(up + t * columns);
      for (int64_t c = 0; c < columns; ++c) {
        at[c] = at[c] == 0.0f ? 0.0f : at[c] * up[t * columns + c];
      }
      round(at);
    }
    std::copy(at, at + columns, h_ + t * a_.hidden + column);
  }
}

// The cache lines of w_up's columns at which some token's gate is open; the others stay 0. Single
// lines of far rows take about twice as long as a panel does for each: from half of them on, all.
void FfnJob::AddUp(int64_t column, int64_t columns, const float* gate, float* up) const {
  std::fill(up, up + a_.tokens * columns, 0.0f);
  const int64_t line = 64 / SizeOf(a_.type);
  const auto open = [&](int64_t from) {
    const int64_t end = std::min(from + line, columns);
    for (int64_t t = 0; t < a_.tokens; ++t) {
      for (int64_t c = from; c < end; ++c) {
        if (gate[t * columns + c] != 0.0f) return true;
      }
    }
    return false;
  };
  int64_t lines = 0;
  for (int64_t from = 0; from < columns; from += line) lines += open(from);
  if (2 * lines * line >= columns) return AddDense(a_.w_up, column, columns, up, columns);
  for (int64_t from = 0, end; from < columns; from = end) {
    end = std::min(from + line, columns);
    if (!open(from)) continue;
    while (end < columns && open(end)) end = std::min(end + line, columns);
    AddDense(a_.w_up, column + from, end - from, up + from, columns);
  }
}

// The rows of w_up_t at which some token's gate is open, all without a gate; the others stay 0.
void FfnJob::DotUp(int64_t column, int64_t columns, const float* gate, float* up) const {
  std::fill(up, up + a_.tokens * columns, 0.0f);
  int32_t rows[kMostPanel];
  int64_t count = 0;
  for (int32_t c = 0; c < columns; ++c) {
    bool open = gate == nullptr;
    for (int64_t t = 0; t < a_.tokens; ++t) open |= gate != nullptr && gate[t * columns + c] != 0;
    if (open) rows[count++] = c;
  }
  for (int64_t t = 0; t < a_.tokens; t += kFfnMostTogether) {
    isa_.dot_rows({rows, count, std::min(kFfnMostTogether, a_.tokens - t), x_ + t * a_.depth,
                   a_.depth, At(a_.w_up_t, column * a_.depth, a_.type), a_.type, a_.depth, a_.depth,
                   up + t * columns, columns});
  }
}

// sums[t * stride + c] += x[t] @ w[:, column + c]: a block of rows at a time for all tokens.
void FfnJob::AddDense(const void* w, int64_t column, int64_t columns, float* sums,
                      int64_t stride) const {
  const int64_t block = BlockOf(columns, SizeOf(a_.type));
  for (int64_t row = 0; row < a_.depth; row += block) {
    const int64_t rows = std::min(block, a_.depth - row);
    for (int64_t t = 0; t < a_.tokens; t += kFfnMostTogether) {
      isa_.add_rows({nullptr, rows, std::min(kFfnMostTogether, a_.tokens - t),
                     x_ + t * a_.depth + row, a_.depth, At(w, row * a_.hidden + column, a_.type),
                     a_.type, a_.hidden, columns, sums + t * stride, stride});
    }
  }
}

// The list of each token of a group, or one of the rows that some of them need.
void FfnJob::List(int64_t group) {
  const int64_t first = group * kFfnMostTogether;
  const int64_t tokens = std::min(kFfnMostTogether, a_.tokens - first);
  float* const h = h_ + first * a_.hidden;
  float* const values = values_ + first * a_.hidden;
  int32_t* const rows = rows_ + first * a_.hidden;
  int64_t listed = 0;
  for (int64_t t = 0; t < tokens; ++t) {
    const int64_t at = t * a_.hidden;
    int64_t found = ListNonZero(h + at, a_.hidden, rows + at);
    if (a_.top_k > 0) found = KeepLargest(h + at, found, a_.top_k, rows + at, values + at);
    for (int64_t i = 0; i < found; ++i) values[at + i] = h[at + rows[at + i]];
    found_[first + t] = found;
    listed += found;
  }
  if (tokens == 1) return;
  // Back as rows of zeros with what was listed, and a row of all of it.
  uint8_t* const some = some_ + group * a_.hidden;
  std::fill(some, some + a_.hidden, uint8_t{0});
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t i = 0; i < found_[first + t]; ++i) some[rows[t * a_.hidden + i]] = 1;
  }
  int64_t either = 0;
  for (int64_t r = 0; r < a_.hidden; ++r) either += some[r];
  if (static_cast<double>(either * tokens) * kTogether > static_cast<double>(listed)) return;
  for (int64_t t = 0; t < tokens; ++t) {
    const int64_t at = t * a_.hidden;
    std::fill(h + at, h + at + a_.hidden, 0.0f);
    for (int64_t i = 0; i < found_[first + t]; ++i) h[at + rows[at + i]] = values[at + i];
  }
  int64_t place = 0;
  for (int32_t r = 0; r < a_.hidden; ++r) {
    if (some[r] == 0) continue;
    for (int64_t t = 0; t < tokens; ++t) values[t * a_.hidden + place] = h[t * a_.hidden + r];
    rows[place++] = r;
  }
  found_[first] = either;
  together_[group] = true;
}

// One panel of the result: a block of rows at a time, so that tokens that share one read it once.
void FfnJob::Sum(int64_t panel) const {
  const int64_t column = panel * down_panel_, columns = std::min(down_panel_, a_.outputs - column);
  float sums[kFfnMostTokens * kMostPanel];
  std::fill(sums, sums + a_.tokens * columns, 0.0f);
  // So many rows that the longest list has a block of them.
  const int64_t longest = *std::max_element(found_, found_ + a_.tokens);
  const int64_t block =
      BlockOf(columns, SizeOf(a_.type)) * a_.hidden / std::max<int64_t>(1, longest);
  const void* const w = At(a_.w_down, column, a_.type);
  int64_t begin[kFfnMostTokens] = {};
  for (int64_t row = 0; row < a_.hidden; row += block) {
    for (int64_t t = 0, some; t < a_.tokens; t += some) {
      some = together_[t / kFfnMostTogether] ? std::min(kFfnMostTogether, a_.tokens - t) : 1;
      const int32_t* const rows = rows_ + t * a_.hidden;
      int64_t end = begin[t];
      while (end < found_[t] && rows[end] < row + block) ++end;
      if (end == begin[t]) continue;
      isa_.add_rows({rows + begin[t], end - begin[t], some, values_ + t * a_.hidden + begin[t],
                     a_.hidden, w, a_.type, a_.outputs, columns, sums + t * columns, columns});
      begin[t] = end;
    }
  }
  for (int64_t t = 0; t < a_.tokens; ++t) {
    const int64_t at = t * a_.outputs + column;
    isa_.store(sums + t * columns, a_.type, columns,
               static_cast<std::byte*>(a_.y) + at * SizeOf(a_.type));
  }
}

}  // namespace jaxsparse
