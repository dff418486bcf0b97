import pytest


@pytest.fixture
def abstract_gpu(monkeypatch):
    """A GPU to lower programs for on a machine that has none. JAX from 0.11 on wants to know its name."""
    import jax
    from jax.sharding import AbstractDevice, AbstractMesh

    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    jax.clear_caches()  # of what was traced for a CPU
    device = AbstractDevice("NVIDIA H200", 132, "gpu")
    with jax.sharding.use_abstract_mesh(AbstractMesh((1,), ("batch",), abstract_device=device)):
        yield
