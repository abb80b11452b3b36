#include "cpu/ffi/pruned/runs_bind.h"

#include <nanobind/ndarray.h>

#include <algorithm>
#include <stdexcept>

#include "cpu/kernels/pruned_matmul/runs_pack.h"

namespace nb = nanobind;

namespace jaxsparse {
namespace {

template <typename T>
using Vector = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// Checked here once: what walks the pattern trusts it.
bool Ascends(const Vector<const int32_t>& indptr, int64_t entries) {
  const int32_t* at = indptr.data();
  const size_t n = indptr.size();
  return n > 0 && at[0] == 0 && at[n - 1] == entries && std::is_sorted(at, at + n);
}

bool LiesInside(const Vector<const int32_t>& indices, int64_t inputs) {
  const int32_t *begin = indices.data(), *end = begin + indices.size();
  return std::all_of(begin, end, [inputs](int32_t i) { return i >= 0 && i < inputs; });
}

RunsPattern PatternOf(const Vector<const int32_t>& indptr, const Vector<const int32_t>& indices,
                      int64_t inputs, int64_t parts, int units, int bits) {
  const int64_t outputs = static_cast<int64_t>(indptr.size()) - 1;
  if (outputs < 0 || parts < 1 || inputs < 0 || (bits != 4 && bits != 8) ||
      (units != 2 && units != 4 && units != 8) ||
      !Ascends(indptr, static_cast<int64_t>(indices.size())) ||
      !LiesInside(indices, parts * inputs)) {
    throw std::invalid_argument("runs: not a pattern");
  }
  return {indptr.data(), indices.data(), outputs, inputs, parts, units, bits};
}

void Count(Vector<const int32_t> indptr, Vector<const int32_t> indices, int64_t inputs,
           int64_t parts, int units, int bits, Vector<int64_t> counts) {
  const RunsPattern pattern = PatternOf(indptr, indices, inputs, parts, units, bits);
  if (static_cast<int64_t>(counts.size()) != pattern.outputs * parts) {
    throw std::invalid_argument("runs: a count for each output and part");
  }
  CountRuns(pattern, counts.data());
}

void Place(Vector<const int32_t> indptr, Vector<const int32_t> indices, int64_t inputs,
           int64_t parts, int units, int bits, Vector<const int64_t> block,
           Vector<const int64_t> thread, int64_t chunks, int64_t threads, int lanes,
           Vector<uint16_t> bases, Vector<uint8_t> places, Vector<int32_t> order) {
  const RunsPattern pattern = PatternOf(indptr, indices, inputs, parts, units, bits);
  const int64_t slots = static_cast<int64_t>(bases.size()), streams = pattern.outputs * parts;
  if (chunks < 1 || threads < 32 || threads % 32 != 0 || slots % (chunks * threads) != 0 ||
      (lanes != 8 && lanes != 16 && lanes != 32) ||
      static_cast<int64_t>(places.size()) != slots * 2 * bits ||
      static_cast<int64_t>(order.size()) != slots * kPackEntries ||
      static_cast<int64_t>(block.size()) != streams ||
      static_cast<int64_t>(thread.size()) != streams) {
    throw std::invalid_argument("runs: arrays of other sizes");
  }
  PlaceRuns(pattern, {block.data(), thread.data(), slots / (chunks * threads), chunks, threads},
            lanes, {bases.data(), places.data(), order.data()});
}

}  // namespace

void BindRunsPack(nb::module_& m) {
  m.def("runs_count", &Count, "runs of each output and part");
  m.def("runs_place", &Place, "fills the arrays of the runs executor");
}

}  // namespace jaxsparse
