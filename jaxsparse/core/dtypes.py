"""The dtypes that the kernels take."""

import jax.numpy as jnp
import numpy as np

#: Name -> the number that the handlers know it by.
DTYPES = {"float32": 0, "bfloat16": 1, "float16": 2}
#: Bytes of an element.
BYTES = {name: np.dtype(getattr(jnp, name)).itemsize for name in DTYPES}
#: Those of 16 bits.
HALF = ("bfloat16", "float16")
FLOATS = tuple(np.dtype(getattr(jnp, name)) for name in DTYPES)
