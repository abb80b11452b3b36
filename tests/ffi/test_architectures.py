"""Which GPUs a build serves, and what one that is not served is told."""

import pytest

from jaxsparse.ffi import platform, register
from jaxsparse.ffi.architectures import reason_against, serves

RELEASE = "80-real,86-real,89-real,90a-real,100-real,100-virtual,120-real"


@pytest.mark.parametrize("capability", ["8.0", "8.6", "8.7", "8.9", "9.0", "10.0", "10.3", "11.0"])
def test_the_release_serves(capability):
    assert serves(RELEASE, capability)


@pytest.mark.parametrize(
    ("architectures", "capability", "runs"),
    [
        ("80-real", "8.6", True),  # machine code of an earlier minor version
        ("86-real", "8.0", False),
        ("80-real", "10.0", False),
        ("80-virtual", "10.0", True),  # PTX
        ("100", "12.0", True),
        ("90a-real", "9.0", True),
        ("90a-real", "10.0", False),
        ("80-real,90-virtual", "9.0", False),  # a Hopper's own kernels are not there
        ("90a-virtual", "9.0", False),
        (RELEASE, "7.5", False),
    ],
)
def test_serves(architectures, capability, runs):
    assert serves(architectures, capability) is runs
    assert (reason_against(architectures, capability) is None) is runs


def test_a_gpu_that_is_not_served_is_told_what_to_build(monkeypatch):
    module = type("Module", (), {"architectures": "80-real"})
    monkeypatch.setattr(register, "module", lambda name: (module, ""))
    monkeypatch.setattr(platform, "_cuda_capabilities", lambda: ["9.0"])
    why = platform.reason_against("cuda", ("cuda", "cpu"), device=False) or ""
    assert "JAXSPARSE_CUDA_ARCHITECTURES=90a" in why
    with pytest.raises(ValueError, match="built for 80-real"):
        platform.plan("masked_conv", "cuda", ("cuda", "cpu", "reference"))
    monkeypatch.setattr(platform, "_warn_of_reference", lambda *_: None)
    assert platform.plan("masked_conv", None, ("cuda", "reference"))["cuda"] == "reference"
