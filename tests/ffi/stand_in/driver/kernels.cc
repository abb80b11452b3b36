#include "kernels.h"

#include <elf.h>

#include <cstdint>
#include <cstring>

#include "log.h"

namespace stand_in {
namespace {

struct FatHeader {
  uint32_t magic;
  uint16_t version, header_bytes;
  uint64_t bytes;
};

struct FatEntry {
  uint16_t kind, version;
  uint32_t header_bytes;
  uint64_t bytes;
  uint32_t compressed_bytes, options;
  uint16_t minor, major;
  uint32_t capability;
};

constexpr uint32_t kFatMagic = 0xBA55ED50;
constexpr uint16_t kPtx = 1, kElf = 2;
// Of the attributes in .nv.info: EIATTR_MAX_THREADS, EIATTR_KPARAM_INFO, EIATTR_REGCOUNT.
constexpr uint8_t kMostThreadsOf = 0x05, kParameter = 0x17, kRegistersOf = 0x2f;
// From this capability on, a kernel's shared memory includes what the system reserves.
constexpr int kReservedFrom = 90;
constexpr uint8_t kSized = 4;  // an attribute that is stored with its value's size

uint32_t WordAt(const char* at) {
  uint32_t word;
  memcpy(&word, at, sizeof(word));
  return word;
}

// Calls visit(code, value, bytes) for each sized attribute of a section.
template <class Visit>
void EachAttribute(const char* at, size_t bytes, Visit visit) {
  const char* const end = at + bytes;
  while (at + 4 <= end) {
    const auto format = static_cast<uint8_t>(at[0]), code = static_cast<uint8_t>(at[1]);
    const uint32_t size = WordAt(at) >> 16;
    at += 4;
    if (format != kSized) continue;
    if (at + size > end) return;
    visit(code, at, size);
    at += size;
  }
}

void AddAttribute(Image* image, uint8_t code, const char* value, uint32_t bytes) {
  if (code == kMostThreadsOf && bytes == 12) {
    image->most_threads = static_cast<int>(WordAt(value) * WordAt(value + 4) * WordAt(value + 8));
  } else if (code == kParameter && bytes == 12) {
    const size_t ordinal = WordAt(value + 4) & 0xffff;
    if (image->parameters.size() <= ordinal) image->parameters.resize(ordinal + 1);
    image->parameters[ordinal] = static_cast<int>(WordAt(value + 8) >> 18);
  }
}

// Reads from a cubin what its sections say about each kernel.
void ReadCubin(const char* elf, int capability) {
  const auto* const header = reinterpret_cast<const Elf64_Ehdr*>(elf);
  const auto* const sections = reinterpret_cast<const Elf64_Shdr*>(elf + header->e_shoff);
  const char* const names = elf + sections[header->e_shstrndx].sh_offset;
  const Elf64_Sym* symbols = nullptr;
  const char* symbol_names = nullptr;
  for (int i = 0; i < header->e_shnum; ++i) {
    if (sections[i].sh_type != SHT_SYMTAB) continue;
    symbols = reinterpret_cast<const Elf64_Sym*>(elf + sections[i].sh_offset);
    symbol_names = elf + sections[sections[i].sh_link].sh_offset;
  }
  const auto image_of = [&](const char* name) -> Image* {
    const auto found = AllKernels().find(name);
    return found == AllKernels().end() ? nullptr : &found->second.images[capability];
  };
  for (int i = 0; i < header->e_shnum; ++i) {
    const char* const name = names + sections[i].sh_name;
    if (strncmp(name, ".text.", 6) == 0) AllKernels()[name + 6].images[capability];
  }
  for (int i = 0; i < header->e_shnum; ++i) {
    const std::string name = names + sections[i].sh_name;
    const char* const content = elf + sections[i].sh_offset;
    const size_t bytes = sections[i].sh_size;
    if (name == ".nv.info") {
      EachAttribute(content, bytes, [&](uint8_t code, const char* value, uint32_t) {
        if (code != kRegistersOf || symbols == nullptr) return;
        Image* image = image_of(symbol_names + symbols[WordAt(value)].st_name);
        if (image != nullptr) image->registers = static_cast<int>(WordAt(value + 4));
      });
    } else if (name.rfind(".nv.info.", 0) == 0) {
      Image* const image = image_of(name.c_str() + 9);
      if (image == nullptr) continue;
      EachAttribute(content, bytes, [&](uint8_t code, const char* value, uint32_t size) {
        AddAttribute(image, code, value, size);
      });
    } else if (name.rfind(".nv.shared.", 0) == 0) {
      Image* const image = image_of(name.c_str() + 11);
      if (image == nullptr) continue;
      const int reserved = capability >= kReservedFrom ? kReservedBytes : 0;
      image->static_bytes = static_cast<int>(bytes) - reserved;
    }
  }
}

}  // namespace

Kernels& AllKernels() {
  static auto* const kernels = new Kernels;
  return *kernels;
}

namespace {

std::map<const void*, Kernel*>& Entries() {
  static auto* const entries = new std::map<const void*, Kernel*>;
  return *entries;
}

}  // namespace

Kernel* Find(const void* entry) {
  const auto found = Entries().find(entry);
  return found == Entries().end() ? nullptr : found->second;
}

void Bind(const void* entry, Kernel* kernel) { Entries()[entry] = kernel; }

const Image* Kernel::On(int device) const {
  const int capability = kDevices[device].capability;
  const Image* best = nullptr;
  for (const auto& [built, image] : images) {
    if (built / 10 == capability / 10 && built <= capability) best = &image;
  }
  return best;
}

void ReadFatBinary(const void* data) {
  FatHeader header;
  memcpy(&header, data, sizeof(header));
  if (header.magic != kFatMagic) {
    Fault("a fat binary begins with %#x", header.magic);
    return;
  }
  const char* at = static_cast<const char*>(data) + header.header_bytes;
  const char* const end = at + header.bytes;
  while (at < end) {
    FatEntry entry;
    memcpy(&entry, at, sizeof(entry));
    const char* const content = at + entry.header_bytes;
    if (entry.kind == kElf) {
      if (memcmp(content, ELFMAG, SELFMAG) == 0) {
        ReadCubin(content, static_cast<int>(entry.capability));
      } else {
        Fault("machine code for %u is compressed", entry.capability);
      }
    }
    at = content + entry.bytes;
  }
}

}  // namespace stand_in
