# JAXSPARSE_HOPPER_KERNELS=<0|1> for a target: whether the list of architectures holds machine code for sm_90a. Without it
# a Hopper is a GPU like others to the host (cuda/core/device.h), and no kernel is launched that was left out.
function(jaxsparse_hopper_kernels target architectures)
  set(held 0)
  if(";${architectures};" MATCHES ";90a(-real)?;")
    set(held 1)
  endif()
  target_compile_definitions(${target} PRIVATE JAXSPARSE_HOPPER_KERNELS=${held})
endfunction()
