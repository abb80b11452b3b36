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
    OUTPUT_STRIP_TRAILING_WHITESPACE OUTPUT_VARIABLE toolkit)
  if(toolkit)
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
  set(CMAKE_CUDA_STANDARD 17)
  set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
  enable_language(CUDA)
  file(GLOB cuda_sources CONFIGURE_DEPENDS
    cuda/*.cc cuda/bits/*.cu cuda/index/*.cu cuda/kernels/*.cu cuda/ffi/*.cc)
  jaxsparse_variants(cuda masked_conv cuda_units)
  jaxsparse_variants(cuda masked_conv_dkernel dkernel_units)
  jaxsparse_variants(cuda pruned_rows pruned_rows_units)
  jaxsparse_variants(cuda grouped_matmul grouped_units)
  jaxsparse_variants(cuda masked_matmul masked_matmul_units)
  nanobind_add_module(_cuda STABLE_ABI NB_STATIC NOMINSIZE ${cuda_sources} ${cuda_units} ${dkernel_units} ${pruned_rows_units} ${grouped_units})
  target_include_directories(_cuda PRIVATE ${CMAKE_CURRENT_SOURCE_DIR} ${CMAKE_CURRENT_BINARY_DIR}/variants/cuda)
  target_include_directories(_cuda SYSTEM PRIVATE ${JAXSPARSE_XLA_INCLUDE} ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES})
  target_compile_options(_cuda PRIVATE
    $<$<COMPILE_LANGUAGE:CUDA>:-O3 --expt-relaxed-constexpr -Xcompiler=-fvisibility=hidden>
    $<$<COMPILE_LANGUAGE:CXX>:-O3 -Wall -Wextra>)
  string(REPLACE ";" "," architectures "${JAXSPARSE_CUDA_ARCHITECTURES}")
  target_compile_definitions(_cuda PRIVATE JAXSPARSE_ARCHITECTURES="${architectures}")
  install(TARGETS _cuda LIBRARY DESTINATION jaxsparse)
endif()
message(STATUS "jaxsparse: CUDA module ${cuda_built} (${cuda_word})")

file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/build_info.json CONTENT
  "{\"cuda\": \"@cuda_built@\", \"cuda_wish\": \"@cuda_wish@\", \"why\": \"@cuda_word@\", \"architectures\": \"@architectures@\"}\n" @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/build_info.json DESTINATION jaxsparse)
