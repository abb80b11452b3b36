// The table of generated code. Text arrives from Python, which wrote it from the pattern; the
// driver compiles it for the device before the first execution, and forgets it with its last user.
#include "cuda/ffi/pruned/code.h"

#include <nanobind/stl/array.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "cuda/ffi/common.h"

namespace jaxsparse {
namespace {

constexpr int64_t kPanelBytes = int64_t{16} << 20;  // of x between two passes over the slices

// k, n, type of x, type of the result, row tiles of a block, threads, shared bytes, blocks of a
// cluster, whether a module may begin before the one before it has ended.
using Facts = std::array<int64_t, 9>;
// A module's text, and how many slices of the outputs it has.
using Text = std::pair<std::string, int64_t>;

// Slices of a product: assembled and launched by themselves.
struct Module {
  std::string ptx;
  int64_t slices;
  cudaLibrary_t library = nullptr;
  cudaKernel_t kernel = nullptr;

  cudaError_t Load() {
    if (library != nullptr) return cudaSuccess;
    cudaLibrary_t loaded = nullptr;
    cudaError_t error =
        cudaLibraryLoadData(&loaded, ptx.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0);
    if (error != cudaSuccess) return error;
    error = cudaLibraryGetKernel(&kernel, loaded, "pruned");
    if (error == cudaSuccess) {
      library = loaded;
    } else {
      cudaLibraryUnload(loaded);
    }
    return error;
  }
};

// Assembles the modules side by side, on threads of their own where the system has some left.
cudaError_t LoadAll(std::vector<Module>* modules, int device) {
  std::vector<std::thread> threads;
  std::vector<cudaError_t> errors(modules->size(), cudaSuccess);
  threads.reserve(modules->size());
  for (size_t i = 0; i < modules->size(); ++i) {
    const auto load = [&errors, modules, device, i] {
      errors[i] = cudaSetDevice(device);
      if (errors[i] == cudaSuccess) errors[i] = (*modules)[i].Load();
    };
    try {
      threads.emplace_back(load);
    } catch (const std::system_error&) {
      load();
    }
  }
  for (std::thread& thread : threads) thread.join();
  const auto failed =
      std::find_if(errors.begin(), errors.end(), [](cudaError_t e) { return e != cudaSuccess; });
  return failed == errors.end() ? cudaSuccess : *failed;
}

class Product {
 public:
  Product(const std::vector<Text>& texts, const Facts& facts) : facts_(facts) {
    for (const auto& [ptx, slices] : texts) modules_.push_back({ptx, slices});
  }
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;
  ~Product() {
    for (const Module& module : modules_) {
      if (module.library != nullptr) cudaLibraryUnload(module.library);
    }
  }

  // Assembles the modules, and raises the device's limits; only the first time takes time.
  cudaError_t Prepare() {
    const std::lock_guard<std::mutex> lock(loading_);
    int device = 0;
    cudaError_t error = cudaGetDevice(&device);
    if (error != cudaSuccess || devices_.count(device) != 0) return error;
    error = LoadAll(&modules_, device);
    for (size_t i = 0; error == cudaSuccess && i < modules_.size(); ++i) {
      error = cudaKernelSetAttributeForDevice(modules_[i].kernel,
                                              cudaFuncAttributeMaxDynamicSharedMemorySize,
                                              static_cast<int>(facts_[6]), device);
    }
    if (error != cudaSuccess) return error;
    devices_.insert(device);
    ready_ = true;
    return cudaSuccess;
  }

  bool ready() const { return ready_; }
  const Facts& facts() const { return facts_; }
  const std::vector<Module>& modules() const { return modules_; }  // of a product that is ready

  int users = 0;  // the table's

