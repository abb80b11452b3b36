"""Convolutions by name. A tag says what a case is for:

"cpu": the shapes that the CPU kernel is measured on; "gpu": those of the CUDA kernel; "odd": small
ones with every option of the op, for tests; "quick": one that takes no time.
"""

import dataclasses
import math
from typing import Any

import numpy as np

from jaxsparse.core.geometry import Geometry, resolve_padding

Pair = tuple[int, int]


@dataclasses.dataclass(frozen=True)
class ConvCase:
    """One convolution: x[batch, height, width, channels] with kernel[*kernel, channels // groups,
    outputs].
    """

    name: str
    batch: int
    height: int
    width: int
    channels: int
    outputs: int
    kernel: Pair = (3, 3)
    strides: Pair = (1, 1)
    padding: str | tuple[Pair, Pair] = "SAME"
    dilation: Pair = (1, 1)
    groups: int = 1
    tags: frozenset[str] = frozenset()

    @property
    def x_shape(self) -> tuple[int, int, int, int]:
        """(B, H, W, C)."""
        return self.batch, self.height, self.width, self.channels

    @property
    def kernel_shape(self) -> tuple[int, int, int, int]:
        """(kh, kw, C/groups, O)."""
        return *self.kernel, self.channels // self.groups, self.outputs

    @property
    def geometry(self) -> Geometry:
        """The window, with the padding in numbers."""
        pads = resolve_padding(
            self.padding, (self.height, self.width), self.kernel, self.strides, self.dilation
        )
        return Geometry(self.strides, pads, self.dilation, (1, 1), self.groups)

    @property
    def mask_shape(self) -> tuple[int, int, int]:
        """(B, Ho, Wo)."""
        return self.batch, *self.geometry.out_size((self.height, self.width), self.kernel)

    @property
    def options(self) -> dict[str, Any]:
        """The keyword arguments of `js.masked_conv`."""
        names = ("strides", "padding", "dilation", "groups")
        return {name: getattr(self, name) for name in names}

    @property
    def macs(self) -> int:
        """Multiply-adds of the dense convolution, taps outside the image included."""
        return math.prod(self.mask_shape) * math.prod(self.kernel_shape)

    def array(self, name: str, seed: int = 0) -> np.ndarray:
        """One of the float32 numpy arrays "x", "kernel", "bias" and "base"; results have about unit
        variance.
        """
        shapes = {
            "x": self.x_shape,
            "kernel": self.kernel_shape,
            "bias": (self.outputs,),
            "base": (*self.mask_shape, self.outputs),
        }
        rng = np.random.default_rng([seed, list(shapes).index(name)])
        made = rng.standard_normal(shapes[name], np.float32)
        fan_in = math.prod(self.kernel_shape[:3])
        return made / np.float32(math.sqrt(max(fan_in, 1))) if name == "kernel" else made

    def arrays(self, seed: int = 0) -> dict[str, np.ndarray]:
        """All four of them, by name."""
        return {name: self.array(name, seed) for name in ("x", "kernel", "bias", "base")}


def _square(tag: str, batch: int, size: int, channels: int, **more: Any) -> ConvCase:
    outputs = more.pop("outputs", channels)
    suffix = more.pop("suffix", "")
    name = f"b{batch}_{size}x{size}x{channels}{suffix}"
    return ConvCase(name, batch, size, size, channels, outputs, tags=frozenset({tag}), **more)


def _odd(name: str, size: tuple[int, int], channels: int, outputs: int, **more: Any) -> ConvCase:
    return ConvCase(f"odd_{name}", 2, *size, channels, outputs, tags=frozenset({"odd"}), **more)


_GPU_SQUARES = (
    *((batch, 40, 256) for batch in (1, 16, 64)),
    *((batch, 128, 256) for batch in (1, 8)),
    *((batch, 256, 128) for batch in (1, 4)),
    *((1, 512, channels) for channels in (64, 256)),
    (1, 1024, 64),
    (64, 56, 64),
    (64, 28, 128),
    (64, 14, 256),
)
_CPU_SQUARES = ((64, 64), (128, 32), (56, 128), (28, 256))

_ALL = (
    *(_square("cpu", b, size, channels) for b in (1, 4) for size, channels in _CPU_SQUARES),
    *(_square("gpu", *shape) for shape in _GPU_SQUARES),
    _square("gpu", 64, 56, 256, outputs=64, kernel=(1, 1), suffix="_1x1_64"),
    _square("gpu", 64, 56, 128, strides=(2, 2), suffix="_stride2"),
    _square("quick", 1, 16, 16, suffix="_quick"),
    _odd("plain", (9, 37), 16, 32),
    _odd("w33", (7, 33), 8, 16),
    _odd("rgb", (12, 13), 3, 24),
    _odd("one_output", (9, 10), 16, 1),
    _odd("one_channel", (9, 10), 1, 8),
    _odd("one_pixel", (1, 1), 8, 8),
    _odd("one_row", (1, 40), 8, 8),
    _odd("1x1", (9, 10), 16, 24, kernel=(1, 1)),
    _odd("1x3", (9, 10), 16, 24, kernel=(1, 3)),
    _odd("2x2", (9, 10), 16, 24, kernel=(2, 2)),
    _odd("5x5", (11, 12), 8, 16, kernel=(5, 5)),
    _odd("7x7_stride2", (17, 19), 3, 16, kernel=(7, 7), strides=(2, 2)),
    _odd("stride2", (11, 14), 16, 16, strides=(2, 2)),
    _odd("stride3", (11, 14), 16, 16, strides=(3, 3)),
    _odd("stride_2_1", (11, 14), 16, 16, strides=(2, 1)),
    _odd("1x1_stride2", (11, 14), 16, 16, kernel=(1, 1), strides=(2, 2)),
    _odd("dilation2", (11, 14), 16, 16, dilation=(2, 2)),
    _odd("dilation_1_3", (11, 14), 16, 16, dilation=(1, 3)),
    _odd("valid", (11, 14), 16, 16, padding="VALID"),
    _odd("same_lower", (11, 14), 16, 16, strides=(2, 2), padding="SAME_LOWER"),
    _odd("explicit", (11, 14), 16, 16, padding=((2, 0), (0, 3))),
    _odd("negative_padding", (11, 14), 16, 16, padding=((-1, 1), (0, -2))),
    _odd("window_too_large", (3, 4), 8, 8, kernel=(5, 5), padding="VALID"),
    _odd("groups", (9, 10), 16, 24, groups=4),
    _odd("depthwise", (9, 10), 16, 16, groups=16),
    _odd("depthwise_multiplier", (9, 10), 8, 24, groups=8),
    _odd("grouped_stride2_dilation", (17, 18), 16, 16, strides=(2, 2), dilation=(2, 2), groups=2),
    _odd("wide_outputs", (6, 7), 8, 200),
    _odd("deep_channels", (6, 7), 200, 8),
)

#: Name -> case.
CASES: dict[str, ConvCase] = {c.name: c for c in _ALL}


def case(name: str) -> ConvCase:
    """The case of that name.

    Raises:
        ValueError: when there is none, listing the names.
    """
    if name not in CASES:
        raise ValueError(f"case={name!r} is not one of {', '.join(CASES)}")
    return CASES[name]


def cases(tag: str) -> list[ConvCase]:
    """The cases that carry `tag`, in the order of the table.

    Raises:
        ValueError: for a tag that no case carries.
    """
    found = [c for c in CASES.values() if tag in c.tags]
    if not found:
        known = sorted(set().union(*(c.tags for c in CASES.values())))
        raise ValueError(f"tag={tag!r} is not one of {', '.join(known)}")
    return found
