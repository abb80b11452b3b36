// Host side of the masked product on tensor cores: what it takes, its workspace, and its launches.
#include "cuda/kernels/masked_matmul/launch.h"

#include <algorithm>
#include <limits>

#include "cuda/core/device.h"
#include "cuda/core/launch.h"
#include "cuda/core/stack_map.h"
#include "cuda/kernels/masked_matmul/strips.h"

namespace jaxsparse {
namespace {

constexpr int64_t kMaxInt = std::numeric_limits<int32_t>::max();

bool IsAligned16(const void* data) { return reinterpret_cast<uintptr_t>(data) % 16 == 0; }

int64_t IndexLists(const BlockBits& bits) { return bits.words == nullptr ? 1 : bits.lists; }

int64_t PackLists(const MaskedMatmulArgs& a) { return std::max(a.a_lists, IndexLists(a.a_bits)); }

// Lays the parts of the workspace one after the other.
StripWorkspace PlanWorkspace(const MaskedMatmulArgs& a) {
  StripWorkspace w = {};
  const auto take = [&w](int64_t bytes) {
    const int64_t at = w.bytes;
    w.bytes += CeilDiv(bytes, 1024) * 1024;
    return at;
  };
  const int64_t bytes = ElementBytes(a.in_type), slab = kSlabBytes / bytes;
  const int64_t slabs = CeilDiv(a.depth, slab), tall_tiles = CeilDiv(a.rows, kTallRows);
  const bool boxes = TakesBoxes(a);
  const int64_t tiles = IndexLists(a.a_bits) * tall_tiles;
  for (int wide = 0; wide < 2; ++wide) {
    w.slabs[wide] = take(4 * (tiles << wide));
    w.entries[wide] = take(4 * (tiles << wide) * (boxes ? slabs : slabs * slab));
  }
  if (MaskedMatmulTakesPieces(a)) {
    const int64_t listed = IndexLists(a.a_bits) * CeilDiv(a.rows, kPanelPieces * kPieceRows);
    w.piece_slabs = take(4 * listed);
    w.piece_entries = take(4 * listed * slabs);
  }
  if (MaskedMatmulTakesSorted(a)) {
    w.piece_slabs = take(4 * tiles);
    w.piece_entries = take(4 * tiles * slabs);
    w.sorted_columns = take(4 * tiles * slabs * slab);
    w.sorted_blocks = take(4 * tiles * slabs);
    w.sorted_ends = take(4 * tiles * CeilDiv(a.depth, kSortWindow));
  }
  if (a.out_bits.words != nullptr) {
    const int64_t listed = a.out_bits.lists * tall_tiles;
    for (int wide = 0; wide < 2; ++wide) {
      w.live_blocks[wide] = take(4 * (listed << wide));
      w.blocks[wide] = take(4 * (listed << wide) * CeilDiv(a.columns, kColumnBlock));
    }
  }
  if (!boxes || a.turned) {
    w.packed = take(PackLists(a) * tall_tiles * slabs * kTallRows * kSlabBytes);
  }
  if (a.b_bits.words != nullptr) {
    w.masked_b = take(std::max(a.b_lists, a.b_bits.lists) * a.depth * a.columns * bytes);
  }
  return w;
}

// Whether panels give half of the device something to do.
bool FillsDevice(const MaskedMatmulArgs& a) {
  const int64_t tiles =
      a.lists * CeilDiv(a.rows, kPanelPieces * kPieceRows) * CeilDiv(a.columns, kPanelColumns);
  return 2 * tiles >= MultiProcessors();
}

bool HasPieces(StripChoice tile) {
  return tile == StripChoice::kPieces || tile == StripChoice::kPanels;
}

// What `tile` stands for: panels for a mask of boxes, sorted columns where blocks are as high but
// not as wide; between wide and tall the device chooses.
StripChoice Resolve(const MaskedMatmulArgs& a, StripChoice tile) {
  const bool panels = MaskedMatmulTakesPieces(a) && FillsDevice(a);
  if (tile == StripChoice::kAuto && MaskedMatmulTakesSorted(a)) return StripChoice::kSorted;
  return tile == StripChoice::kAuto && panels ? StripChoice::kPanels : tile;
}

StripIndex MakeIndex(const MaskedMatmulArgs& a, const StripParams& p, const StripWorkspace& w,
                     char* scratch) {
  StripIndex index = {};
  index.lists = static_cast<int>(IndexLists(a.a_bits));
  index.out_lists = static_cast<int>(IndexLists(a.out_bits));
  index.tall_tiles = static_cast<int>(CeilDiv(a.rows, kTallRows));
  index.pitch = p.boxes ? p.slabs : p.slabs * p.slab;
  if (HasPieces(p.tile)) {
    index.tile_pieces = p.tile == StripChoice::kPanels ? kPanelPieces : kTilePieces;
    index.piece_tiles = static_cast<int>(CeilDiv(a.rows, index.tile_pieces * kPieceRows));
    index.piece_slabs = reinterpret_cast<int32_t*>(scratch + w.piece_slabs);
    index.piece_entries = reinterpret_cast<int32_t*>(scratch + w.piece_entries);
  }
  if (p.tile == StripChoice::kSorted) {
    index.tile_pieces = kPanelPieces;
    index.piece_tiles = index.tall_tiles;
    index.piece_slabs = reinterpret_cast<int32_t*>(scratch + w.piece_slabs);
    index.piece_entries = reinterpret_cast<int32_t*>(scratch + w.piece_entries);
    index.sorted = {static_cast<int>(CeilDiv(a.depth, kSortWindow)),
                    reinterpret_cast<int32_t*>(scratch + w.sorted_columns),
                    reinterpret_cast<int32_t*>(scratch + w.sorted_blocks),
                    reinterpret_cast<int32_t*>(scratch + w.sorted_ends)};
  }
  for (int wide = 0; wide < 2; ++wide) {
    index.slabs[wide] = reinterpret_cast<int32_t*>(scratch + w.slabs[wide]);
    index.entries[wide] = reinterpret_cast<int32_t*>(scratch + w.entries[wide]);
    if (a.out_bits.words == nullptr) continue;
    index.live_blocks[wide] = reinterpret_cast<int32_t*>(scratch + w.live_blocks[wide]);
    index.blocks[wide] = reinterpret_cast<int32_t*>(scratch + w.blocks[wide]);
  }
  return index;
}

StripParams MakeParams(const MaskedMatmulArgs& a, StripChoice tile) {
  const StripWorkspace w = PlanWorkspace(a);
  char* scratch = static_cast<char*>(a.scratch);
  StripParams p = {};
  p.lists = static_cast<int>(a.lists);
  p.rows = static_cast<int>(a.rows);
  p.depth = static_cast<int>(a.depth);
  p.columns = static_cast<int>(a.columns);
  p.slab = kSlabBytes / ElementBytes(a.in_type);
  p.slabs = static_cast<int>(CeilDiv(a.depth, p.slab));
  p.column_blocks = static_cast<int>(CeilDiv(a.columns, kColumnBlock));
  p.a_lists = static_cast<int>(a.a_lists);
  p.b_lists = static_cast<int>(a.b_lists);
  p.pack_lists = static_cast<int>(PackLists(a));
  p.boxes = TakesBoxes(a);
  p.turned = a.turned;
  p.out_f32 = a.out_type == DType::kF32;
  p.tile = Resolve(a, tile);
  p.index = MakeIndex(a, p, w, scratch);
  p.a_bits = a.a_bits;
  p.b_bits = a.b_bits;
  p.out_bits = a.out_bits;
  p.a = a.a;
  p.b = a.b;
  p.packed = p.boxes && !p.turned ? nullptr : scratch + w.packed;
  p.masked_b = a.b_bits.words == nullptr ? nullptr : scratch + w.masked_b;
  p.out = a.out;
  return p;
}

// Of the packed matrix: 32 for each slab of each piece.
int64_t TurnedRows(const StripParams& p) {
  return int64_t{p.pack_lists} * CeilDiv(p.rows, kPieceRows) * p.slabs * kPieceRows;
}

CUtensorMapDataType MapType(DType type) {
  return type == DType::kF32    ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32
         : type == DType::kBF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
}

cudaError_t EncodeMaps(const StripParams& p, DType type, CUtensorMap* a, CUtensorMap* b) {
  const int bytes = ElementBytes(type), columns = kSlabBytes / bytes;
  const CUtensorMapDataType kind = MapType(type);
  const cudaError_t status =
      p.turned
          ? EncodeStackMap(a, kind, bytes, p.packed, 1, TurnedRows(p), p.slab, kPieceRows, columns)
          : EncodeStackMap(a, kind, bytes, p.a, p.a_lists, p.rows, p.depth, kPieceRows, columns);
  if (status != cudaSuccess) return status;
  return EncodeStackMap(b, kind, bytes, p.b, p.b_lists, p.depth, p.columns, p.slab, columns);
}

cudaError_t LaunchSorted(const StripParams& p, DType type, cudaStream_t stream) {
  cudaError_t status = LaunchSortedIndex(p, stream);
  if (status == cudaSuccess) status = LaunchSortedPack(p, type, stream);
  if (status != cudaSuccess) return status;
  // Rows of 128 bytes, `columns` of them a row of `b`.
  CUtensorMap b_map;
  const int bytes = ElementBytes(type), columns = kSlabBytes / bytes;
  status = EncodeStackMap(&b_map, MapType(type), bytes, p.b, int64_t{p.b_lists} * p.depth,
                          p.columns / columns, columns, kPanelColumns / columns, columns);
  return status == cudaSuccess ? LaunchSortedProduct(p, type, b_map, stream) : status;
}

}  // namespace

const char* MaskedMatmulStripsReason(const MaskedMatmulArgs& a) {
  const int64_t bytes = ElementBytes(a.in_type);
  if (!OnHopper()) return "the device is not of compute capability 9.0";
  if (a.in_type == DType::kF32 && a.highest) return "float32 products are asked for, not TF32";
  if (a.depth * bytes % 16 != 0 || a.columns * bytes % 16 != 0 || a.depth == 0) {
    return "a row of a or of b is not a multiple of 16 bytes";
  }
  if (!IsAligned16(a.a) || !IsAligned16(a.b) || !IsAligned16(a.out) || !IsAligned16(a.scratch)) {
    return "an operand is not aligned to 16 bytes";
  }
  if (a.lists * a.rows > kMaxInt || a.depth > kMaxDepth || a.columns > kMaxInt / 2 ||
      a.lists * CeilDiv(a.rows, kTallRows) > 65535) {
    return "more than 2^31 rows, 2^19 columns of a, or 65535 tiles of rows";
  }
  if (a.turned && (a.rows * bytes % 16 != 0 ||
                   PackLists(a) * CeilDiv(a.rows, kPieceRows) * a.depth * bytes / 4 > kMaxInt)) {
    return "a column of a is not a multiple of 16 bytes, or there are too many pieces";
  }
  const bool by_bools = TakesBoxes(a) || MaskedMatmulTakesSorted(a);
  if (a.a_bits.is_bools && (a.b_bits.words != nullptr || !by_bools)) {
    return "a mask of bools takes whole 32 rows and boxes or sorted columns of a, no mask on b";
  }
  if (a.a_bits.words != nullptr && a.a_bits.row_words > kMaxMaskWords) {
    return "a row of a's mask passes 8192 words";
  }
  return nullptr;
}

bool MaskedMatmulTakesPieces(const MaskedMatmulArgs& args) {
  return args.a_bits.words != nullptr && args.out_bits.words == nullptr && TakesBoxes(args);
}

bool MaskedMatmulTakesSorted(const MaskedMatmulArgs& args) {
  return args.a_bits.words != nullptr && args.b_bits.words == nullptr &&
         args.out_bits.words == nullptr && args.a_bits.row_size % kPieceRows == 0 &&
         !TakesBoxes(args) && !args.turned &&
         args.columns * ElementBytes(args.in_type) % kSlabBytes == 0 &&
         args.b_lists * args.depth <= kMaxInt;
}

int64_t MaskedMatmulStripsScratchBytes(const MaskedMatmulArgs& args) {
  return PlanWorkspace(args).bytes;
}

cudaError_t LaunchMaskedMatmulStrips(const MaskedMatmulArgs& args, StripChoice tile,
                                     cudaStream_t stream) {
  if (MaskedMatmulStripsReason(args) != nullptr ||
      (HasPieces(tile) ? !MaskedMatmulTakesPieces(args) : args.turned) ||
      args.scratch_bytes < MaskedMatmulStripsScratchBytes(args)) {
    return cudaErrorInvalidValue;
  }
  if (tile == StripChoice::kSorted && !MaskedMatmulTakesSorted(args)) return cudaErrorInvalidValue;
  StripParams p = MakeParams(args, tile);
  if (p.tile == StripChoice::kSorted) return LaunchSorted(p, args.in_type, stream);
  cudaError_t status = LaunchStripIndex(p, stream);
  if (status == cudaSuccess && p.turned) status = LaunchPieceTurn(p, args.in_type, stream);
  if (status == cudaSuccess) status = LaunchStripPack(p, args.in_type, stream);
  if (status != cudaSuccess) return status;
  if (p.masked_b != nullptr) {
    p.b = p.masked_b;
    p.b_lists = static_cast<int>(std::max(args.b_lists, args.b_bits.lists));
  }
  CUtensorMap a_map, b_map;
  status = EncodeMaps(p, args.in_type, &a_map, &b_map);
  if (status != cudaSuccess) return status;
  if (p.tile == StripChoice::kPieces) {
    return LaunchPieceProduct(p, args.in_type, a_map, b_map, stream);
  }
  if (p.tile == StripChoice::kPanels) {
    return LaunchPanelProduct(p, args.in_type, a_map, b_map, stream);
  }
  return LaunchStripProduct(p, args.in_type, a_map, b_map, stream);
}

cudaError_t PrepareMaskedMatmulStrips() {
  if (!OnHopper()) return cudaSuccess;
  cudaError_t status = PrepareStripIndex();
  if (status == cudaSuccess) status = PrepareStripPack();
  if (status == cudaSuccess) status = PreparePieceTurn();
  if (status == cudaSuccess) status = PrepareStripProduct();
  if (status == cudaSuccess) status = PreparePieceProduct();
  if (status == cudaSuccess) status = PreparePanelProduct();
  if (status == cudaSuccess) status = PrepareSortedIndex();
  if (status == cudaSuccess) status = PrepareSortedPack();
  return status == cudaSuccess ? PrepareSortedProduct() : status;
}

}  // namespace jaxsparse
