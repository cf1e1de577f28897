"""Freed memory is kept and used again, unless the user has chosen otherwise."""

import os
import platform
import subprocess
import sys
from pathlib import Path

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


def clean_environment() -> dict[str, str]:
    ours = (*MALLOC_SETTINGS, "THP_MEM_ALLOC_ENABLE")
    return {k: v for k, v in os.environ.items() if not k.startswith(ours)}


def kept_and_faults(*words: str, **environment: str) -> tuple[bool, int]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words],
        env=clean_environment() | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    kept, faults = done.stdout.split()
    return kept == "True", int(faults)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library than glibc")
def test_freed_memory_is_used_again_without_page_faults() -> None:
    kept, faults = kept_and_faults("keep")
    assert kept
    assert faults < 10
    assert kept_and_faults()[1] > 10, "the test would not notice"


HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
TRAIN = """
import sys
from pathlib import Path
from hrm_deeploop.cli import main as program

def commanded(module):
    import torch  # as a command does, after the program began
    tensor = torch.ones(64 << 20, dtype=torch.uint8)
    rollup = Path("/proc/self/smaps_rollup").read_text()
    print(next(line.split()[1] for line in rollup.splitlines() if "AnonHugePages" in line))
    raise SystemExit

program.import_module = commanded
program.main(["train"])
"""


@pytest.mark.skipif(
    not HUGE_PAGES.exists()
    or "[never]" in HUGE_PAGES.read_text()
    or platform.libc_ver()[0] != "glibc",
    reason="no huge pages, or another C library than glibc",
)
def test_a_commands_tensors_lie_in_huge_pages() -> None:
    done = subprocess.run(
        [sys.executable, "-c", TRAIN], env=clean_environment(), capture_output=True, text=True
    )
    assert int(done.stdout) > 0


@pytest.mark.parametrize(
    ("name", "value"),
    [("MALLOC_PERTURB_", "0"), ("GLIBC_TUNABLES", "glibc.malloc.arena_max=2")],
)
def test_own_settings_of_malloc_stay(name: str, value: str) -> None:
    kept, faults = kept_and_faults("keep", **{name: value})
    assert not kept
    assert faults > 10
