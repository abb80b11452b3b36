// Binds the functions that say how much workspace a handler needs.
#pragma once

#include <nanobind/nanobind.h>

namespace jaxsparse {

void BindWorkspace(nanobind::module_& m);

}  // namespace jaxsparse
