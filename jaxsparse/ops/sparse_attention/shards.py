"""How a mesh splits `sparse_attention`: by the batch, and by the heads of k and v with the heads of
q that read them.
"""

import jax

from jaxsparse.ffi import Rule
from jaxsparse.ops.sparse_attention.params import Backward, Forward

_TOKENS = (
    "a query reads keys anywhere: split the batch or the heads, or call js.ring_attention in "
    "jax.shard_map, which passes the keys around a ring of devices"
)


def mesh_rule(arrays: Forward | Backward, results: tuple[str, ...]) -> Rule:
    """The rule of a call with these arrays; results name the arrays that they are like."""
    batch, _, heads, _ = arrays.q.shape
    kv_heads = arrays.k.shape[2]
    group = heads // kv_heads if kv_heads else 1
    of_q = "n" if group == 1 else f"(n {group})"

    def shared(value: jax.Array) -> tuple[str, str]:
        """The first two axes of what is [batch or 1, heads or 1, ...]."""
        return "b" if value.shape[0] == batch else ".", of_q if value.shape[1] == heads else "."

    def factors(name: str, value: jax.Array | None) -> str:
        if value is None:
            return "."
        if name in ("q", "out", "gout"):
            return f"b t {of_q} ."
        if name in ("k", "v"):
            return "b s n ."
        if name in ("lse", "glse"):
            return f"b {of_q} t"
        if name == "slopes":
            return of_q
        if name == "words":
            return ". . ."
        return " ".join([*shared(value), *["."] * (value.ndim - 2)])

    given = arrays._asdict()
    like = given | {"out": arrays.q, "lse": arrays.q}
    return Rule(
        "sparse_attention",
        tuple(factors(name, value) for name, value in given.items()),
        tuple(factors(name, like[name]) for name in results),
        ("b", "n"),
        tuple(_named(name) for name in given),
        why={"t": _TOKENS, "s": _TOKENS},
    )


def _named(name: str) -> str:
    """The user's name of an array."""
    plain = {"gout": "the result's cotangent", "glse": "the lse's cotangent"}
    if name in ("q", "k", "v", "slopes", "bias"):
        return name
    return plain.get(name, f"block_mask.{name}" if name not in ("out", "lse") else name)
