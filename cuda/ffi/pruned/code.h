// Generated code of frozen weights: the process's table of products, each some modules, named by
// the digest of their texts.
#pragma once

#include <cuda_runtime_api.h>
#include <nanobind/nanobind.h>

#include <cstdint>
#include <string>

#include "cuda/tile/pruned_args.h"

namespace jaxsparse {

// pruned_code_add(digest, [(ptx, slices)], facts): one more user of a product; the facts say what
// it was made for. pruned_code_drop(digest): one user less; the last one unloads it.
void BindPrunedCode(nanobind::module_& m);

// Loads the modules on the current device; returns what is wrong, or an empty string.
std::string PreparePrunedCode(int64_t digest);

cudaError_t LaunchPrunedCode(const PrunedArgs& args, int64_t digest, cudaStream_t stream);

}  // namespace jaxsparse
