"""AdamATan2: Adam whose step is an arctangent, so it needs no epsilon and ignores gradient scale.

    p <- p (1 - lr wd);  m <- lerp(m, g, 1 - b1);  v <- lerp(v, g^2, 1 - b2)
    outside:  p <- p - lr / (1 - b1^t) * atan2(m, sqrt(v) / sqrt(1 - b2^t))
    inside:   p <- p - lr * atan2(m / (1 - b1^t), sqrt(v / (1 - b2^t)))

``outside`` is the published fused kernel, ``inside`` the textbook form.  In a constant gradient
the first step is 0.997 lr under ``outside`` and 0.785 lr under ``inside``; both tend to 0.785 lr.

**Source**: arXiv 2407.05872 (inside); adam-atan2 @42a1aeb (outside).  Differs: parameters of one
dtype and device live in one flat buffer, so a step is a handful of kernels and one atan2 call.
"""

import importlib
from collections.abc import Iterable
from types import ModuleType
from typing import Any, Literal

import torch
from torch import Tensor

BiasCorrection = Literal["outside", "inside"]
ALIGNMENT_ELEMENTS = 64  # each parameter starts on a boundary that suits vector loads

_GROUP_OPTIONS = ("lr", "beta1", "beta2", "weight_decay", "bias_correction")


def fused_kernel() -> ModuleType | None:
    """The compiled kernel of the PyPI package ``adam-atan2``, or None where it is not there."""
    try:
        return importlib.import_module("adam_atan2_backend")
    except ImportError:
        return None


