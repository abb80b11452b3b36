// Binds the packing of the CUDA executor `runs`.
#pragma once

#include <nanobind/nanobind.h>

namespace jaxsparse {

void BindRunsPack(nanobind::module_& m);

}  // namespace jaxsparse
