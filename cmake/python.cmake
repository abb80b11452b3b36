# Python, nanobind and the headers of the XLA FFI. The headers' version is baked into every handler, and a runtime takes
# its own version or older: so they come from the oldest jaxlib that is supported (pyproject.toml: build-system.requires).
find_package(Python 3.11 REQUIRED COMPONENTS Interpreter Development.Module OPTIONAL_COMPONENTS Development.SABIModule)

execute_process(
  COMMAND ${Python_EXECUTABLE} -m nanobind --cmake_dir
  OUTPUT_STRIP_TRAILING_WHITESPACE OUTPUT_VARIABLE nanobind_ROOT COMMAND_ERROR_IS_FATAL ANY)
find_package(nanobind CONFIG REQUIRED)

execute_process(
  COMMAND ${Python_EXECUTABLE} -c "import importlib.util as u; print(u.find_spec('jaxlib').submodule_search_locations[0])"
  OUTPUT_STRIP_TRAILING_WHITESPACE OUTPUT_VARIABLE jaxlib_dir COMMAND_ERROR_IS_FATAL ANY)
set(JAXSPARSE_XLA_INCLUDE ${jaxlib_dir}/include)
if(NOT EXISTS ${JAXSPARSE_XLA_INCLUDE}/xla/ffi/api/ffi.h)
  message(FATAL_ERROR "jaxsparse: no XLA FFI headers in ${JAXSPARSE_XLA_INCLUDE}; install jaxlib==0.10.2")
endif()
