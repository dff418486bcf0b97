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

    # An accelerator is asked for many products before the host waits for one, so that the waiting does not count.
    size, products = (8192, 16) if accelerator() else (2048, 1)
    a = ops.cast(keras.random.normal((size, size)), dtype)
    # TensorFlow's bfloat16 scalars are no NumPy arrays.
    product = _compiled(lambda x, y: ops.cast(ops.sum(ops.matmul(x, y)), "float32"))
    times = []
    for _ in range(8):
        begun = time.perf_counter()
        sums = [product(a, a) for _ in range(products)]
        float(ops.convert_to_numpy(sums[-1]))
        times.append(time.perf_counter() - begun)
    return 2 * size**3 * products / statistics.median(times[2:])


def _compiled(function):
    import keras

    if keras.backend.backend() == "jax":
        import jax

        return jax.jit(function)
    return function


if __name__ == "__main__":
    print("MEASURED " + json.dumps(product_rate(sys.argv[1])))
