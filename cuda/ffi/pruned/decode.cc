// Checks of the packed operands, and the choice of the executor's launcher.
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

int64_t Count(const ffi::AnyBuffer& buffer) { return static_cast<int64_t>(buffer.element_count()); }

cudaError_t LaunchExecutor(const PrunedOperands& operands, const PrunedArgs& args,
                           ffi::DataType values, ffi::DataType indices, cudaStream_t stream) {
  const bool own = values == operands.x.element_type() && !args.image;  // x's type, a product
  switch (static_cast<PrunedExecutor>(operands.executor)) {
    case PrunedExecutor::kRows:
      if (values != ffi::DataType::F32 || indices != ffi::DataType::U16) break;
      if (args.channels_first) break;
      return LaunchPrunedRows(args, operands.tile, operands.block, stream);
    case PrunedExecutor::kBitmap:
      if (!own || indices != ffi::DataType::U32) break;
      return LaunchPrunedBitmap(args, operands.parts, operands.block, stream);
    case PrunedExecutor::kPairs:
      if (!own || indices != ffi::DataType::U32) break;
      return LaunchPrunedPairs(args, operands.tile, operands.parts, operands.block, stream);
    case PrunedExecutor::kLanes:
      if (!own || indices != ffi::DataType::U16) break;
      return LaunchPrunedLanes(args, operands.tile, operands.parts, stream);
    case PrunedExecutor::kRuns:
      if (!own || indices != ffi::DataType::U16) break;
      return LaunchPrunedRuns(args, operands.tile % 64, operands.tile / 64, operands.block,
                              operands.parts, stream);
    case PrunedExecutor::kVectors:
      if (!own || indices != ffi::DataType::U16) break;
      return LaunchPrunedVectors(args, operands.tile, operands.block, stream);
    case PrunedExecutor::kSplit:
      if (!own || indices != ffi::DataType::U16) break;
      return LaunchPrunedSplit(args, operands.tile & 0xff, operands.tile >> 8 & 0xfff,
                               operands.tile >> 20, operands.block, operands.parts, stream);
    case PrunedExecutor::kCode:
      if (args.image) break;
      return LaunchPrunedCode(args, operands.code, stream);
    case PrunedExecutor::kWindows:
      if (values != ffi::DataType::F32 || indices != ffi::DataType::U16) break;
      return LaunchPrunedWindows(
          args, {operands.tile, operands.block, operands.parts, operands.code}, stream);
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

ffi::Error RunPruned(const char* op, cudaStream_t stream, const PrunedOperands& o,
                     PrunedArgs args) {
  ffi::AnyBuffer out = *ffi::Result<ffi::AnyBuffer>(o.out);
  const auto in_type = ToDType(o.x.element_type()), out_type = ToDType(out.element_type());
  const int64_t biases = static_cast<int64_t>(o.bias.element_count());
  if (!in_type || !out_type || (*out_type != DType::kF32 && *out_type != *in_type) ||
      o.activation < 0 || o.activation > static_cast<int64_t>(Activation::kGelu) ||
      (biases != 0 && biases != args.n) || o.block < 0 || args.k > (int64_t{1} << 30) ||
      args.n > (int64_t{1} << 30)) {
    return Invalid(op, "operands, results and attributes disagree");
  }
  if (args.m == 0 || args.n == 0) return ffi::Error::Success();
  args.in_type = *in_type;
  args.out_type = *out_type;
  args.activation = static_cast<Activation>(o.activation);
  args.x = o.x.untyped_data();
  args.values = o.values.untyped_data();
  args.bias = biases > 0 ? o.bias.typed_data() : nullptr;
  args.starts = o.starts.typed_data();
  args.indices = o.indices.untyped_data();
  args.rows = o.rows.typed_data();
  args.extra = o.extra.typed_data();
  args.entries = Count(o.values);
  args.num_starts = static_cast<int64_t>(o.starts.element_count());
  args.num_indices = Count(o.indices);
  args.num_rows = static_cast<int64_t>(o.rows.element_count());
  args.num_extra = static_cast<int64_t>(o.extra.element_count());
  args.out = out.untyped_data();
  const cudaError_t error =
      LaunchExecutor(o, args, o.values.element_type(), o.indices.element_type(), stream);
  if (error == cudaErrorInvalidValue) {
    return Invalid(op, "packed operands do not fit the executor: " + TakeError(error));
  }
  return CudaStatus(op, error);
}

}  // namespace jaxsparse
