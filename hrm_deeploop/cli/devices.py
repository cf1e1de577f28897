"""Choosing the device."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def choose_device(name: str) -> "torch.device":
    """The torch device for ``auto``, ``cpu`` or ``cuda``.

    Raises:
        ValueError: If CUDA is asked for and there is none.
    """
    import torch

    has_cuda = torch.cuda.is_available()
    if name == "cuda" and not has_cuda:
        raise ValueError("device=cuda, but torch finds no CUDA device; use device=cpu or auto")
    if name == "auto":
        name = "cuda" if has_cuda else "cpu"
    return torch.device(name)
