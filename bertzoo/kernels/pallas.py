"""Where JAX uses the Pallas kernels of this package, and how they are called."""

import importlib
from collections.abc import Callable

import jax
import keras
from jax.sharding import PartitionSpec

from bertzoo.backend import has_ampere_gpu_or_later


def can_use_kernels() -> bool:
    """Whether JAX computes on GPUs that support the kernels, with whole examples and all weights on each."""
    distribution = keras.distribution.distribution()
    whole = distribution is None or isinstance(distribution, keras.distribution.DataParallel)
    return has_ampere_gpu_or_later() and whole and _has_triton()


def _has_triton() -> bool:
    """Whether JAX has its Triton backend, which is deprecated; without it XLA's own kernels are used."""
    try:
        importlib.import_module("jax.experimental.pallas.triton")
    except ImportError:
        return False
    return True


def kernel_rows_per_device(shape: tuple) -> int | None:
    """The number of rows of a (batch, length, …) on each device; None without kernels, where the devices can't split
    the examples evenly, or where sizes are unknown, as in an export."""
    if not can_use_kernels():
        return None
    (batch, length), mesh = shape[:2], _mesh()
    count = 1 if mesh is None else mesh.size
    known = isinstance(batch, int) and isinstance(length, int)
    return batch // count * length if known and batch % count == 0 else None


def shard_over_devices(function: Callable, is_sharded: tuple[bool, ...]) -> Callable:
    """The function, run on every device with its shard of the arguments that are `is_sharded` by their first axis.

    XLA can't split a kernel's work. The gradients of replicated arguments are summed over the devices.
    """
    mesh = _mesh()
    if mesh is None:
        return function
    shard, whole = PartitionSpec(mesh.axis_names), PartitionSpec()
    return jax.shard_map(
        function,
        mesh=mesh,
        in_specs=tuple(shard if split else whole for split in is_sharded),
        out_specs=shard,
        check_vma=False,  # a kernel does not tell how its results vary over devices
    )


def _mesh() -> jax.sharding.Mesh | None:
    distribution = keras.distribution.distribution()
    return None if distribution is None else distribution.device_mesh.backend_mesh


def make_kernel_call(
    kernel: Callable, out_shape, grid: tuple[int, ...], num_warps: int, name: str, num_stages: int = 1, **specs
) -> Callable:
    """The kernel as a function of arrays; on a CPU it is interpreted. `num_stages` is the depth of software pipelining;
    `specs` are `in_specs` and `out_specs`, where a program does not see whole arrays."""
    from jax.experimental import pallas as pl  # slow to import, and every model calls `can_use_kernels`
    from jax.experimental.pallas import triton

    on_gpu = jax.default_backend() == "gpu"
    return pl.pallas_call(
        kernel,
        out_shape,
        grid=grid,
        interpret=not on_gpu,
        compiler_params=triton.CompilerParams(num_warps=num_warps, num_stages=num_stages) if on_gpu else None,
        name=name,
        **specs,
    )
