#include "cuda/ffi/masked_conv/operands.h"

namespace jaxsparse {
namespace {

const void* Optional(const ffi::AnyBuffer& buffer) {
  return buffer.element_count() == 0 ? nullptr : buffer.untyped_data();
}

}  // namespace

std::string CheckOperands(const MaskedConvOperands& o) {
  const auto in_type = ToDType(o.x.element_type());
  const auto out_type = ToDType(o.out.element_type());
  if (!in_type || o.kernel.element_type() != o.x.element_type()) {
    return "x and kernel must both be f32, bf16 or f16";
  }
  if (!out_type || (*out_type != *in_type && *out_type != DType::kF32)) {
    return "the result must have the dtype of x or f32";
  }
  if (o.x.dimensions().size() != 4 || o.kernel.dimensions().size() != 4 ||
      o.out.dimensions().size() != 4) {
    return "x, kernel and the result must have four dimensions";
  }
  const auto in = o.x.dimensions();
  if (o.x_words.element_count() != 0 && (o.x_words.element_type() != ffi::DataType::U32 ||
                                         !HasShape(o.x_words, {in[0], in[1], (in[2] + 31) / 32}))) {
    return "x_words must be u32[B, H, ceil(W/32)]";
  }
  if (o.bias.element_count() != 0 &&
      (o.bias.element_type() != ffi::DataType::F32 || !HasShape(o.bias, {o.out.dimensions()[3]}))) {
    return "bias must be f32[O]";
  }
  if (o.base.element_count() != 0 && (o.base.element_type() != o.out.element_type() ||
                                      o.base.element_count() != o.out.element_count())) {
    return "base must have the shape and dtype of the result";
  }
  if (o.residual.element_count() != 0 && (o.residual.element_type() != o.out.element_type() ||
                                          o.residual.element_count() != o.out.element_count() ||
                                          o.residual.untyped_data() == o.out.untyped_data())) {
    return "residual must be like the result, in a buffer of its own";
  }
  if (o.activation < 0 || o.activation > 4) return "activation must be 0 to 4";
  if (o.precision < 0 || o.precision > 1) return "precision must be 0 or 1";
  for (const void* data : {o.x.untyped_data(), o.kernel.untyped_data(), o.bias.untyped_data(),
                           o.residual.untyped_data(), o.out.untyped_data()}) {
    if (!IsAligned(data)) {
      return "x, kernel, bias, residual and the result must be aligned to 16 bytes";
    }
  }
  return "";
}

void ReadOperands(const MaskedConvOperands& o, MaskedConvArgs* args) {
  args->in_type = *ToDType(o.x.element_type());
  args->out_type = *ToDType(o.out.element_type());
  args->activation = static_cast<Activation>(o.activation);
  args->highest = o.precision == 1;
  args->x = o.x.untyped_data();
  args->kernel = o.kernel.untyped_data();
  args->x_words = static_cast<const uint32_t*>(Optional(o.x_words));
  args->bias = static_cast<const float*>(Optional(o.bias));
  args->residual = Optional(o.residual);
  args->zero_fill = o.base.element_count() == 0;
  args->out = o.out.untyped_data();
  args->scratch = o.scratch.untyped_data();
  args->scratch_bytes = static_cast<int64_t>(o.scratch.size_bytes());
}

cudaError_t PlaceBase(const MaskedConvOperands& o, cudaStream_t stream) {
  if (o.base.element_count() == 0 || o.base.untyped_data() == o.out.untyped_data()) {
    return cudaSuccess;
  }
  return cudaMemcpyAsync(o.out.untyped_data(), o.base.untyped_data(), o.out.size_bytes(),
                         cudaMemcpyDeviceToDevice, stream);
}

}  // namespace jaxsparse
