// The table of generated code. Text arrives from Python, which wrote it from the pattern; the
// driver compiles it for the device before the first execution, and forgets it with its last user.
#include "cuda/ffi/pruned_code.h"

#include <nanobind/stl/array.h>

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <set>
#include <string>

#include "cuda/ffi/common.h"

namespace jaxsparse {
namespace {

constexpr int64_t kPanelBytes = int64_t{16} << 20;  // of x between two passes over the slices

// k, n, type of x, type of the result, slices, row tiles of a block, threads, shared bytes.
using Facts = std::array<int64_t, 8>;

struct Module {
  std::string ptx;
  Facts facts;
  int users = 0;
  cudaLibrary_t library = nullptr;
  cudaKernel_t kernel = nullptr;
  std::set<int> devices;  // whose shared-memory limit is raised
};

class CodeTable {
 public:
  void Add(int64_t digest, const char* ptx, size_t size, const Facts& facts) {
    const std::lock_guard<std::mutex> lock(mutex_);
    Module& module = modules_[digest];
    if (module.users++ == 0) {
      module.ptx.assign(ptx, size);
      module.facts = facts;
    }
  }

  void Drop(int64_t digest) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = modules_.find(digest);
    if (found == modules_.end() || --found->second.users > 0) return;
    if (found->second.library != nullptr) cudaLibraryUnload(found->second.library);
    modules_.erase(found);
  }

  std::string Prepare(int64_t digest) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = modules_.find(digest);
    if (found == modules_.end()) {
      return "the generated code of this call is not in this process: trace the function again "
             "with its plan";
    }
    Module& module = found->second;
    int device = 0;
    cudaError_t error = cudaGetDevice(&device);
    if (error == cudaSuccess && module.library == nullptr) error = Load(&module);
    if (error == cudaSuccess && module.devices.count(device) == 0) {
      error = cudaKernelSetAttributeForDevice(module.kernel,
                                              cudaFuncAttributeMaxDynamicSharedMemorySize,
                                              static_cast<int>(module.facts[7]), device);
      if (error == cudaSuccess) module.devices.insert(device);
    }
    return error == cudaSuccess ? "" : "generated code: " + TakeError(error);
  }

  cudaError_t Find(int64_t digest, cudaKernel_t* kernel, Facts* facts) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = modules_.find(digest);
    if (found == modules_.end() || found->second.kernel == nullptr) return cudaErrorInvalidValue;
    *kernel = found->second.kernel;
    *facts = found->second.facts;
    return cudaSuccess;
  }

 private:
  static cudaError_t Load(Module* module) {
    cudaError_t error = cudaLibraryLoadData(&module->library, module->ptx.c_str(), nullptr, nullptr,
                                            0, nullptr, nullptr, 0);
    if (error != cudaSuccess) {
      module->library = nullptr;
      return error;
    }
    return cudaLibraryGetKernel(&module->kernel, module->library, "pruned");
  }

  std::mutex mutex_;
  std::map<int64_t, Module> modules_;
};

CodeTable& Table() {
  static CodeTable* const table = new CodeTable;  // outlives the driver's own teardown
  return *table;
}

}  // namespace

void BindPrunedCode(nanobind::module_& m) {
  m.def("pruned_code_add", [](int64_t digest, nanobind::bytes ptx, const Facts& facts) {
    Table().Add(digest, ptx.c_str(), ptx.size(), facts);
  });
  m.def("pruned_code_drop", [](int64_t digest) { Table().Drop(digest); });
}

std::string PreparePrunedCode(int64_t digest) { return Table().Prepare(digest); }

cudaError_t LaunchPrunedCode(const PrunedArgs& args, int64_t digest, cudaStream_t stream) {
  cudaKernel_t kernel = nullptr;
  Facts facts;
  const cudaError_t error = Table().Find(digest, &kernel, &facts);
  if (error != cudaSuccess) return error;
  const auto [k, n, in_type, out_type, slices, row_tiles, threads, shared] = facts;
  const int64_t blocks = (args.m + 32 * row_tiles - 1) / (32 * row_tiles);
  if (args.k != k || args.n != n || static_cast<int64_t>(args.in_type) != in_type ||
      static_cast<int64_t>(args.out_type) != out_type || args.m < 32 ||
      args.m > INT32_MAX - 32 * row_tiles || blocks * slices > INT32_MAX) {
    return cudaErrorInvalidValue;
  }
  const int64_t row_bytes = k * (args.in_type == DType::kF32 ? 4 : 2);
  const void* x = args.x;
  void* out = args.out;
  const void* bias = args.bias;
  uint32_t rows = static_cast<uint32_t>(args.m);
  uint32_t panel = static_cast<uint32_t>(
      std::clamp<int64_t>(kPanelBytes / (row_bytes * 32 * row_tiles), 1, blocks));
  uint32_t activation = static_cast<uint32_t>(args.activation);
  void* parameters[] = {&x, &out, &bias, &rows, &panel, &activation};
  return cudaLaunchKernel(
      reinterpret_cast<const void*>(kernel), dim3(static_cast<unsigned>(blocks * slices)),
      dim3(static_cast<unsigned>(threads)), parameters, static_cast<size_t>(shared), stream);
}

}  // namespace jaxsparse
