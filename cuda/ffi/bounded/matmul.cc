// Handlers of jaxsparse_bounded_matmul on CUDA (contracts/bounded.toml).
#include <algorithm>

#include "contracts/bounded_matmul.gen.h"
#include "contracts/enums.gen.h"
#include "cuda/ffi/common.h"
#include "cuda/kernels/bounded_matmul/launch.h"

namespace jaxsparse {
namespace {

constexpr char kOp[] = "bounded_matmul";

static_assert(static_cast<int>(Dataflow::kRow) == static_cast<int>(BoundedDataflow::kRow));
static_assert(static_cast<int>(Dataflow::kSlab) == static_cast<int>(BoundedDataflow::kSlab));
static_assert(static_cast<int>(Dataflow::kColumn) == static_cast<int>(BoundedDataflow::kColumn));
static_assert(static_cast<int>(Dataflow::kAutomatic) == static_cast<int>(BoundedDataflow::kChosen));

ffi::Error InitBoundedMatmul() {
  static OncePerDevice once;
  return CudaStatus(kOp, once.Run([](int) { return PrepareBoundedMatmul(); }));
}

ffi::Error BoundedMatmul(cudaStream_t stream, contract::bounded_matmul::Attributes attributes,
                         ffi::RemainingArgs operands, ffi::RemainingRets results) {
  const auto call = contract::bounded_matmul::Decode(attributes, operands, results);
  if (call.has_error()) return call.error();
  const auto& c = *call;
  if (c.nothing()) return ffi::Error::Success();
  BoundedMatmulArgs args = {};
  args.batch = c.batch;
  args.n_in = c.n_in;
  args.n_out = c.n_out;
  args.distinct = c.distinct;
  args.entries = c.entries;
  args.values = c.values.as<float>();
  args.codes = c.codes.as<uint8_t>();
  args.starts = c.starts.as<int32_t>();
  args.indices = c.indices.data;
  args.wide = c.indices.type == ffi::DataType::S32;
  args.weights = c.weights.as<float>();
  args.bias = c.bias.as<float>();
  args.expand = c.expand.as<int32_t>();
  // A segment may be longer than its row; what follows from its length has 32 bits.
  args.segment_in = std::min(c.segment_in, std::max<int64_t>(c.n_in, 1));
  args.segments_in = c.segments_in;
  args.segment = std::min(c.segment, std::max<int64_t>(c.n_out, 1));
  args.segments = c.out_codes.dims[1];
  args.upper_in = c.upper_in;
  args.upper = c.upper;
  args.record = c.record != 0;
  args.zero_stays = c.zero_stays != 0;
  args.keeps_upper = c.keeps_upper != 0;
  args.out = c.out.as<float>();
  args.out_codes = c.out_codes.as<uint8_t>();
  args.scratch = c.scratch.as<uint32_t>();
  return CudaStatus(kOp,
                    LaunchBoundedMatmul(static_cast<BoundedDataflow>(c.dataflow), args, stream));
}

}  // namespace
}  // namespace jaxsparse

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseBoundedMatmulCudaInit, jaxsparse::InitBoundedMatmul,
                              jaxsparse::BindInit());

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    JaxsparseBoundedMatmulCuda, jaxsparse::BoundedMatmul,
    jaxsparse::BindCall<jaxsparse::contract::bounded_matmul::Attributes>(),
    {xla::ffi::Traits::kCmdBufferCompatible});
