"""Where a layer's dropout key comes from if its caller hands none in."""

import zlib

import keras
from keras.src.backend.common.stateless_scope import in_stateless_scope

from bertzoo.random import StepCounter, fold_in

RATES = (
    "hidden_dropout",
    "attention_output_dropout",
    "attention_dropout",
    "position_dropout",
    "dropout_rate",
    "first_dropout",
)


class OwnKey(keras.layers.Layer):
    """The base of layers that drop.

    An encoder hands its blocks a key, or None at inference. A layer that someone puts into a model of their own gets
    none, so that it counts its own training calls, and draws from the project's seed and its name.
    """

    own_step: StepCounter | None = None

    def __call__(self, *args, **kwargs):
        # Encoders and tasks build their layers before they call them, and hand keys in: a counter each would be in the
        # way of every step.
        if not self.built and "key" not in kwargs:
            self._count_calls()
        return super().__call__(*args, **kwargs)

    def _count_calls(self) -> None:
        if self.own_step is None and any(getattr(part, rate, 0) for part in self._flatten_layers() for rate in RATES):
            if self.built and in_stateless_scope():
                raise ValueError(
                    f"the layer {self.name!r} drops, was built before it was called and is first called in a compiled "
                    "step, where it can't begin to count its calls: call it once before, or pass key=."
                )
            self._tracker.unlock()
            self.own_step = StepCounter(name=f"{self.name}_step")
            if self.built:
                self._tracker.lock()

    def key_of(self, key, training):
        """The key that came, or one of its own in training."""
        if key is not None or not training:
            return key
        self._count_calls()
        if self.own_step is None:
            return None
        return fold_in(self.own_step.next_key(), zlib.crc32(self.name.encode()))

    def rematerialized_call(self, layer_call, *args, **kwargs):
        # Counted here, since what is recomputed would count again.
        key = kwargs.pop("key") if "key" in kwargs else self.key_of(None, kwargs.get("training"))
        kwargs = kwargs if key is None else {**kwargs, "key": key}
        # JAX would take what is no tensor for one, and TensorFlow takes tensors alone, without names.
        kept = {name: value for name, value in kwargs.items() if value is None or isinstance(value, bool)}
        names = [name for name in kwargs if name not in kept]
        places, count = [i for i, value in enumerate(args) if value is not None], len(args)

        def filled(*tensors):
            given = dict(zip([*places, *names], tensors))
            return layer_call(*map(given.get, range(count)), **{name: given[name] for name in names}, **kept)

        # Keras from 3.16 binds `training` by itself, which `filled` has already.
        call = super().rematerialized_call(filled, *args, **{k: v for k, v in kwargs.items() if k != "training"})
        return lambda *args, **_: call(*[args[i] for i in places], *[kwargs[name] for name in names])
