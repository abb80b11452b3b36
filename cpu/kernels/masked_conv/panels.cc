#include "cpu/kernels/masked_conv/panels.h"

#include <algorithm>

namespace jaxsparse {

// A partial vector is packed as a whole one; the widest vector bounds the padding.
Checked WeightPanels::PackedFloats(const ConvGeometry& g) {
  const int64_t padded = (g.group_out() + kMaxLanes - 1) / kMaxLanes * kMaxLanes;
  return Checked(g.taps()) * g.group_in() * g.groups * padded;
}

WeightPanels::WeightPanels(const ConvGeometry& geometry, DType type, const void* kernel,
                           const ConvIsa& isa, int vectors, bool packed, ScratchCarver& scratch)
    : geometry_(geometry), type_(type), kernel_(kernel), isa_(isa), vectors_(vectors) {
  const int64_t outputs = geometry.group_out(), panel = vectors * isa.lanes;
  full_ = outputs / panel;
  const int64_t rest = outputs - full_ * panel;
  rest_vectors_ = rest / isa.lanes;
  per_group_ = full_ + (rest_vectors_ > 0 ? 1 : 0) + (rest % isa.lanes != 0 ? 1 : 0);
  packed_ = packed ? scratch.Take<float>(PackedFloats(geometry)) : nullptr;
}

WeightPanel WeightPanels::At(int64_t index) const {
  const ConvGeometry& g = geometry_;
  const int64_t outputs = g.group_out(), lanes = isa_.lanes;
  const int64_t in_group = index % per_group_;
  int64_t first = std::min(in_group, full_) * vectors_ * lanes;
  int vectors = vectors_;
  int64_t width = vectors * lanes;
  if (in_group >= full_) {
    vectors = in_group == full_ ? static_cast<int>(rest_vectors_) : 0;
    if (in_group > full_) first += rest_vectors_ * lanes;
    width = vectors > 0 ? vectors * lanes : outputs - first;
  }
  WeightPanel panel;
  panel.group = index / per_group_;
  panel.out = panel.group * outputs + first;
  panel.width = width;
  panel.vectors = vectors;
  if (packed_ == nullptr) {
    panel.weights = static_cast<const float*>(kernel_) + panel.out;
    panel.step = g.out_c;
  } else {
    const int64_t padded = (outputs + lanes - 1) / lanes * lanes;
    panel.vectors = std::max(vectors, 1);
    panel.step = panel.vectors * lanes;
    panel.weights = packed_ + g.taps() * g.group_in() * (panel.group * padded + first);
  }
  panel.tap_stride = panel.step * g.group_in();
  return panel;
}

void WeightPanels::Pack(int64_t index) const {
  const WeightPanel panel = At(index);
  float* target = packed_ + (panel.weights - packed_);
  const int64_t depth = geometry_.taps() * geometry_.group_in();
  for (int64_t k = 0; k < depth; ++k, target += panel.step) {
    isa_.to_f32(type_, ElementAt(kernel_, k * geometry_.out_c + panel.out, type_), panel.width,
                target);
    std::fill(target + panel.width, target + panel.step, 0.0f);
  }
}

}  // namespace jaxsparse
