// The handlers of jaxsparse_grouped_matmul and jaxsparse_grouped_matmul_drhs on the CPU.
#include "cpu/kernels/grouped_matmul.h"

#include <memory>
#include <optional>
#include <string>

#include "cpu/core/workers.h"
#include "cpu/ffi/matmul_decode.h"
#include "cpu/kernels/grouped_matmul_drhs_job.h"
#include "cpu/kernels/grouped_matmul_job.h"

namespace jaxsparse {
namespace {

namespace ffi = xla::ffi;

using Indices = ffi::BufferR1<ffi::S32>;
using Weights = ffi::BufferR1<ffi::F32>;
using Scratch = ffi::Result<ffi::BufferR1<ffi::U8>>;

// Empty operands are absent; the others speak of every sorted row.
bool SameRows(const GroupedShape& s, const Indices& gather, const Indices& scatter,
              const Weights& weights, bool gathers, bool scatters) {
  const auto agrees = [&](int64_t count) { return count == 0 || count == s.sorted_rows; };
  const auto scattered = static_cast<int64_t>(scatter.element_count());
  return agrees(gather.element_count()) && agrees(scattered) && agrees(weights.element_count()) &&
         (gathers || s.lhs_rows == s.sorted_rows) &&
         (scatters ? scattered == s.sorted_rows : s.out_rows == s.sorted_rows);
}

template <typename Job>
ffi::Future Share(ffi::ThreadPool& pool, std::shared_ptr<Job> job, int64_t needs) {
  if (job->workers() == 0) {
    return FailedProduct("grouped_matmul: scratch needs at least " + std::to_string(needs) +
                         " bytes");
  }
  return RunWorkers(pool, job->workers(), job);
}

ffi::Future GroupedMatmul(ffi::ThreadPool pool, ffi::AnyBuffer lhs, ffi::AnyBuffer rhs,
                          Indices sizes, Indices gather, Indices scatter, Weights weights,
                          ffi::Result<ffi::AnyBuffer> out, Scratch scratch, int64_t sorted_rows,
                          bool scatters, bool transpose_rhs, int64_t precision, int64_t variant) {
  static_cast<void>(precision);  // products are float32 either way
  const auto in_type = DTypeOf(lhs.element_type()), out_type = DTypeOf(out->element_type());
  const auto ls = lhs.dimensions(), rs = rhs.dimensions(), os = out->dimensions();
  if (!in_type || !out_type || rhs.element_type() != lhs.element_type() || ls.size() != 2 ||
      rs.size() != 3 || os.size() != 2) {
    return FailedProduct("grouped_matmul: an operand has the wrong type or rank");
  }
  GroupedMatmulArgs args = {};
  args.shape = {ls[0], ls[1], os[1], rs[0], sorted_rows, os[0]};
  const GroupedShape& s = args.shape;
  const bool gathers = gather.element_count() > 0;
  const int64_t rows_of_rhs = transpose_rhs ? s.outputs : s.depth;
  const int64_t columns_of_rhs = transpose_rhs ? s.depth : s.outputs;
  if (rs[1] != rows_of_rhs || rs[2] != columns_of_rhs || variant < 0 ||
      variant >= kGroupedVariantCount || static_cast<int64_t>(sizes.element_count()) != s.groups ||
      !SameRows(s, gather, scatter, weights, gathers || sorted_rows == 0, scatters)) {
    return FailedProduct("grouped_matmul: operands and attributes disagree");
  }
  args.in_type = *in_type;
  args.out_type = *out_type;
  args.transpose_rhs = transpose_rhs;
  args.variant = variant;
  args.lhs = lhs.untyped_data();
  args.rhs = rhs.untyped_data();
  args.sizes = sizes.typed_data();
  args.gather = PresentOrNull(gather);
  args.scatter = scatters ? scatter.typed_data() : nullptr;
  args.row_weights = PresentOrNull(weights);
  args.out = out->untyped_data();
  args.scratch = scratch->typed_data();
  args.scratch_bytes = static_cast<int64_t>(scratch->element_count());
  auto job = std::make_shared<GroupedMatmulJob>(args, PoolWorkers(pool));
  return Share(pool, job, GroupedMatmulJob::ScratchBytes(args, 1));
}

ffi::Future GroupedDrhs(ffi::ThreadPool pool, ffi::AnyBuffer lhs, ffi::AnyBuffer gy, Indices sizes,
                        Indices gather, Indices scatter, Weights weights,
                        ffi::Result<ffi::BufferR3<ffi::F32>> drhs, Scratch scratch,
                        int64_t sorted_rows, int64_t precision, int64_t variant) {
  static_cast<void>(precision);
  const auto type = DTypeOf(lhs.element_type());
  const auto ls = lhs.dimensions(), gs = gy.dimensions(), ds = drhs->dimensions();
  if (!type || gy.element_type() != lhs.element_type() || ls.size() != 2 || gs.size() != 2) {
    return FailedProduct("grouped_matmul_drhs: an operand has the wrong type or rank");
  }
  GroupedDrhsArgs args = {};
  args.shape = {ls[0], ls[1], gs[1], ds[0], sorted_rows, gs[0]};
  const GroupedShape& s = args.shape;
  const bool gathers = gather.element_count() > 0 || sorted_rows == 0;
  const bool scatters = scatter.element_count() > 0 || sorted_rows == 0;
  if (ds[1] != s.depth || ds[2] != s.outputs || variant != 0 ||
      static_cast<int64_t>(sizes.element_count()) != s.groups ||
      !SameRows(s, gather, scatter, weights, gathers, scatters)) {
    return FailedProduct("grouped_matmul_drhs: operands and attributes disagree");
  }
  args.type = *type;
  args.lhs = lhs.untyped_data();
  args.gy = gy.untyped_data();
  args.sizes = sizes.typed_data();
  args.gather = PresentOrNull(gather);
  args.scatter = PresentOrNull(scatter);
  args.row_weights = PresentOrNull(weights);
  args.drhs = drhs->typed_data();
  args.scratch = scratch->typed_data();
  args.scratch_bytes = static_cast<int64_t>(scratch->element_count());
  auto job = std::make_shared<GroupedDrhsJob>(args, PoolWorkers(pool));
  return Share(pool, job, GroupedDrhsJob::ScratchBytes(args.shape, 1));
}

}  // namespace
}  // namespace jaxsparse

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseGroupedMatmulCpu, jaxsparse::GroupedMatmul,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::ThreadPool>()
                                  .Arg<xla::ffi::AnyBuffer>()                // lhs
                                  .Arg<xla::ffi::AnyBuffer>()                // rhs
                                  .Arg<xla::ffi::BufferR1<xla::ffi::S32>>()  // group_sizes
                                  .Arg<xla::ffi::BufferR1<xla::ffi::S32>>()  // gather
                                  .Arg<xla::ffi::BufferR1<xla::ffi::S32>>()  // scatter
                                  .Arg<xla::ffi::BufferR1<xla::ffi::F32>>()  // row_weights
                                  .Ret<xla::ffi::AnyBuffer>()                // out
                                  .Ret<xla::ffi::BufferR1<xla::ffi::U8>>()   // scratch
                                  .Attr<int64_t>("sorted_rows")
                                  .Attr<bool>("scatters")
                                  .Attr<bool>("transpose_rhs")
                                  .Attr<int64_t>("precision")
                                  .Attr<int64_t>("variant"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseGroupedMatmulDrhsCpu, jaxsparse::GroupedDrhs,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::ThreadPool>()
                                  .Arg<xla::ffi::AnyBuffer>()                // lhs
                                  .Arg<xla::ffi::AnyBuffer>()                // gy
                                  .Arg<xla::ffi::BufferR1<xla::ffi::S32>>()  // group_sizes
                                  .Arg<xla::ffi::BufferR1<xla::ffi::S32>>()  // gather
                                  .Arg<xla::ffi::BufferR1<xla::ffi::S32>>()  // scatter
                                  .Arg<xla::ffi::BufferR1<xla::ffi::F32>>()  // row_weights
                                  .Ret<xla::ffi::BufferR3<xla::ffi::F32>>()  // drhs
                                  .Ret<xla::ffi::BufferR1<xla::ffi::U8>>()   // scratch
                                  .Attr<int64_t>("sorted_rows")
                                  .Attr<int64_t>("precision")
                                  .Attr<int64_t>("variant"));
