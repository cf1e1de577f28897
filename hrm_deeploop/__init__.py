"""Hierarchical recurrent reasoners with DeepLoop residual scaling.

Importing this package is cheap and needs no CUDA; the modules are imported where they are used.
"""

__version__ = "0.1.0"
