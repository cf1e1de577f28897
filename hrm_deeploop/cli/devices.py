"""Choosing the device and readying the process for it."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def prepare_device(name: str) -> "torch.device":
    """The torch device for ``auto``, ``cpu`` or ``cuda``; on a CPU the process keeps freed memory.

    Raises:
        ValueError: If CUDA is asked for and there is none.
    """
    import torch

    from hrm_deeploop.host_memory import keep_freed_memory

    has_cuda = torch.cuda.is_available()
    if name == "cuda" and not has_cuda:
        raise ValueError("device=cuda, but torch finds no CUDA device; use device=cpu or auto")
    if name == "auto":
        name = "cuda" if has_cuda else "cpu"
    if name == "cpu":
        keep_freed_memory()
    return torch.device(name)
