// Binds the functions that say how much workspace the grouped products and route need.
#pragma once

#include <nanobind/nanobind.h>

namespace jaxsparse {

void BindGroupedWorkspace(nanobind::module_& m);

}  // namespace jaxsparse
