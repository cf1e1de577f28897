"""Memory of the process: kept when freed, so that the next step finds it ready."""

import ctypes
import os

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # malloc.h of glibc
MALLOC_SETTINGS = ("MALLOC_", "GLIBC_TUNABLES", "LD_PRELOAD")


def keep_freed_memory() -> bool:
    """Lets the process keep the memory it frees, in huge pages, instead of handing it back.

    By default glibc maps every large tensor anew and the kernel clears its pages at first touch:
    hundreds of thousands of page faults a step.  Numbers do not change; a process holds what it
    needed at its peak, and up to half as much again where freed pieces do not fit.

    To be called before torch makes its first tensor.  Leaves alone who chose for themselves:
    nothing is done where the environment names malloc settings or preloads a library, nor where
    the C library is another.

    Returns:
        Whether memory is kept.
    """
    if os.name != "posix" or any(name.startswith(MALLOC_SETTINGS) for name in os.environ):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")  # torch asks for huge pages
    # Both, or glibc's own adjustment of the thresholds would let the one undo the other.
    never_trims, never_maps = mallopt(M_TRIM_THRESHOLD, -1), mallopt(M_MMAP_MAX, 0)
    return bool(never_trims and never_maps)
