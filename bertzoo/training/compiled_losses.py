"""Losses and metrics in all forms that `compile` takes, for models whose outputs are logits."""

import inspect
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from bertzoo.types import Tensor

MEAN = "mean_with_sample_weight"


@keras.saving.register_keras_serializable("bertzoo")
class FunctionLoss(keras.losses.Loss):
    """A loss of a function (targets, predictions) -> losses."""

    def __init__(self, function: Callable, name: str | None = None, reduction: str = MEAN, **kwargs):
        super().__init__(name=name or getattr(function, "__name__", "loss"), reduction=reduction, **kwargs)
        self.function = function

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        return self.function(y_true, y_pred)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "function": keras.saving.serialize_keras_object(self.function)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        return cls(**{**config, "function": keras.saving.deserialize_keras_object(config["function"])})


@keras.saving.register_keras_serializable("bertzoo")
class SmoothedCrossentropy(keras.losses.Loss):
    """Cross-entropy of class ids with a share of the target spread over all classes (Szegedy et al. 2016, section 7).

    Args:
        smoothing: The share, from 0 up to but not including 1.
    """

    def __init__(self, smoothing: float = 0.1, name: str = "smoothed_crossentropy", **kwargs):
        super().__init__(name=name, **kwargs)
        if not 0 <= smoothing < 1:
            raise ValueError(f"label smoothing must be at least 0 and below 1. Received: {smoothing!r}.")
        self.smoothing = smoothing

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        logs = ops.log_softmax(ops.cast(y_pred, "float32"), axis=-1)
        ids = ops.reshape(ops.cast(y_true, "int32"), (-1, 1))
        right = ops.take_along_axis(logs, ids, axis=-1)[:, 0]
        return -(1 - self.smoothing) * right - self.smoothing * ops.mean(logs, axis=-1)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "smoothing": self.smoothing}


def loss_of_logits(loss: Any, usual: Callable) -> Any:
    """A loss in any of Keras's forms, as a `Loss` that takes logits and is a mean by sample weights.

    Args:
        loss: A name, a function, a `Loss`, or a nest of these. Names and functions of Keras's get `from_logits=True`
            where they have it.
        usual: Gives the task's own loss, for the name "crossentropy".

    Raises:
        ValueError: The name is unknown, or a `Loss` takes probabilities.
    """
    return keras.tree.map_structure(lambda one: _one_loss(one, usual), loss, none_is_leaf=False)


def _one_loss(loss, usual: Callable):
    if isinstance(loss, str) and loss.lower() in ("crossentropy", "ce"):
        return _checked(usual())
    found = keras.losses.get(loss)
    if isinstance(found, keras.losses.Loss):
        if isinstance(loss, str):
            found = _named(type(found), found)
        return _checked(found)
    cls = getattr(keras.losses, "".join(part.capitalize() for part in found.__name__.split("_")), None)
    if cls is not None and getattr(keras.losses, found.__name__, None) is found:
        return _checked(_named(cls, cls()))
    if "from_logits" in inspect.signature(found).parameters:
        raise ValueError(
            f"the outputs are logits, and the loss {found.__name__} has an argument from_logits: pass a function of "
            "targets and predictions alone that sets it to True."
        )
    return FunctionLoss(found)


def _named(cls: type, usual: keras.losses.Loss) -> keras.losses.Loss:
    return cls(from_logits=True) if "from_logits" in usual.get_config() else usual


def _checked(loss: keras.losses.Loss) -> keras.losses.Loss:
    config = loss.get_config() if type(loss).__module__.startswith("keras.") else {}
    if config.get("from_logits") is False:
        raise ValueError(
            f"the outputs are logits, and {type(loss).__name__} takes probabilities: pass "
            f"keras.losses.{type(loss).__name__}(from_logits=True)."
        )
    if loss.reduction in ("sum_over_batch_size", "mean"):
        # Keras's mean divides by the number of examples, those of weight 0 too: empty places, padding.
        # A shallow copy, so that the caller's does not change; `copy.copy` would save and load it as Keras does.
        own = object.__new__(type(loss))
        own.__dict__.update(loss.__dict__, reduction=MEAN)
        return own
    return loss


def metrics_of_logits(metrics: Any, usual: Callable) -> Any:
    """Metrics in any of Keras's forms; those given by name take logits.

    Args:
        metrics: Names, functions, `Metric`s, or a nest of these.
        usual: Gives the task's own metrics, of which "accuracy" names one.
    """

    def one(metric):
        if not isinstance(metric, str):
            return metric
        if metric.lower() in ("accuracy", "acc"):
            own = [one for one in keras.tree.flatten(usual()) if one is not None and one.name == "accuracy"]
            return own[0] if own else metric
        if metric.lower() in ("crossentropy", "ce"):
            raise ValueError(f"the metric {metric!r} is the loss, which is reported anyway: leave it out.")
        found = keras.metrics.get(metric)
        config = found.get_config() if isinstance(found, keras.metrics.Metric) else {}
        logits: dict[str, Any] = {"from_logits": True} if "from_logits" in config else {}
        if isinstance(found, keras.metrics.BinaryAccuracy):
            logits["threshold"] = 0.0
        return type(found)(**{**config, **logits, "name": metric}) if logits else metric

    return keras.tree.map_structure(one, metrics, none_is_leaf=False)


ONE_HOT = ("CategoricalCrossentropy", "CategoricalFocalCrossentropy", "CategoricalAccuracy", "TopKCategoricalAccuracy")


def refuse_one_hot(losses: Any, metrics: Any) -> None:
    """Refuses what compares one-hot rows, for targets that are the indices of classes.

    Raises:
        ValueError: One of Keras's does.
    """
    for one in keras.tree.flatten([losses, metrics]):
        name = one if isinstance(one, str) else getattr(one, "__name__", type(one).__name__)
        plain = name.replace("_", "").lower()
        found = next((known for known in ONE_HOT if known.lower() == plain), None)
        if found is not None:
            raise ValueError(
                f"targets are the indices of classes, whatever form y has, and {found} compares one-hot rows. Use "
                f"{'SparseCategoricalCrossentropy' if 'Crossentropy' in found else 'Sparse' + found}, or leave it out."
            )


def joined(metrics: Any, others: Any) -> Any:
    """Both of two arguments of metrics: lists, or dicts of lists by output."""
    if not metrics or not others:
        return others if others or metrics is None else metrics
    if isinstance(metrics, dict):
        return {key: [*_list(metrics.get(key)), *_list(others.get(key))] for key in {**metrics, **others}}
    return [*metrics, *others]


def _list(metrics) -> list:
    return list(metrics) if isinstance(metrics, (list, tuple)) else [] if metrics is None else [metrics]
