"""The CUDA handlers' checks on a machine without a GPU: a library with a handler for each contract
of CUDA that checks the call and does nothing else, for the platform `cpu`.
"""

import ctypes
import subprocess
from pathlib import Path

import jax
from ffi.hostile.draw import ROOT, decoder, handlers

PREFIX = "jaxsparse_checks_of_"

#: Nothing of the library is found by name but its handlers, and it finds its own functions first:
#: other libraries of the process hold XLA's headers, too, in other versions.
ALONE = ["-fvisibility=hidden", "-fvisibility-inlines-hidden", "-Wl,-Bsymbolic"]

_HANDLER = """
namespace jaxsparse {{
::xla::ffi::Error Check_{name}({takes}::xla::ffi::RemainingArgs operands,
                               ::xla::ffi::RemainingRets results) {{
  const auto call = contract::{name}::Decode({gives}operands, results);
  return call.has_error() ? call.error() : ::xla::ffi::Error::Success();
}}
}}
extern "C" __attribute__((visibility("default"))) XLA_FFI_Error* Checks_{name}(XLA_FFI_CallFrame*);
XLA_FFI_DEFINE_HANDLER_SYMBOL(Checks_{name}, jaxsparse::Check_{name},
                              ::xla::ffi::Ffi::Bind(){binds}.RemainingArgs().RemainingRets());
"""


def build(folder: Path, compiler: str) -> Path:
    """Compile the library in `folder`; its path."""
    (folder / "contracts").mkdir()
    text = []
    for name, handler in handlers("cuda").items():
        (folder / f"contracts/{name}.gen.h").write_text(decoder(handler))
        kind = f"jaxsparse::contract::{name}::Attributes"
        binds = f".Attrs<{kind}>()" if handler.attributes else ""
        takes = f"{kind} attributes, " if handler.attributes else ""
        gives = "attributes, " if handler.attributes else ""
        text += [f'#include "contracts/{name}.gen.h"']
        text += [_HANDLER.format(name=name, takes=takes, gives=gives, binds=binds)]
    source, library = folder / "checks.cc", folder / "checks.so"
    source.write_text("\n".join(text))
    includes = [f"-I{folder}", f"-I{ROOT}", "-isystem", jax.ffi.include_dir()]
    flags = ["-std=c++17", "-O0", "-shared", "-fPIC", *ALONE]
    command = [compiler, *flags, *includes, str(source)]
    subprocess.run([*command, "-o", str(library)], check=True, timeout=500)
    return library


def register(library: Path) -> None:
    """Make the handlers of `library` targets of the platform `cpu`, by PREFIX and name."""
    loaded = ctypes.CDLL(str(library))
    for name in handlers("cuda"):
        capsule = jax.ffi.pycapsule(getattr(loaded, f"Checks_{name}"))
        jax.ffi.register_ffi_target(PREFIX + name, capsule, platform="cpu")
