"""How many operations a second a large matrix product reaches here: `python -m bertzoo.bench.ceiling DTYPE`."""

import json
import statistics
import sys
import time


def product_rate(dtype: str) -> float:
    """Operations a second of a square matrix product by the backend that `KERAS_BACKEND` names."""
    import keras
    from keras import ops

    from bertzoo.accelerator import accelerator

    size = 8192 if accelerator() else 2048
    a = ops.cast(keras.random.normal((size, size)), dtype)
    product = _compiled(lambda x, y: ops.sum(ops.matmul(x, y)))
    times = []
    for _ in range(8):
        begun = time.perf_counter()
        float(ops.convert_to_numpy(product(a, a)))
        times.append(time.perf_counter() - begun)
    return 2 * size**3 / statistics.median(times[2:])


def _compiled(function):
    import keras

    if keras.backend.backend() == "jax":
        import jax

        return jax.jit(function)
    return function


if __name__ == "__main__":
    print("MEASURED " + json.dumps(product_rate(sys.argv[1])))
