// The handler of jaxsparse_fill_rows on CUDA (contracts/bounded.toml).
#include "contracts/fill_rows.gen.h"
#include "cuda/ffi/common.h"
#include "cuda/kernels/bounded_fill/launch.h"

namespace jaxsparse {
namespace {

constexpr char kOp[] = "fill_rows";

ffi::Error FillRows(cudaStream_t stream, ffi::RemainingArgs operands, ffi::RemainingRets results) {
  const auto call = contract::fill_rows::Decode(operands, results);
  if (call.has_error()) return call.error();
  const auto& c = *call;
  if (c.nothing()) return ffi::Error::Success();
  const cudaError_t placed = PlaceBase(c.base, c.out, stream);
  if (placed != cudaSuccess) return CudaStatus(kOp, placed);
  BoundedFillArgs args = {};
  args.rows = c.rows;
  args.bytes = c.n * ElementBytes(ToDType(c.out.type));
  args.entries = c.entries;
  args.table = c.table.data;
  args.select = c.select.as<int32_t>();
  args.out = c.out.data;
  return CudaStatus(kOp, LaunchBoundedFill(args, stream));
}

}  // namespace
}  // namespace jaxsparse

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseFillRowsCuda, jaxsparse::FillRows,
                              jaxsparse::BindPlainCall(), {xla::ffi::Traits::kCmdBufferCompatible});
