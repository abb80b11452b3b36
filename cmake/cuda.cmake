# _cuda: the CUDA kernels and handlers. JAXSPARSE_CUDA: AUTO builds them where nvcc is found, ON demands them, OFF leaves
# them out. Kernels (*.cu) never see the FFI headers (they warn under nvcc); handlers (*.cc) are the host compiler's.
if(DEFINED ENV{JAXSPARSE_CUDA})
  set(jaxsparse_cuda_default $ENV{JAXSPARSE_CUDA})
else()
  set(jaxsparse_cuda_default AUTO)
endif()
set(JAXSPARSE_CUDA ${jaxsparse_cuda_default} CACHE STRING "build the CUDA module: AUTO, ON or OFF")
string(TOUPPER "${JAXSPARSE_CUDA}" cuda_wish)
if(NOT cuda_wish MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "jaxsparse: JAXSPARSE_CUDA is '${JAXSPARSE_CUDA}'; it takes AUTO, ON or OFF")
endif()

set(cuda_built OFF)
set(cuda_word "JAXSPARSE_CUDA=OFF")
if(NOT cuda_wish STREQUAL "OFF")
  # The machine's toolkit first, then NVIDIA's wheels in the build environment (cmake/backend.py asks for them).
  execute_process(
    COMMAND ${Python_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/cmake/find_toolkit.py
    OUTPUT_STRIP_TRAILING_WHITESPACE OUTPUT_VARIABLE found)
  if(found)
    list(GET found 0 toolkit)
    list(GET found 1 toolkit_owner)
    set(cuda_built ON)
    set(CMAKE_CUDA_COMPILER ${toolkit}/bin/nvcc)
    set(cuda_word "compiler in ${toolkit}")
  elseif(cuda_wish STREQUAL "ON")
    message(FATAL_ERROR "jaxsparse: JAXSPARSE_CUDA=ON and no nvcc: set CUDA_HOME, put nvcc on PATH, or pip install "
      "nvidia-cuda-nvcc nvidia-cuda-crt nvidia-cuda-runtime nvidia-cuda-cccl nvidia-nvvm (13.0.*)")
  else()
    set(cuda_word "no nvcc found")
  endif()
endif()

set(JAXSPARSE_CUDA_ARCHITECTURES "80-real;90a-real;90-virtual" CACHE STRING "CUDA architectures of the fatbin")
if(DEFINED ENV{JAXSPARSE_CUDA_ARCHITECTURES})
  set(JAXSPARSE_CUDA_ARCHITECTURES "$ENV{JAXSPARSE_CUDA_ARCHITECTURES}")
endif()

if(cuda_built)
  set(CMAKE_CUDA_ARCHITECTURES ${JAXSPARSE_CUDA_ARCHITECTURES})
  set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
  enable_language(CUDA)

  # The kernels are a project of their own (cuda/CMakeLists.txt). With the machine's compiler its folder is kept beside
  # the wheels' (build/kernels/<compiler>-<architectures>), so that a wheel for another Python compiles none again. Two
  # builds at once in one checkout would meet there: one after the other.
  string(REPLACE ";" "_" kernels "${CMAKE_CUDA_COMPILER_VERSION}-${JAXSPARSE_CUDA_ARCHITECTURES}")
  if(NOT "${CMAKE_BUILD_TYPE}, ${CMAKE_GENERATOR}" STREQUAL "Release, Ninja")
    string(MAKE_C_IDENTIFIER "${CMAKE_BUILD_TYPE}_${CMAKE_GENERATOR}" other)
    string(APPEND kernels "-${other}")
  endif()
  set(kernels ${CMAKE_CURRENT_SOURCE_DIR}/build/kernels/${kernels})
  if(NOT toolkit_owner STREQUAL "machine")
    set(kernels ${CMAKE_CURRENT_BINARY_DIR}/kernels)
  endif()
  set(variant_ops masked_conv masked_conv_mma masked_conv_dkernel pruned_rows pruned_windows grouped_matmul masked_matmul)
  include(ExternalProject)
  ExternalProject_Add(kernels
    SOURCE_DIR ${CMAKE_CURRENT_SOURCE_DIR}/cuda
    BINARY_DIR ${kernels}
    CMAKE_ARGS -DCMAKE_BUILD_TYPE=${CMAKE_BUILD_TYPE} -DCMAKE_CUDA_COMPILER=${CMAKE_CUDA_COMPILER} -DPython_EXECUTABLE=${Python_EXECUTABLE}
    CMAKE_CACHE_ARGS -DCMAKE_CUDA_ARCHITECTURES:STRING=${JAXSPARSE_CUDA_ARCHITECTURES} -DJAXSPARSE_VARIANT_OPS:STRING=${variant_ops}
    INSTALL_COMMAND ""
    BUILD_ALWAYS ON
    USES_TERMINAL_BUILD ON
    BUILD_BYPRODUCTS ${kernels}/libjaxsparse_kernels.a)

  file(GLOB cuda_sources CONFIGURE_DEPENDS cuda/*.cc cuda/ffi/*.cc)
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
  target_compile_options(_cuda PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-O3 -Wall -Wextra>)
  string(REPLACE ";" "," architectures "${JAXSPARSE_CUDA_ARCHITECTURES}")
  target_compile_definitions(_cuda PRIVATE JAXSPARSE_ARCHITECTURES="${architectures}")
  install(TARGETS _cuda LIBRARY DESTINATION jaxsparse)
endif()
message(STATUS "jaxsparse: CUDA module ${cuda_built} (${cuda_word})")

file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/build_info.json CONTENT
  "{\"cuda\": \"@cuda_built@\", \"cuda_wish\": \"@cuda_wish@\", \"why\": \"@cuda_word@\", \"architectures\": \"@architectures@\"}\n" @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/build_info.json DESTINATION jaxsparse)
