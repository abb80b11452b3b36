"""The way from Python to a native handler: registration, the call, and the choice among
implementations.
"""

from jaxsparse.ffi.call import absent as absent
from jaxsparse.ffi.call import check_sharding as check_sharding
from jaxsparse.ffi.call import ffi_call as ffi_call
from jaxsparse.ffi.call import lift as lift
from jaxsparse.ffi.partition import Shards as Shards
from jaxsparse.ffi.partition import over_explicit as over_explicit
from jaxsparse.ffi.partition import partitioned as partitioned
from jaxsparse.ffi.platform import Implementation as Implementation
from jaxsparse.ffi.platform import dispatch as dispatch
from jaxsparse.ffi.register import DISABLE_JAX_EXPORT_CHECKS as DISABLE_JAX_EXPORT_CHECKS
from jaxsparse.ffi.rule import Rule as Rule

__all__ = [
    "DISABLE_JAX_EXPORT_CHECKS",
    "Implementation",
    "Rule",
    "Shards",
    "absent",
    "check_sharding",
    "dispatch",
    "ffi_call",
    "lift",
    "over_explicit",
    "partitioned",
]
