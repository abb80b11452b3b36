// The weights of a convolution cut into panels: the columns of output channels that one register
// tile covers.
#pragma once

#include <cstdint>

#include "cpu/core/geometry.h"
#include "cpu/core/scratch.h"
#include "cpu/tile/conv/isa.h"

namespace jaxsparse {

struct WeightPanel {
  int64_t group;
  int64_t out;    // first output channel, of all
  int64_t width;  // output channels
  int vectors;    // 0: one partial vector
  const float* weights;
  int64_t tap_stride, step;  // floats from tap to tap, from input channel to input channel
};

class WeightPanels {
 public:
  // `vectors` per panel. Where `packed`, the panels are copied to scratch, as float32: first
  // Pack(i) for every panel.
  WeightPanels(const ConvGeometry& geometry, DType type, const void* kernel, const ConvIsa& isa,
               int vectors, bool packed, ScratchCarver& scratch);

  static Checked PackedFloats(const ConvGeometry& geometry);

  int64_t count() const { return geometry_.groups * per_group_; }
  int64_t bytes() const {
    return geometry_.taps() * geometry_.group_in() * vectors_ * isa_.lanes * 4;
  }
  bool packed() const { return packed_ != nullptr; }
  WeightPanel At(int64_t index) const;
  void Pack(int64_t index) const;

 private:
  const ConvGeometry& geometry_;
  DType type_;
  const void* kernel_;
  const ConvIsa& isa_;
  int vectors_;
  int64_t full_, rest_vectors_,
      per_group_;  // full panels, vectors of the panel after them, all panels of a group
  float* packed_;
};

}  // namespace jaxsparse
