# _cpu: the C++ handlers. Always built. Units under cpu/isa/ are compiled once per instruction set, by the suffix of
# their name, and chosen among at run time.
file(GLOB cpu_sources CONFIGURE_DEPENDS
  cpu/*.cc cpu/bits/*.cc cpu/core/*.cc cpu/index/*.cc cpu/kernels/*.cc cpu/ffi/*.cc cpu/isa/*.cc)

jaxsparse_variants(cpu masked_conv cpu_units)
jaxsparse_variants(cpu grouped_matmul cpu_grouped_matmul_units)
jaxsparse_variants(cpu masked_matmul cpu_masked_matmul_units)

string(TOLOWER "${CMAKE_SYSTEM_PROCESSOR}" processor)
if(processor MATCHES "x86_64|amd64")
  set(foreign_isa "_neon\\.cc$")
  set(avx2_flags -mavx2 -mfma -mf16c)
  set(avx512_flags -mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma -mf16c -mprefer-vector-width=512)
elseif(processor MATCHES "aarch64|arm64")
  set(foreign_isa "_avx(2|512)\\.cc$")
else()
  set(foreign_isa "_(avx2|avx512|neon)\\.cc$")
endif()
list(FILTER cpu_sources EXCLUDE REGEX ${foreign_isa})
foreach(source IN LISTS cpu_sources)
  foreach(isa avx2 avx512)
    if(source MATCHES "/isa/.*_${isa}\\.cc$")
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "${${isa}_flags}")
    endif()
  endforeach()
endforeach()

nanobind_add_module(_cpu STABLE_ABI NB_STATIC NOMINSIZE ${cpu_sources} ${cpu_units} ${cpu_grouped_matmul_units} ${cpu_masked_matmul_units})
target_include_directories(_cpu PRIVATE ${CMAKE_CURRENT_SOURCE_DIR} ${CMAKE_CURRENT_BINARY_DIR}/variants/cpu)
target_include_directories(_cpu SYSTEM PRIVATE ${JAXSPARSE_XLA_INCLUDE})
target_compile_options(_cpu PRIVATE -O3 -Wall -Wextra)
install(TARGETS _cpu LIBRARY DESTINATION jaxsparse)
