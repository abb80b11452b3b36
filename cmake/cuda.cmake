# _cuda: the CUDA kernels and handlers. cmake/decide.py says whether, with which compiler and for which architectures.
# Kernels (*.cu) never see the FFI headers (they warn under nvcc); handlers (*.cc) are the host compiler's.
foreach(name JAXSPARSE_CUDA JAXSPARSE_CUDA_ARCHITECTURES)  # -D<name>=... stands for the environment variable
  if(DEFINED ${name})
    set(ENV{${name}} "${${name}}")
  endif()
endforeach()
execute_process(
  COMMAND ${Python_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/cmake/decide.py
  OUTPUT_STRIP_TRAILING_WHITESPACE OUTPUT_VARIABLE decision COMMAND_ERROR_IS_FATAL ANY)
foreach(fact cuda why architectures root owner error)
  string(JSON cuda_${fact} GET "${decision}" ${fact})
endforeach()
if(cuda_error)
  message(FATAL_ERROR "jaxsparse: ${cuda_error}")
endif()

if(cuda_cuda)
  set(CMAKE_CUDA_COMPILER ${cuda_root}/bin/nvcc)
  set(CMAKE_CUDA_ARCHITECTURES 80-real)  # CMake wants one; the kernels' own are cuda/CMakeLists.txt's
  set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
  if(NOT cuda_owner STREQUAL "machine")  # PyPI's wheels keep the runtime in lib/, where nvcc does not look
    set(ENV{CUDAFLAGS} "-L${cuda_root}/lib $ENV{CUDAFLAGS}")
  endif()
  enable_language(CUDA)

  # The kernels are a project of their own (cuda/CMakeLists.txt). With the machine's compiler its folder is kept beside
  # the wheels' (build/kernels/<compiler>-<architectures>), so that a wheel for another Python compiles none again. Two
  # builds at once in one checkout would meet there: one after the other.
  string(REPLACE ";" "_" kernels "${CMAKE_CUDA_COMPILER_VERSION}-${cuda_architectures}")
  if(NOT "${CMAKE_BUILD_TYPE}, ${CMAKE_GENERATOR}" STREQUAL "Release, Ninja")
    string(MAKE_C_IDENTIFIER "${CMAKE_BUILD_TYPE}_${CMAKE_GENERATOR}" other)
    string(APPEND kernels "-${other}")
  endif()
  set(kernels ${CMAKE_CURRENT_SOURCE_DIR}/build/kernels/${kernels})
  if(NOT cuda_owner STREQUAL "machine")
    set(kernels ${CMAKE_CURRENT_BINARY_DIR}/kernels)
  endif()
  set(variant_ops masked_conv masked_conv_mma masked_conv_dkernel pruned_rows pruned_windows grouped_matmul masked_matmul)
  include(ExternalProject)
  include(hopper)
  ExternalProject_Add(kernels
    SOURCE_DIR ${CMAKE_CURRENT_SOURCE_DIR}/cuda
    BINARY_DIR ${kernels}
    CMAKE_ARGS -DCMAKE_BUILD_TYPE=${CMAKE_BUILD_TYPE} -DCMAKE_CUDA_COMPILER=${CMAKE_CUDA_COMPILER} -DPython_EXECUTABLE=${Python_EXECUTABLE}
    CMAKE_CACHE_ARGS -DCMAKE_CUDA_FLAGS:STRING=${CMAKE_CUDA_FLAGS} -DJAXSPARSE_CUDA_ARCHITECTURES:STRING=${cuda_architectures} -DJAXSPARSE_VARIANT_OPS:STRING=${variant_ops}
    INSTALL_COMMAND ""
    BUILD_ALWAYS ON
    USES_TERMINAL_BUILD ON
    BUILD_BYPRODUCTS ${kernels}/libjaxsparse_kernels.a)

  file(GLOB_RECURSE cuda_sources CONFIGURE_DEPENDS cuda/*.cc)
  foreach(op IN LISTS variant_ops)
    jaxsparse_variants(cuda ${op} units)  # the handlers' tables and Python's; the units are the kernels'
  endforeach()
  nanobind_add_module(_cuda STABLE_ABI NB_STATIC NOMINSIZE ${cuda_sources})
  add_dependencies(_cuda kernels)
  # No source here is CUDA, so CMake adds no runtime by itself.
  target_link_libraries(_cuda PRIVATE ${kernels}/libjaxsparse_kernels.a cudadevrt cudart_static rt pthread dl)
  set_target_properties(_cuda PROPERTIES LINKER_LANGUAGE CUDA)
  target_include_directories(_cuda PRIVATE ${CMAKE_CURRENT_SOURCE_DIR} ${JAXSPARSE_VARIANTS_DIR}/cuda)
  target_include_directories(_cuda SYSTEM PRIVATE ${JAXSPARSE_XLA_INCLUDE} ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES})
  jaxsparse_contracts(cuda _cuda)
  target_compile_options(_cuda PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-O3 -Wall -Wextra>)
  string(REPLACE ";" "," architectures "${cuda_architectures}")
  target_compile_definitions(_cuda PRIVATE JAXSPARSE_ARCHITECTURES="${architectures}")
  jaxsparse_hopper_kernels(_cuda "${cuda_architectures}")
  install(TARGETS _cuda LIBRARY DESTINATION jaxsparse)
endif()
message(STATUS "jaxsparse: CUDA module ${cuda_cuda} (${cuda_why})")

file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/build_info.json CONTENT
  "{\"cuda\": \"@cuda_cuda@\", \"why\": \"@cuda_why@\", \"architectures\": \"@architectures@\"}\n" @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/build_info.json DESTINATION jaxsparse)
