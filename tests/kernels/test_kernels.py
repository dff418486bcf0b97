"""Where the kernels are used, and on several devices."""

import os
import sys
from types import SimpleNamespace

import keras
import numpy as np
import pytest

if keras.backend.backend() != "jax":
    pytest.skip("the kernels are JAX's", allow_module_level=True)

import jax

from bertzoo.backend import has_ampere_gpu_or_later
from bertzoo.kernels import pallas as kernels
from bertzoo.layers import EncoderBlock

# Attention and GELU have theirs in half precision only, where sums over examples differ by their order.
FOUR_DEVICES = """
import jax, keras
import numpy as np
from bertzoo.kernels import pallas as kernels
from bertzoo.layers import EncoderBlock, make_attention_mask

draws = np.random.default_rng(0)
x, weights = (draws.normal(size=(8, 16, 64)).astype("float32") for _ in range(2))
lengths = np.array([16, 3, 7, 16, 1, 9, 12, 16], "int32")
arrays = (x, np.arange(16) < lengths[:, None], lengths)

def made(policy):
    block = EncoderBlock(64, 2, 128, hidden_dropout=0.25, dtype=policy)
    block.build(x.shape)
    values = [draws.normal(size=variable.shape).astype("float32") / 3 for variable in block.variables]

    def result(values, x, mask, lengths):
        with keras.StatelessScope(state_mapping=list(zip(block.variables, values))):
            return block(x, make_attention_mask(mask, lengths), key=np.array([12345, -678], "int32"))

    def step():
        def loss(values, x, mask, lengths, weights):
            out = result(values, x, mask, lengths) * mask[:, :, None]  # the kernel's own at padding
            return (out * weights).astype("float32").sum(), out

        return jax.jit(jax.value_and_grad(loss, argnums=(0, 1), has_aux=True))

    return values, result, step, step()(values, *arrays, weights)

cases = [(made("float32"), 1e-5, 2), (made("mixed_bfloat16"), 0.03, 4)]  # expected of the plain path, on one device
kernels.has_ampere_gpu_or_later = lambda: True
strategy = keras.distribution.DataParallel()
keras.distribution.set_distribution(strategy)
data = [jax.device_put(x, strategy.get_data_layout(x.shape).backend_layout) for x in (*arrays, weights)]
for (values, result, step, expected), bound, count in cases:
    compiled = step().lower(values, *data).compile()
    for actual, reference in zip(jax.tree.leaves(compiled(values, *data)), jax.tree.leaves(expected), strict=True):
        actual, reference = (np.asarray(array, "float32") for array in (actual, reference))
        error, scale = np.abs(actual - reference), np.abs(reference).max()
        assert error.max() <= bound * max(1, scale), (bound, error.max(), scale)
    assert not any(moved in compiled.as_text() for moved in ("all-gather", "all-to-all", "collective-permute"))
    assert str(jax.make_jaxpr(result)(values, *arrays)).count("shard_map") == count
    assert "shard_map" not in str(jax.make_jaxpr(result)(values, *(array[:6] for array in arrays)))

jax.default_backend = lambda: "gpu"
jax.clear_caches()  # of what was traced for a CPU
gpu = jax.sharding.AbstractDevice("NVIDIA H200", 132, "gpu")  # JAX from 0.11 on wants to know its name
mesh = strategy.device_mesh.backend_mesh.abstract_mesh.update(abstract_device=gpu)
kernels._mesh = lambda: mesh
with jax.sharding.use_abstract_mesh(mesh):
    lowered = step().trace(values, *data).lower(lowering_platforms=("cuda",)).as_text()
assert "residual_norm_gradient" in lowered and "short_attention_gradient" in lowered
assert lowered.count("stablehlo.all_reduce") == 2 * 3 + 2  # of bias, gamma and beta, twice; of two more biases
"""


def test_four_devices_compute_the_same(python):
    """Each runs the kernels on its part of the batch, and only gradients of weights go from one to another."""
    # In front: XLA reads flags up to the first word that is none.
    flags = f"--xla_force_host_platform_device_count=4 {os.environ['XLA_FLAGS']}"
    python(FOUR_DEVICES, XLA_FLAGS=flags, JAX_PLATFORMS="cpu")


def test_an_export_of_any_size_takes_the_plain_path(monkeypatch):
    block = EncoderBlock(64, 2, 128, dtype="mixed_bfloat16")
    block.build((None, None, 64))
    x = np.random.default_rng(0).normal(size=(2, 8, 64)).astype("bfloat16")
    expected = jax.jit(lambda x: block(x))(x)
    monkeypatch.setattr(kernels, "has_ampere_gpu_or_later", lambda: True)
    shape = jax.export.symbolic_shape("batch, length, 64")
    exported = jax.export.export(jax.jit(lambda x: block(x)))(jax.ShapeDtypeStruct(shape, "bfloat16"))
    np.testing.assert_allclose(exported.call(x).astype("float32"), expected.astype("float32"), atol=0.02)


def test_parted_weights_take_the_plain_path(monkeypatch):
    monkeypatch.setattr(kernels, "has_ampere_gpu_or_later", lambda: True)
    mesh = keras.distribution.DeviceMesh((1, 1), ("batch", "model"), ["cpu:0"])
    layouts = keras.distribution.LayoutMap(mesh)
    with keras.distribution.ModelParallel(layout_map=layouts, batch_dim_name="batch").scope():
        assert not kernels.can_use_kernels()
    assert kernels.can_use_kernels()


def test_a_jax_without_triton_takes_the_plain_path(monkeypatch):
    monkeypatch.setattr(kernels, "has_ampere_gpu_or_later", lambda: True)
    monkeypatch.setitem(sys.modules, "jax.experimental.pallas.triton", None)
    assert not kernels.can_use_kernels()


@pytest.mark.parametrize(("capability", "has"), [("9.0", True), ("10.0", True), ("7.5", False), ("gfx90a", False)])
def test_gpus_that_have_them(monkeypatch, capability, has):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(jax, "devices", lambda: [SimpleNamespace(compute_capability=capability)])
    assert has_ampere_gpu_or_later() is has
