// The choice of the executor's launcher, which checks the packed operands' sizes.
#include "cuda/ffi/pruned/decode.h"

#include "cuda/ffi/pruned/code.h"
#include "cuda/kernels/pruned_conv/launch.h"
#include "cuda/kernels/pruned_matmul/bitmap/launch.h"
#include "cuda/kernels/pruned_matmul/lanes/launch.h"
#include "cuda/kernels/pruned_matmul/pairs/launch.h"
#include "cuda/kernels/pruned_matmul/rows/launch.h"
#include "cuda/kernels/pruned_matmul/runs/launch.h"
#include "cuda/kernels/pruned_matmul/split/launch.h"
#include "cuda/kernels/pruned_matmul/vectors/launch.h"

namespace jaxsparse {
namespace {

cudaError_t LaunchExecutor(const PrunedArgs& args, const PrunedWay& way, cudaStream_t stream) {
  const ffi::DataType indices = way.indices;
  const bool own = way.values == way.x && !args.image;  // values of x's type, a product
  switch (way.executor) {
    case PrunedExecutor::kRows:
      if (way.values != ffi::DataType::F32 || indices != ffi::DataType::U16) break;
      if (args.channels_first) break;
      return LaunchPrunedRows(args, way.tile, way.block, stream);
    case PrunedExecutor::kBitmap:
      if (!own || indices != ffi::DataType::U32) break;
      return LaunchPrunedBitmap(args, way.parts, way.block, stream);
    case PrunedExecutor::kPairs:
      if (!own || indices != ffi::DataType::U32) break;
      return LaunchPrunedPairs(args, way.tile, way.parts, way.block, stream);
    case PrunedExecutor::kLanes:
      if (!own || indices != ffi::DataType::U16) break;
      return LaunchPrunedLanes(args, way.tile, way.parts, stream);
    case PrunedExecutor::kRuns:
      if (!own || indices != ffi::DataType::U16) break;
      return LaunchPrunedRuns(args, way.tile % 64, way.tile / 64, way.block, way.parts, stream);
    case PrunedExecutor::kVectors:
      if (!own || indices != ffi::DataType::U16) break;
      return LaunchPrunedVectors(args, way.tile, way.block, stream);
    case PrunedExecutor::kSplit:
      if (!own || indices != ffi::DataType::U16) break;
      return LaunchPrunedSplit(args, way.tile & 0xff, way.tile >> 8 & 0xfff, way.tile >> 20,
                               way.block, way.parts, stream);
    case PrunedExecutor::kCode:
      if (args.image) break;
      return LaunchPrunedCode(args, way.code, stream);
    case PrunedExecutor::kWindows:
      if (way.values != ffi::DataType::F32 || indices != ffi::DataType::U16) break;
      return LaunchPrunedWindows(args, {way.tile, way.block, way.parts, way.code}, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace

ffi::Error InitPruned(ffi::Dictionary attributes) {
  static OncePerDevice once;
  const cudaError_t error = once.Run([](int) {
    for (const auto prepare :
         {PreparePrunedRows, PreparePrunedBitmap, PreparePrunedPairs, PreparePrunedLanes,
          PreparePrunedRuns, PreparePrunedVectors, PreparePrunedWindows, PreparePrunedSplit}) {
      const cudaError_t failed = prepare();
      if (failed != cudaSuccess) return failed;
    }
    return cudaSuccess;
  });
  if (error != cudaSuccess) return CudaStatus("pruned", error);
  const auto executor = attributes.get<int64_t>("executor");
  const auto code = attributes.get<int64_t>("code");
  if (!executor.has_value() || !code.has_value()) {
    return ffi::Error::InvalidArgument("pruned: no executor is named");
  }
  if (*executor != static_cast<int64_t>(PrunedExecutor::kCode)) return ffi::Error::Success();
  const std::string wrong = PreparePrunedCode(*code);
  return wrong.empty() ? ffi::Error::Success() : ffi::Error::Internal("pruned: " + wrong);
}

ffi::Error LaunchPruned(const char* op, const PrunedArgs& args, const PrunedWay& way,
                        cudaStream_t stream) {
  const cudaError_t error = LaunchExecutor(args, way, stream);
  if (error == cudaErrorInvalidValue) {
    return Invalid(op, "packed operands do not fit the executor: " + TakeError(error));
  }
  if (error == cudaErrorNotSupported) {
    return Invalid(op,
                   "the packed operands were made for another GPU; this one has no clusters, or "
                   "too little shared memory: lower the program for this GPU");
  }
  return CudaStatus(op, error);
}

}  // namespace jaxsparse
