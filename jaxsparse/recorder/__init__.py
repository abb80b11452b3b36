"""Saturated segments of activations: a code says what a whole segment holds, and it is not
read or written again."""

from jaxsparse.recorder.segments import choose_segment as choose_segment
from jaxsparse.recorder.segments import expected_accesses as expected_accesses
from jaxsparse.recorder.types import MIXED as MIXED
from jaxsparse.recorder.types import UPPER as UPPER
from jaxsparse.recorder.types import ZERO as ZERO
from jaxsparse.recorder.types import Recorder as Recorder
from jaxsparse.recorder.types import probe as probe

__all__ = [
    "MIXED",
    "UPPER",
    "ZERO",
    "Recorder",
    "choose_segment",
    "expected_accesses",
    "probe",
]
