"""Freed memory is kept and used again, unless the user has chosen otherwise."""

import os
import subprocess
import sys

import pytest

from hrm_deeploop.host_memory import MALLOC_SETTINGS

PROGRAM = """
import resource
import sys
from hrm_deeploop.host_memory import keep_freed_memory

def page_faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

print("keep" in sys.argv and keep_freed_memory())
counts = []
for _ in range(4):
    before = page_faults()
    block = bytearray(b"x") * (64 << 20)
    del block
    counts.append(page_faults() - before)
print(min(counts[1:]))
"""


def kept_and_faults(*words: str, **environment: str) -> tuple[bool, int]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(MALLOC_SETTINGS)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words],
        env=clean | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    kept, faults = done.stdout.split()
    return kept == "True", int(faults)


@pytest.mark.skipif(sys.platform != "linux", reason="glibc is Linux's")
def test_freed_memory_is_used_again_without_page_faults() -> None:
    kept, faults = kept_and_faults("keep")
    if not kept:
        pytest.skip("another C library than glibc")
    assert faults < 10
    assert kept_and_faults()[1] > 10, "the test would not notice"


@pytest.mark.parametrize("name", ["MALLOC_ARENA_MAX", "GLIBC_TUNABLES"])
def test_own_settings_of_malloc_stay(name: str) -> None:
    value = "2" if name == "MALLOC_ARENA_MAX" else "glibc.malloc.arena_max=2"
    assert kept_and_faults("keep", **{name: value})[0] is False
