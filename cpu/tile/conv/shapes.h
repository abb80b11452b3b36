// Fills one instruction set's table. Include after one vec_*.h.
#pragma once

#include "cpu/tile/conv/finish.h"
#include "cpu/tile/conv/isa.h"
#include "cpu/tile/conv/product.h"

namespace {

using jaxsparse::ConvIsa;

template <int V, int R>
void AddShape(ConvIsa& isa) {
  isa.conv[V][R] = MultiplyTile<R, V>;
  isa.dkernel[V][R] = MultiplyDkernelTile<R, V>;
}

template <int V, int... R>
void AddShapes(ConvIsa& isa) {
  (AddShape<V, R>(isa), ...);
}

// Every row count below a variant's must be coverable: 1 is always there, and the steps keep the
// waste small.
ConvIsa MakeTable() {
  ConvIsa isa = {};
  isa.name = Vec::kName;
  isa.lanes = Vec::kLanes;
  isa.wide_file = Vec::kWideFile;
  AddShapes<0, 1, 2, 4, 8, 12>(isa);
  AddShapes<1, 1, 2, 4, 8, 12>(isa);
  if constexpr (Vec::kWideFile) {
    AddShapes<2, 1, 2, 4, 8, 12>(isa);
    AddShapes<3, 1, 2, 4, 8>(isa);
    AddShapes<4, 1, 2, 4, 6>(isa);
  } else {
    AddShapes<2, 1, 2, 4, 6>(isa);
    AddShapes<3, 1, 2, 4>(isa);
  }
  isa.depthwise[0][1] = MultiplyDepthwiseTile<1, 0>;
  isa.depthwise[0][4] = MultiplyDepthwiseTile<4, 0>;
  isa.depthwise[1][1] = MultiplyDepthwiseTile<1, 1>;
  isa.depthwise[1][4] = MultiplyDepthwiseTile<4, 1>;
  isa.depthwise[2][1] = MultiplyDepthwiseTile<1, 2>;
  isa.depthwise[2][4] = MultiplyDepthwiseTile<4, 2>;
  isa.depthwise_dkernel[0] = MultiplyDepthwiseDkernelTile<0>;
  isa.depthwise_dkernel[1] = MultiplyDepthwiseDkernelTile<1>;
  isa.depthwise_dkernel[4] = MultiplyDepthwiseDkernelTile<4>;
  isa.finish = Finish;
  isa.to_f32 = ToF32;
  return isa;
}

}  // namespace
