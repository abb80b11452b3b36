#include "cpu/kernels/pruned_matmul/runs_pack.h"

#include <algorithm>
#include <vector>

namespace jaxsparse {
namespace {

constexpr int kSpan = 256;    // places that a run of 8 bits reaches
constexpr int kMostGap = 15;  // of 4 bits

// A kept weight of a stream, or a zero that fills a gap.
struct Entry {
  int32_t place;   // in its part
  int32_t number;  // among the kept weights; -1: a zero
};

// Where input `i` of a part lies: the units of 8 neighbours change places with them.
int32_t PlaceOf(int32_t i, int units) {
  const int wide = 8 / units, turn = i / 8 / wide % units;
  return i ^ turn * wide;
}

// Calls visit(stream, entries) for every stream with its entries by place, gaps filled.
template <class Visit>
void EachStream(const RunsPattern& p, const Visit& visit) {
  std::vector<Entry> entries;
  for (int64_t output = 0; output < p.outputs; ++output) {
    int64_t at = p.indptr[output];
    const int64_t last = p.indptr[output + 1];
    for (int64_t part = 0; part < p.parts; ++part) {
      const int64_t first = part * p.inputs;
      entries.clear();
      for (; at < last && p.indices[at] < first + p.inputs; ++at) {
        const int32_t place = PlaceOf(static_cast<int32_t>(p.indices[at] - first), p.units);
        // Places move within eights only: insertion ends after at most seven steps.
        size_t to = entries.size();
        entries.push_back({place, static_cast<int32_t>(at)});
        for (; to > 0 && entries[to - 1].place > place; --to) entries[to] = entries[to - 1];
        entries[to] = {place, static_cast<int32_t>(at)};
      }
      if (p.bits == 4) {
        std::vector<Entry> filled;
        for (const Entry& entry : entries) {
          while (!filled.empty() && entry.place - filled.back().place > kMostGap) {
            filled.push_back({filled.back().place + kMostGap, -1});
          }
          filled.push_back(entry);
        }
        entries.swap(filled);
      }
      visit(output * p.parts + part, entries);
    }
  }
}

// The entry after the last of the run that begins with entry `first`.
size_t RunEnd(const std::vector<Entry>& entries, size_t first, int bits) {
  const size_t most = std::min(entries.size(), first + kPackEntries);
  if (bits == 4) return most;
  size_t end = first + 1;
  while (end < most && entries[end].place < entries[first].place + kSpan) ++end;
  return end;
}

// Runs of the threads that load together, step by step: a thread takes, of its entries, one whose
// bank no thread before it took in this step, and of these one of the bank that most still want.
class BankOrder {
 public:
  explicit BankOrder(int lanes) : lanes_(lanes), wanted_(lanes), taken_(lanes) {}

  // `places`: 16 of each lane, -1 for none. Writes the rank of each.
  void Find(const int32_t* places, int8_t* ranks) {
    std::fill(wanted_.begin(), wanted_.end(), 0);
    for (int i = 0; i < lanes_ * kPackEntries; ++i) {
      bank_[i] = places[i] < 0 ? -1 : static_cast<int8_t>(places[i] % lanes_);
      if (bank_[i] >= 0) ++wanted_[bank_[i]];
    }
    for (int step = 0; step < kPackEntries; ++step) {
      std::fill(taken_.begin(), taken_.end(), 0);
      for (int turn = 0; turn < lanes_; ++turn) {
        const int lane = (turn + step) % lanes_;
        int8_t* const banks = bank_ + lane * kPackEntries;
        int pick = -1, score = -1;
        for (int e = 0; e < kPackEntries; ++e) {
          if (banks[e] < 0) continue;
          const int value = wanted_[banks[e]] + (taken_[banks[e]] ? 0 : 1024);
          if (value > score) pick = e, score = value;
        }
        if (pick < 0) continue;
        taken_[banks[pick]] = 1;
        --wanted_[banks[pick]];
        ranks[lane * kPackEntries + pick] = static_cast<int8_t>(step);
        banks[pick] = -1;
      }
    }
  }

 private:
  static constexpr int kMostLanes = 32;

  int lanes_;
  std::vector<int> wanted_;
  std::vector<uint8_t> taken_;
  int8_t bank_[kMostLanes * kPackEntries];
};

// Stores entry `rank` of the run in slot `slot`.
void StoreEntry(const RunsSlots& s, const RunsArrays& arrays, int64_t slot, int rank, int bits,
                int32_t stored, int32_t number) {
  if (bits == 8) {
    arrays.places[slot * kPackEntries + rank] = static_cast<uint8_t>(stored);
  } else {
    uint8_t* const byte = arrays.places + slot * 8 + rank / 8 * 4 + rank % 4;
    *byte = static_cast<uint8_t>(*byte | stored << (rank / 4 % 2 * 4));
  }
  const int64_t chunk = slot / s.threads, thread = slot - chunk * s.threads;
  arrays.order[((chunk * 2 + rank / 8) * s.threads + thread) * 8 + rank % 8] = number;
}

}  // namespace

void CountRuns(const RunsPattern& pattern, int64_t* counts) {
  EachStream(pattern, [&](int64_t stream, const std::vector<Entry>& entries) {
    int64_t count = 0;
    for (size_t at = 0; at < entries.size(); ++count) at = RunEnd(entries, at, pattern.bits);
    counts[stream] = count;
  });
}

void PlaceRuns(const RunsPattern& pattern, const RunsSlots& s, int lanes,
               const RunsArrays& arrays) {
  const int64_t slots = s.blocks * s.chunks * s.threads;
  const bool reorder = pattern.bits == 8;
  std::vector<Entry> runs(reorder ? slots * kPackEntries : 0, Entry{-1, -1});
  EachStream(pattern, [&](int64_t stream, const std::vector<Entry>& entries) {
    int64_t nth = 0;
    for (size_t at = 0; at < entries.size(); ++nth) {
      const size_t first = at, end = RunEnd(entries, at, pattern.bits);
      const int64_t slot = (s.block[stream] * s.chunks + nth % s.chunks) * s.threads +
                           s.thread[stream] + nth / s.chunks;
      if (slot < 0 || slot >= slots) return;  // not the counted runs: nothing is written outside
      arrays.bases[slot] = static_cast<uint16_t>(entries[first].place);
      for (; at < end; ++at) {
        if (reorder) {
          runs[slot * kPackEntries + static_cast<int64_t>(at - first)] = entries[at];
        } else {
          const int32_t step = at == first ? 0 : entries[at].place - entries[at - 1].place;
          StoreEntry(s, arrays, slot, static_cast<int>(at - first), pattern.bits, step,
                     entries[at].number);
        }
      }
    }
  });
  if (!reorder) return;
  BankOrder order(lanes);
  std::vector<int32_t> places(lanes * kPackEntries);
  std::vector<int8_t> ranks(lanes * kPackEntries);
  for (int64_t slot = 0; slot < slots; slot += lanes) {
    const Entry* const group = runs.data() + slot * kPackEntries;
    for (int i = 0; i < lanes * kPackEntries; ++i) places[i] = group[i].place;
    order.Find(places.data(), ranks.data());
    for (int i = 0; i < lanes * kPackEntries; ++i) {
      if (group[i].place < 0) continue;
      const int64_t lane = slot + i / kPackEntries;
      StoreEntry(s, arrays, lane, ranks[i], 8, group[i].place - arrays.bases[lane],
                 group[i].number);
    }
  }
}

}  // namespace jaxsparse
