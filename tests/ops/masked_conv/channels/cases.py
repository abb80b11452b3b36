"""masked_conv with masks of channels: operands, what is not used of them, and the oracle."""

import numpy as np
from ops.masked_conv.oracle import masked_conv as oracle

SHAPE = (2, 5, 9)
CHANNELS, OUTPUTS = 24, 24


def draw(rng, fill):
    scale = np.float32((9 * CHANNELS) ** -0.5)
    return {
        "x": rng.standard_normal((*SHAPE, CHANNELS), np.float32),
        "kernel": rng.standard_normal((3, 3, CHANNELS, OUTPUTS), np.float32) * scale,
        "base": rng.standard_normal((*SHAPE, OUTPUTS), np.float32),
        "mask": rng.random(SHAPE) < fill,
        "in_channels": rng.random(CHANNELS) < fill,
        "out_channels": rng.random(OUTPUTS) < fill,
    }


def want(operands, activation=None, **options):
    """The oracle, with zeros in the channels of x and of the kernel that do not count."""
    given = dict(operands)
    ins, outs = (np.asarray(given.pop(n)) for n in ("in_channels", "out_channels"))
    x, kernel, mask = (given.pop(n) for n in ("x", "kernel", "mask"))
    x = np.where(ins, np.asarray(x, np.float64), 0)
    kernel = np.where(ins[:, None] & outs, np.asarray(kernel, np.float64), 0)
    base = given.pop("base", None)
    rest = {k: np.where(outs, v, 0) for k, v in given.items()}
    found = oracle(x, kernel, mask, base=base, activation=activation, **rest, **options)
    return np.where(outs, found, np.zeros(()) if base is None else base)


def unread(operands):
    """Channels of x that do not count, and pixels that no active output reads; weights likewise."""
    ins, outs, mask = operands["in_channels"], operands["out_channels"], operands["mask"]
    padded, (_, height, width) = np.pad(mask, ((0, 0), (1, 1), (1, 1))), SHAPE
    read = np.any([padded[:, y : y + height, x : x + width] for y in range(3) for x in range(3)], 0)
    weights = np.broadcast_to(~(ins[:, None] & outs), operands["kernel"].shape)
    return {"x": ~(read[..., None] & ins), "kernel": weights, "base": mask[..., None] & outs}
