// The handler of jaxsparse_route on the CPU. It runs inline: 256 K assignments take less than a
// millisecond.
#include "cpu/kernels/route.h"

#include "xla/ffi/api/ffi.h"

namespace jaxsparse {
namespace {

namespace ffi = xla::ffi;

ffi::Error Route(ffi::BufferR2<ffi::S32> ids, ffi::Result<ffi::BufferR2<ffi::S32>> order,
                 ffi::Result<ffi::BufferR2<ffi::S32>> source,
                 ffi::Result<ffi::BufferR2<ffi::S32>> sizes,
                 ffi::Result<ffi::BufferR1<ffi::S32>> scratch, int64_t top_k) {
  const int64_t lists = ids.dimensions()[0], assignments = ids.dimensions()[1];
  const int64_t experts = sizes->dimensions()[1];
  const auto fits = [&](auto& result, int64_t width) {
    return result->dimensions()[0] == lists && result->dimensions()[1] == width;
  };
  if (top_k < 1 || assignments > INT32_MAX || !fits(order, assignments) ||
      !fits(source, assignments) || !fits(sizes, experts) ||
      static_cast<int64_t>(scratch->element_count()) < experts + 1) {
    return ffi::Error::InvalidArgument("route: operands, results and attributes disagree");
  }
  for (int64_t l = 0; l < lists; ++l) {
    RouteList(ids.typed_data() + l * assignments, assignments, experts, top_k,
              order->typed_data() + l * assignments, source->typed_data() + l * assignments,
              sizes->typed_data() + l * experts, scratch->typed_data());
  }
  return ffi::Error::Success();
}

}  // namespace
}  // namespace jaxsparse

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseRouteCpu, jaxsparse::Route,
                              xla::ffi::Ffi::Bind()
                                  .Arg<xla::ffi::BufferR2<xla::ffi::S32>>()  // expert_ids
                                  .Ret<xla::ffi::BufferR2<xla::ffi::S32>>()  // order
                                  .Ret<xla::ffi::BufferR2<xla::ffi::S32>>()  // source
                                  .Ret<xla::ffi::BufferR2<xla::ffi::S32>>()  // group_sizes
                                  .Ret<xla::ffi::BufferR1<xla::ffi::S32>>()  // scratch
                                  .Attr<int64_t>("top_k"));
