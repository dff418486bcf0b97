"""What a learner sees first."""

import subprocess
import sys
from pathlib import Path

import pytest

COURSE = Path(__file__).resolve().parents[2] / "course"


def test_tensorflow_is_loaded_in_silence(backend):
    """Its C++ code writes half a dozen lines to stderr, which a notebook shows in red."""
    if backend != "tensorflow":
        pytest.skip("the others say nothing")
    code = (
        "import ipykernel, bertzoo, check, keras, numpy as np\nprint(keras.layers.Dense(2)(np.ones((2, 2))).shape[0])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=COURSE, capture_output=True, text=True, check=True)
    assert done.stdout == "2\n" and done.stderr == ""
