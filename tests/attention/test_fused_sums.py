"""The CUDA kernels against their reference: by Triton's interpreter everywhere, and on the GPU where there is one."""

import json
import os
import subprocess
import sys

import pytest
import torch

from qevict_diag.attention import fused, sums
from qevict_diag.attention.spec import AttentionSpec
from qevict_diag.errors import InputError

CASES = {
    "plain": ((4, 2, 16, 70, 0), {}),
    "one head per group": ((3, 3, 16, 50, 0), {}),
    "group of three, odd width": ((9, 3, 20, 45, 0), {}),
    "offset": ((4, 1, 32, 40, 33), {}),
    "sliding window": ((4, 2, 16, 90, 5), {"sliding_window": 17}),
    "softcap": ((2, 1, 16, 40, 0), {"softcap": 1.5}),
    "sinks": ((4, 2, 16, 40, 0), {"sink_logits": (0.5, -1.0, 2.0, 0.0)}),
    "one query": ((4, 2, 16, 1, 60), {}),
}


def compare(name, device, dtype=torch.float32, tolerance=1e-4):
    """Largest difference between kernel and reference, which has to stay within ``tolerance``."""
    (heads, kv_heads, width, length, offset), options = CASES[name]
    noise = torch.Generator().manual_seed(0)
    query = torch.randn((heads, length, width), generator=noise).to(device, dtype)
    key = torch.randn((kv_heads, offset + length, width), generator=noise).to(device, dtype)
    spec = AttentionSpec(0, 0.4, **options)
    for ours, reference in (
        (fused.row_lse(query, key, spec, offset), sums.row_lse(query, key, spec, offset)),
        (fused.column_sums(query, key, spec, offset), sums.column_sums(query, key, spec, offset)),
    ):
        torch.testing.assert_close(ours, reference, atol=tolerance, rtol=tolerance)


def compare_all():
    """What went wrong in each case, as JSON on stdout; run in a process of its own, where Triton interprets."""
    wrong = {}
    for name in CASES:
        try:
            compare(name, "cpu")
            wrong[name] = None
        except Exception as error:  # whatever went wrong in this process is the other one's test result
            wrong[name] = f"{type(error).__name__}: {error}"
    print(json.dumps(wrong))


@pytest.fixture(scope="module")
def interpreted():
    pytest.importorskip("triton", reason="Triton is not installed; `pip install triton`")
    path = os.pathsep.join([os.path.dirname(__file__), *sys.path])
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": path}
    code = "import test_fused_sums; test_fused_sums.compare_all()"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", CASES)
def test_interpreted_kernels_agree_with_the_reference(interpreted, name):
    assert interpreted[name] is None


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", CASES)
def test_compiled_kernels_agree_with_the_reference(name, dtype):
    compare(name, "cuda", dtype, 1e-4 if dtype == torch.float32 else 2e-2)


def test_they_are_not_used_without_cuda():
    with pytest.raises(InputError, match="need a CUDA device and Triton"):
        fused.require(torch.device("cpu"))
