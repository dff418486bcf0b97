"""The tests of the GPU kernels, on a GPU: at every change of a kernel, and once before a release.

    python tests/benchmarks/run.py kernels [PYTEST OPTION …]

They run on the backend that `KERAS_BACKEND` names, JAX by default. Without a GPU this fails: on a CPU the same tests
are part of the test suite.
"""

import os
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]


def main(arguments: list[str]) -> int | str:
    os.environ.setdefault("KERAS_BACKEND", "jax")
    import pytest

    from bertzoo.backend import accelerator_name

    if accelerator_name() is None:
        return f"Expected a GPU. Received: no accelerator on {os.environ['KERAS_BACKEND']}. Install its GPU build."
    return int(pytest.main(["-p", "no:nbval", f"--rootdir={TESTS.parent}", str(TESTS / "kernels"), *arguments]))
