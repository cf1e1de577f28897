"""The processes that train together: who they are, sums over them, rows from all of them.

Every process holds the whole model and its part of the rows of one global batch.  Started by
``torchrun``, which says by environment variables who is who; one process alone needs nothing.
"""

import os
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

T = TypeVar("T")
TIMEOUT_S = 600
"""A process that waits longer than this for the others ends with an error."""


class Ranks:
    """This process and the others; alone unless ``start`` made it.

    Attributes:
        rank: This process, 0 in one process alone.
        size: Number of processes.
        local_rank: This process among those of its machine: its GPU.
        backend: What reduces tensors; None in one process alone.
    """

    rank = 0
    size = 1
    local_rank = 0
    backend: str | None = None
    # Host messages go over this group, so that agreeing does not wait for a GPU.
    _host_group: Any = None

    @classmethod
    def start(cls, device_type: str) -> "Ranks":
        """Joins the processes that torchrun started; alone where it did not.

        Args:
            device_type: ``"cuda"``: tensors are reduced by NCCL, or by gloo where processes share
                a GPU, which NCCL does not allow; ``"cpu"``: by gloo.

        Raises:
            ValueError: If the environment names only some of what torchrun sets.
        """
        ranks = cls()
        if "RANK" not in os.environ:
            return ranks
        for key in ("WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
            if key not in os.environ:
                raise ValueError(f"RANK is set but {key} is not; start with torchrun")
        ranks.rank = int(os.environ["RANK"])
        ranks.size = int(os.environ["WORLD_SIZE"])
        ranks.local_rank = int(os.environ["LOCAL_RANK"])
        timeout = timedelta(seconds=TIMEOUT_S)
        ranks.backend = "gloo"
        if device_type == "cuda":
            num_gpus = torch.cuda.device_count()
            torch.cuda.set_device(ranks.local_rank % num_gpus)
            if int(os.environ.get("LOCAL_WORLD_SIZE", ranks.size)) <= num_gpus:
                ranks.backend = "nccl"
        dist.init_process_group(ranks.backend, timeout=timeout)
        if ranks.backend == "nccl":
            ranks._host_group = dist.new_group(backend="gloo", timeout=timeout)
        return ranks

    def stop(self) -> None:
        """Leaves the group."""
        if self.size > 1 or dist.is_initialized():
            dist.destroy_process_group()

    @property
    def is_main(self) -> bool:
        """Whether this process writes files and speaks to people."""
        return self.rank == 0

    def sum_(self, tensor: Tensor) -> Tensor:
        """The sum over the processes, in place."""
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor

    def sum_many_(self, tensors: Sequence[Tensor]) -> None:
        """Sums of several tensors of one dtype and device, in place, in one message."""
        if self.size == 1:
            return
        flat = self.sum_(torch.cat([tensor.detach().flatten() for tensor in tensors]))
        start = 0
        for tensor in tensors:
            tensor.copy_(flat[start : start + tensor.numel()].view_as(tensor))
            start += tensor.numel()

    def join_rows(self, rows: Tensor) -> Tensor:
        """Rows of all processes in the order of their ranks.

        Args:
            rows: (n, ...), the same shape in every process.

        Returns:
            (size * n, ...).
        """
        if self.size == 1:
            return rows
        # Messages have no booleans, and gloo gathers from host memory only.
        plain = rows.to(torch.uint8) if rows.dtype == torch.bool else rows
        if self.backend == "gloo":
            plain = plain.cpu()
        parts = [torch.empty_like(plain) for _ in range(self.size)]
        dist.all_gather(parts, plain.contiguous())
        return torch.cat(parts).to(rows.device, rows.dtype)

    def own_rows(self, rows: Tensor) -> Tensor:
        """This process's part of what ``join_rows`` returns."""
        count = len(rows) // self.size
        return rows[self.rank * count : (self.rank + 1) * count]

    def agree(self, values: Sequence[int]) -> list[int]:
        """The largest of each value over the processes, without waiting for a GPU."""
        if self.size == 1:
            return list(values)
        tensor = torch.tensor(values, dtype=torch.int64)
        dist.all_reduce(tensor, dist.ReduceOp.MAX, group=self._host_group)
        return tensor.tolist()

    def main_does(self, action: Callable[[], T]) -> T:
        """Runs ``action`` in the main process; all get its result.

        Raises:
            RuntimeError: In the other processes, if it failed in the main one.
        """
        if self.size == 1:
            return action()
        box: list[Any] = [False, None]
        try:
            if self.is_main:
                box = [True, action()]
        finally:
            dist.broadcast_object_list(box, 0, group=self._host_group)
        if not box[0]:
            raise RuntimeError("rank 0 failed; its own message says why")
        return box[1]

    def to_main(self, value: T) -> list[T] | None:
        """Every process's value in the order of ranks, in the main process; None elsewhere."""
        if self.size == 1:
            return [value]
        box: list[Any] | None = [None] * self.size if self.is_main else None
        dist.gather_object(value, box, 0, group=self._host_group)
        return box
