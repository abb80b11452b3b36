// What the two handlers of frozen weights decode alike.
#pragma once

#include "cuda/ffi/common.h"
#include "cuda/tile/pruned_args.h"

namespace jaxsparse {

enum class PrunedExecutor : int64_t {
  kRows = 16,
  kBitmap = 17,
  kVectors = 18,
  kCode = 19,
  kLanes = 20,
  kPairs = 21,
  kRuns = 23,
  kWindows = 24,
  kSplit = 25,
};

// The packed operands and the attributes of a call.
struct PrunedOperands {
  ffi::AnyBuffer x, values;
  ffi::BufferR1<ffi::F32> bias;
  ffi::BufferR1<ffi::S32> starts;
  ffi::AnyBuffer indices;
  ffi::BufferR1<ffi::S32> rows;
  ffi::BufferR1<ffi::U8> extra;
  ffi::Result<ffi::AnyBuffer> out;
  int64_t executor, activation, tile, block, parts, code;
};

// Loads every kernel, and the code that the call names; runs before every execution.
ffi::Error InitPruned(ffi::Dictionary attributes);

// Fills everything but m, k, n and the image, then launches the executor.
ffi::Error RunPruned(const char* op, cudaStream_t stream, const PrunedOperands& operands,
                     PrunedArgs args);

// What both handlers bind first: one list of operands, results and attributes.
inline auto BindPruned() {
  return ffi::Ffi::Bind()
      .Ctx<ffi::PlatformStream<cudaStream_t>>()
      .Arg<ffi::AnyBuffer>()           // x
      .Arg<ffi::AnyBuffer>()           // values
      .Arg<ffi::BufferR1<ffi::F32>>()  // bias
      .Arg<ffi::BufferR1<ffi::S32>>()  // starts
      .Arg<ffi::AnyBuffer>()           // indices
      .Arg<ffi::BufferR1<ffi::S32>>()  // rows
      .Arg<ffi::BufferR1<ffi::U8>>()   // extra
      .Ret<ffi::AnyBuffer>()           // out
      .Ret<ffi::BufferR1<ffi::U8>>()   // scratch
      .Attr<int64_t>("executor")
      .Attr<int64_t>("activation")
      .Attr<int64_t>("precision")
      .Attr<int64_t>("tile")
      .Attr<int64_t>("block")
      .Attr<int64_t>("parts")
      .Attr<int64_t>("code");
}

// InitPruned is given all attributes, whichever they are.
inline auto BindPrunedInit() { return ffi::Ffi::Bind<ffi::ExecutionStage::kInitialize>().Attrs(); }

}  // namespace jaxsparse
