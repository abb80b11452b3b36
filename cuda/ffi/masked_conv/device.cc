// Handler of jaxsparse_masked_conv_device on CUDA (contracts/masked_conv.toml): the variant is
// chosen by the kernel, from the id that an index kernel wrote or from the counts.
#include "cuda/kernels/masked_conv/device/launch.h"

#include <tuple>

#include "contracts/masked_conv_device.gen.h"
#include "cuda/ffi/common.h"
#include "cuda/ffi/index/limits.h"
#include "cuda/ffi/masked_conv/operands.h"
#include "cuda/kernels/masked_conv/zero_fill.h"

namespace jaxsparse {
namespace {

using contract::masked_conv_device::Attributes;
using contract::masked_conv_device::Call;

constexpr char kOp[] = "masked_conv_device";
constexpr int64_t kMostSlots = int64_t{1} << 30;  // pixels of a list's tiles

static_assert(std::tuple_size_v<decltype(Call::more)> + 1 == kMaxLists);

int Byte(int64_t packed, int64_t i) { return static_cast<int>(packed >> (8 * i) & 0xff); }

// The further lists; returns what is wrong, or nullptr.
const char* ReadLists(const Call& c, ConvChoice* chosen) {
  chosen->lists = static_cast<int>(c.more_count) + 1;
  for (int64_t t = 1; t < chosen->lists; ++t) {
    const Call::More& more = c.more[t - 1];
    const TileCode code = TileCodeOf(Byte(c.tiles, t));
    if (!code.valid()) return "tiles names a tile with a side above 32";
    TileList& list = chosen->list[t];
    list = chosen->list[0];
    list.ids = static_cast<const int32_t*>(more.ids.data);
    list.count = static_cast<const int32_t*>(more.count.data);
    list.capacity = more.more_capacity;
    list.tile_h = 1 << code.th_log2;
    list.tile_w = 1 << code.tw_log2;
    list.grid_aligned = true;
    if (!(Checked(list.capacity) * list.tile_h * list.tile_w <= kMostSlots)) {
      return "a further list has more than 2^30 pixels";
    }
  }
  return nullptr;
}

void ReadCandidates(const Call& c, ConvChoice* chosen) {
  chosen->candidates = static_cast<int>(c.candidates);
  for (int i = 0; i < chosen->candidates; ++i) {
    chosen->candidate[i] = {Byte(c.variants, i), Byte(c.lists, i)};
  }
  chosen->costs = c.costs.as<float>();
  chosen->choice = c.choice.as<int32_t>();
}

ffi::Error MaskedConvDevice(cudaStream_t stream, Attributes attributes, ffi::RemainingArgs operands,
                            ffi::RemainingRets results) {
  const auto call = contract::masked_conv_device::Decode(attributes, operands, results);
  if (call.has_error()) return call.error();
  const Call& c = *call;
  const MaskedConvArgs args = ReadForward(c);
  ConvChoice chosen = {};
  chosen.list[0] = args.tiles;
  if (const char* wrong = ReadLists(c, &chosen)) return Invalid(kOp, wrong);
  if (c.nothing()) return ffi::Error::Success();
  if (const char* reason = PlacesReason(c)) return Invalid(kOp, reason);
  ReadCandidates(c, &chosen);
  if (const char* reason = MaskedConvDeviceReason(args, chosen)) return Invalid(kOp, reason);
  int variants[kMaxCandidates];
  for (int i = 0; i < chosen.candidates; ++i) variants[i] = chosen.candidate[i].variant;
  const int64_t needed =
      MaskedConvDeviceScratchBytes(args.geometry, args.in_type, variants, chosen.candidates);
  if (c.scratch_bytes < needed) return TooSmall(kOp, c.scratch_bytes, needed, "bytes");
  cudaError_t status = PlaceBase(c.base, c.out, stream);
  if (status == cudaSuccess) status = LaunchMaskedConvDevice(args, chosen, stream);
  return CudaStatus(kOp, status);
}

ffi::Error MaskedConvDeviceInit() {
  static OncePerDevice* once = new OncePerDevice;
  return CudaStatus(kOp, once->Run([](int) {
    const cudaError_t status = PrepareMaskedConvDevice();
    return status == cudaSuccess ? PrepareZeroFill() : status;
  }));
}

}  // namespace
}  // namespace jaxsparse

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    JaxsparseMaskedConvDeviceCuda, jaxsparse::MaskedConvDevice,
    jaxsparse::BindCall<jaxsparse::contract::masked_conv_device::Attributes>(),
    {xla::ffi::Traits::kCmdBufferCompatible});

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseMaskedConvDeviceCudaInit, jaxsparse::MaskedConvDeviceInit,
                              jaxsparse::BindInit());
