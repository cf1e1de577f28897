"""The whole trajectory of the published HRM and TRM code, step by step, against ours."""

import pytest
import torch
from golden_reasoner import NAMES, assert_published_trajectory


@pytest.mark.parametrize("name", NAMES)
def test_published_trajectory(name: str) -> None:
    assert_published_trajectory(name, "cpu")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", NAMES)
def test_published_trajectory_on_a_gpu(name: str) -> None:
    assert_published_trajectory(name, "cuda")
