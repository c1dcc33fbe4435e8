"""List the algorithms, one line each."""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """None needed."""


def run(arguments: argparse.Namespace) -> int:
    from dapo.algorithms.registry import ALGORITHMS

    width = max(map(len, ALGORITHMS))
    for spec in ALGORITHMS.values():
        print(f"{spec.name:{width}}  {spec.summary}")
    return 0
