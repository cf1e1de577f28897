"""Hydra configuration: one main file, groups, and the experiments. See ``hrm_deeploop.config``."""