 private:
  std::mutex loading_;
  std::vector<Module> modules_;
  Facts facts_;
  std::set<int> devices_;  // whose shared-memory limits are raised
  std::atomic<bool> ready_ = false;
};

// The products by their digests. Its lock is held for look-ups only: what takes time, assembling
// and unloading, is done outside of it.
class CodeTable {
 public:
  void Add(int64_t digest, const std::vector<Text>& texts, const Facts& facts) {
    const auto fresh = std::make_shared<Product>(texts, facts);
    const std::lock_guard<std::mutex> lock(mutex_);
    ++products_.emplace(digest, fresh).first->second->users;
  }

  void Drop(int64_t digest) {
    std::shared_ptr<Product> last;  // ends after the lock
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = products_.find(digest);
    if (found == products_.end() || --found->second->users > 0) return;
    last = std::move(found->second);
    products_.erase(found);
  }

  size_t Count() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return products_.size();
  }

  // The product, or nullptr; a caller that holds it may launch it, also after its last user.
  std::shared_ptr<Product> Find(int64_t digest) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = products_.find(digest);
    return found == products_.end() ? nullptr : found->second;
  }

 private:
  std::mutex mutex_;
  std::map<int64_t, std::shared_ptr<Product>> products_;
};

CodeTable& Table() {
  static CodeTable* const table = new CodeTable;  // outlives the driver's own teardown
  return *table;
}

}  // namespace

void BindPrunedCode(nanobind::module_& m) {
  using Given = std::pair<nanobind::bytes, int64_t>;
  m.def("pruned_code_add", [](int64_t digest, const std::vector<Given>& given, const Facts& facts) {
    std::vector<Text> texts;
    for (const auto& [ptx, slices] : given) {
      texts.emplace_back(std::string(ptx.c_str(), ptx.size()), slices);
    }
    const nanobind::gil_scoped_release waiting;  // for the table's lock
    Table().Add(digest, texts, facts);
  });
  m.def(
      "pruned_code_drop", [](int64_t digest) { Table().Drop(digest); },
      nanobind::call_guard<nanobind::gil_scoped_release>());
  m.def(
      "pruned_code_count", [] { return Table().Count(); },
      nanobind::call_guard<nanobind::gil_scoped_release>());
}

std::string PreparePrunedCode(int64_t digest) {
  const std::shared_ptr<Product> product = Table().Find(digest);
  if (product == nullptr) {
    return "the generated code of this call is not in this process: trace the function again "
           "with its plan, or under js.config(variant=\"dense\") where its executable is to run "
           "elsewhere";
  }
  const cudaError_t error = product->Prepare();
  return error == cudaSuccess ? "" : "generated code: " + TakeError(error);
}

cudaError_t LaunchPrunedCode(const PrunedArgs& args, int64_t digest, cudaStream_t stream) {
  const std::shared_ptr<const Product> product = Table().Find(digest);
  if (product == nullptr || !product->ready()) return cudaErrorInvalidValue;
  const auto [k, n, in_type, out_type, row_tiles, threads, shared, parts, overlap] =
      product->facts();
  const int64_t blocks = (args.m + 32 * row_tiles - 1) / (32 * row_tiles);
  if (args.k != k || args.n != n || static_cast<int64_t>(args.in_type) != in_type ||
      static_cast<int64_t>(args.out_type) != out_type || args.m < 32 ||
      args.m > INT32_MAX - 32 * row_tiles) {
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
  const int64_t mates = threads / (32 * row_tiles);  // warps of a row tile: a slice each
  // The modules are parts of one product: each ends after the one before it, and only the first
  // waits for what came before.
  cudaLaunchAttribute early;
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = static_cast<size_t>(shared);
  config.stream = stream;
  config.attrs = &early;
  for (const Module& module : product->modules()) {
    const int64_t grid = blocks * (module.slices / mates) * parts;
    if (grid > INT32_MAX) return cudaErrorInvalidValue;
    config.gridDim = dim3(static_cast<unsigned>(grid));
    const cudaError_t error =
        cudaLaunchKernelExC(&config, reinterpret_cast<const void*>(module.kernel), parameters);
    if (error != cudaSuccess) return error;
    config.numAttrs = overlap != 0 ? 1 : 0;
  }
  return cudaSuccess;
}

}  // namespace jaxsparse
