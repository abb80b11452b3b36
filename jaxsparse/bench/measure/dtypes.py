"""The dtypes that a benchmark takes by name."""

#: "highest" is float32 with `precision="highest"`.
NAMES = ("float32", "highest", "bfloat16", "float16")


def check_dtype(dtype: str) -> None:
    """`dtype` is one of NAMES.

    Raises:
        ValueError: for any other.
    """
    if dtype not in NAMES:
        raise ValueError(f"dtype={dtype!r} is not one of {', '.join(NAMES)}")