def _aligned(numel: int) -> int:
    return -(-numel // ALIGNMENT_ELEMENTS) * ALIGNMENT_ELEMENTS


class _FlatBuffer:
    """The parameters of one group, dtype and device, moved into one tensor, with m and v."""

    def __init__(self, parameters: list[Tensor]) -> None:
        self.parameters = parameters
        starts, end = [], 0
        for parameter in parameters:
            starts.append(end)
            end += _aligned(parameter.numel())
        self.starts = starts
        self.values = parameters[0].new_zeros(end)
        self.exp_avg = torch.zeros_like(self.values)
        self.exp_avg_sq = torch.zeros_like(self.values)
        self.gradient = torch.zeros_like(self.values)
        with torch.no_grad():
            for parameter, view in zip(parameters, self.views(self.values), strict=True):
                view.copy_(parameter)
                parameter.data = view

    def views(self, flat: Tensor) -> list[Tensor]:
        """``flat`` cut into one view per parameter, in its shape."""
        return [
            flat[start : start + p.numel()].view(p.shape)
            for start, p in zip(self.starts, self.parameters, strict=True)
        ]

    def gather_gradient(self) -> Tensor:
        """Copies the gradients side by side; every parameter must have one."""
        for parameter, view in zip(self.parameters, self.views(self.gradient), strict=True):
            if parameter.grad is None:
                raise RuntimeError(
                    f"a parameter of shape {tuple(parameter.shape)} has no gradient; AdamATan2 "
                    "updates all its parameters in every step"
                )
            view.copy_(parameter.grad)
        return self.gradient


class AdamATan2(torch.optim.Optimizer):
    """AdamATan2 over flat buffers; parameters keep their identity but move into them.

    Args:
        params: Parameters or groups, as for any torch optimizer.
        lr: Learning rate, >= 0.
        beta1: Decay of the first moment, in [0, 1).
        beta2: Decay of the second moment, in [0, 1).
        weight_decay: Decoupled, relative to lr.
        bias_correction: ``"outside"`` (published kernel) or ``"inside"`` (textbook).

    Move the model to its device before making the optimizer.

    Raises:
        ValueError: If a value is out of range.
    """

    def __init__(
        self,
        params: Iterable[Any],
        *,
        lr: float,
        beta1: float = 0.9,
        beta2: float = 0.95,
        weight_decay: float = 0.1,
        bias_correction: BiasCorrection = "outside",
    ) -> None:
        if lr < 0 or weight_decay < 0 or not (0 <= beta1 < 1 and 0 <= beta2 < 1):
            raise ValueError(
                "AdamATan2 needs lr >= 0, weight_decay >= 0 and betas in [0, 1); got "
                f"lr={lr}, weight_decay={weight_decay}, betas=({beta1}, {beta2})"
            )
        if bias_correction not in ("outside", "inside"):
            raise ValueError(f"bias_correction must be outside or inside; got {bias_correction!r}")
        values = (lr, beta1, beta2, weight_decay, bias_correction)
        defaults = dict(zip(_GROUP_OPTIONS, values, strict=True))
        super().__init__(params, defaults)
        self._buffers: list[list[_FlatBuffer]] = []
        for group in self.param_groups:
            group["step"] = 0
            kinds: dict[tuple[torch.dtype, torch.device], list[Tensor]] = {}
            for parameter in group["params"]:
                kinds.setdefault((parameter.dtype, parameter.device), []).append(parameter)
            self._buffers.append([_FlatBuffer(kind) for kind in kinds.values()])
        self._kernel = fused_kernel()

    def backend(self) -> str:
        """Which arithmetic a step uses: ``"fused"`` or ``"torch"``."""
        return "fused" if any(self._uses_kernel(g) for g in self.param_groups) else "torch"

    def _uses_kernel(self, group: dict[str, Any]) -> bool:
        on_cuda = all(parameter.device.type == "cuda" for parameter in group["params"])
        return self._kernel is not None and on_cuda and group["bias_correction"] == "outside"

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Updates every parameter from its ``grad``.

        Raises:
            RuntimeError: If a parameter has no gradient.
        """
        for group, buffers in zip(self.param_groups, self._buffers, strict=True):
            group["step"] += 1
            for buffer in buffers:
                gradient = buffer.gather_gradient()
                if self._uses_kernel(group):
                    self._fused_step(group, buffer, gradient)
                else:
                    _flat_step(group, buffer, gradient)

    def _fused_step(self, group: dict[str, Any], buffer: _FlatBuffer, gradient: Tensor) -> None:
        assert self._kernel is not None
        # The kernel reads the count of this step from device memory, one per tensor; filled
        # there, since a copy would make the host wait.
        count = torch.full((), float(group["step"]), device=gradient.device)
        self._kernel.adam_atan2_cuda_impl_(
            [buffer.values],
            [gradient],
            [buffer.exp_avg],
            [buffer.exp_avg_sq],
            [count],
            group["lr"],
            group["beta1"],
            group["beta2"],
            group["weight_decay"],
        )

    def state_dict(self) -> dict[str, Any]:
        """Options, step counts and moments; moments as one list of tensors per group."""
        groups = []
        for group, buffers in zip(self.param_groups, self._buffers, strict=True):
            groups.append(
                {name: group[name] for name in (*_GROUP_OPTIONS, "step")}
                | {
                    moment: [view.clone() for b in buffers for view in b.views(getattr(b, moment))]
                    for moment in ("exp_avg", "exp_avg_sq")
                }
            )
        return {"groups": groups}

    @torch.no_grad()
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes over what ``state_dict`` returned, for the same parameters in the same order.

        Raises:
            ValueError: If numbers of groups or parameters, or shapes, differ.
        """
        for group, buffers, saved in zip(
            self.param_groups, self._buffers, state_dict["groups"], strict=True
        ):
            for name in (*_GROUP_OPTIONS, "step"):
                group[name] = saved[name]
            for moment in ("exp_avg", "exp_avg_sq"):
                views = [view for b in buffers for view in b.views(getattr(b, moment))]
                for view, value in zip(views, saved[moment], strict=True):
                    if view.shape != value.shape:
                        raise ValueError(
                            f"optimizer state has shape {tuple(value.shape)} where the model "
                            f"has {tuple(view.shape)}"
                        )
                    view.copy_(value)


def _flat_step(group: dict[str, Any], buffer: _FlatBuffer, gradient: Tensor) -> None:
    beta1, beta2, lr = group["beta1"], group["beta2"], group["lr"]
    correction1 = 1 - beta1 ** group["step"]
    correction2 = 1 - beta2 ** group["step"]
    m, v = buffer.exp_avg, buffer.exp_avg_sq
    m.lerp_(gradient, 1 - beta1)
    v.lerp_(gradient.square_(), 1 - beta2)
    # The gradient buffer is free now and serves as scratch.
    torch.div(v, correction2, out=gradient).sqrt_()
    if group["bias_correction"] == "outside":
        torch.atan2(m, gradient, out=gradient)
        rate = lr / correction1
    else:
        torch.atan2(m / correction1, gradient, out=gradient)
        rate = lr
    buffer.values.mul_(1 - lr * group["weight_decay"]).add_(gradient, alpha=-rate)
