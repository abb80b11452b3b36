# jaxsparse_variants(<platform> <op> <out_var>): run generate_variants.py on <platform>/variants/<op>.toml. The translation units
# are returned in <out_var>, the launcher table is <op>_table.inc on the include path, the Python table is installed
# beside jaxsparse/select.
get_filename_component(JAXSPARSE_ROOT ${CMAKE_CURRENT_LIST_DIR} DIRECTORY)
set(JAXSPARSE_VARIANTS_DIR ${CMAKE_CURRENT_BINARY_DIR}/variants)

function(jaxsparse_variants platform op out_var)
  set(table ${JAXSPARSE_ROOT}/${platform}/variants/${op}.toml)
  set(script ${JAXSPARSE_ROOT}/cmake/generate_variants.py)
  set(out ${JAXSPARSE_VARIANTS_DIR}/${platform})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${table} ${script})
  execute_process(
    COMMAND ${Python_EXECUTABLE} ${script} ${table} --out-dir ${out}
    OUTPUT_STRIP_TRAILING_WHITESPACE OUTPUT_VARIABLE units COMMAND_ERROR_IS_FATAL ANY)
  string(REPLACE "\n" ";" units "${units}")
  set(${out_var} ${units} PARENT_SCOPE)
  install(FILES ${out}/${op}_variants.json DESTINATION jaxsparse/select/variants/${platform})
endfunction()

# jaxsparse_contracts(<platform> <target>): run generate_contracts.py, and put the decoders of the platform's handlers
# (contracts/<handler>.gen.h) on the target's include path.
function(jaxsparse_contracts platform target)
  set(script ${JAXSPARSE_ROOT}/cmake/generate_contracts.py)
  set(out ${CMAKE_CURRENT_BINARY_DIR}/contracts/${platform})
  file(GLOB sources CONFIGURE_DEPENDS ${JAXSPARSE_ROOT}/contracts/*.toml ${JAXSPARSE_ROOT}/cmake/contract/*.py
       ${JAXSPARSE_ROOT}/${platform}/variants/*.toml)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${sources} ${script})
  execute_process(COMMAND ${Python_EXECUTABLE} ${script} --platform ${platform} --out-dir ${out} COMMAND_ERROR_IS_FATAL ANY)
  target_include_directories(${target} PRIVATE ${out})
endfunction()
