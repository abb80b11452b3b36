// Strips of rows, and the two products of attention: with the columns of gathered tokens, which
// gives scores, and of such scores with the tokens' rows.
#pragma once

#include <cstdint>

#include "cpu/core/scratch.h"
#include "cpu/kernels/sparse_attention/args.h"
#include "cpu/kernels/sparse_attention/columns.h"
#include "cpu/tile/attention/isa.h"
#include "cpu/tile/conv/isa.h"
#include "cpu/tile/matmul/isa.h"

namespace jaxsparse {

// Neighbouring tokens of a source as strips, in float32.
class RowStrips {
 public:
  RowStrips(ScratchCarver& carver, int64_t most_rows, int64_t depth);

  void Load(const TokenSource& source, int64_t first, int64_t count, float scale);

  // The strip that begins with row `row`, a multiple of the tile's rows.
  const float* At(int64_t row) const { return strips_ + row * padded_; }

 private:
  friend class StripProducts;
  float* strips_;
  int64_t padded_;  // floats of a row
};

class StripProducts {
 public:
  StripProducts();

  const AttentionIsa& isa() const { return isa_; }
  const ConvIsa& convert() const { return convert_; }
  const MatmulIsa& tiles() const { return tiles_; }
  int64_t width() const { return width_; }
  int64_t most_rows() const { return shape_.rows; }
  // The strip of rows [row, row + most_rows) of `rows`.
  StripSize Size(int64_t row, int64_t rows, int64_t columns) const;
  // Loads `count` rows from token `first` on, times `scale`.
  void Load(RowStrips& strips, const TokenSource& source, int64_t first, int64_t count,
            float scale) const;
  // scores[r][c] = strip row r times gathered token c.
  void Scores(const float* strip, const StripSize& size, int64_t depth,
              const GatheredTokens& tokens, float* scores) const;
  // sums[r] = sums[r] * factor[r] + sum over c of scores[r][c] * token c; a row of `sums` has
  // tokens.step floats. factor null: 1.
  void AddTokens(const float* scores, const StripSize& size, const GatheredTokens& tokens,
                 const float* factor, float* sums) const;
  // Stores rows of sums, each times its factor, as tokens [first, first + count) of `to`.
  void Store(float* sums, int64_t step, const float* factor, const TokenSource& to, int64_t first,
             int64_t count) const;

 private:
  const AttentionIsa& isa_;
  const ConvIsa& convert_;
  const MatmulIsa& tiles_;
  ProductShape shape_;
  int64_t width_;
};

// What is added to the scores of one head besides the product.
struct Additions {
  const BiasArray* bias;
  int64_t base;  // of the batch and head
  int64_t row_stride, column_stride;
  float slope;

  Additions(const AttentionArgs& args, int64_t b, int64_t head, bool turned);
  // The strip of biases of rows from token `first` on; null without a bias.
  const float* Load(const StripSize& size, int64_t first, const ColumnGather& columns,
                    float* strip) const;
};

}  // namespace jaxsparse
