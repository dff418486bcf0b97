"""Losses and metrics in all forms that `compile` takes, for models whose outputs are logits."""

import inspect
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from bertzoo.types import Tensor

MEAN = "mean_with_sample_weight"
CROSSENTROPY = ("crossentropy", "ce")
ONE_HOT = ("CategoricalCrossentropy", "CategoricalFocalCrossentropy", "CategoricalAccuracy", "TopKCategoricalAccuracy")


@keras.saving.register_keras_serializable("bertzoo")
class FunctionLoss(keras.losses.Loss):
    """A loss of a function (targets, predictions) -> losses."""

    def __init__(self, function: Callable, name: str | None = None, reduction: str = MEAN, **kwargs: Any):
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
    """Cross-entropy of class ids with label smoothing (Szegedy et al. 2016, section 7).

    Args:
        smoothing: The probability that is spread over all classes, from 0 up to but not including 1.
    """

    def __init__(self, smoothing: float = 0.1, name: str = "smoothed_crossentropy", **kwargs: Any):
        super().__init__(name=name, **kwargs)
        if not 0 <= smoothing < 1:
            raise ValueError(f"label smoothing must be at least 0 and below 1. Received: {smoothing!r}.")
        self.smoothing = smoothing

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        logs = ops.log_softmax(ops.cast(y_pred, "float32"), axis=-1)
        ids = ops.reshape(ops.cast(y_true, "int32"), (-1, 1))
        of_labels = ops.take_along_axis(logs, ids, axis=-1)[:, 0]
        return -(1 - self.smoothing) * of_labels - self.smoothing * ops.mean(logs, axis=-1)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "smoothing": self.smoothing}


def resolve_logits_loss(loss: Any, default_loss: Callable) -> Any:
    """A loss in any of Keras's forms, as a `Loss` that takes logits and is a mean by sample weights.

    Args:
        loss: A name, a function, a `Loss`, or a nest of these. Names and functions of Keras's get `from_logits=True`
            where they have it.
        default_loss: Gives the task's own loss, for the name "crossentropy".

    Raises:
        ValueError: The name is unknown, or a `Loss` takes probabilities.
    """
    return keras.tree.map_structure(lambda leaf: _as_loss(leaf, default_loss), loss, none_is_leaf=False)


def _as_loss(loss, default_loss: Callable) -> keras.losses.Loss:
    if isinstance(loss, str) and loss.lower() in CROSSENTROPY:
        loss = default_loss()
    resolved, takes_defaults = keras.losses.get(loss), isinstance(loss, str)
    if not isinstance(resolved, keras.losses.Loss):
        name = resolved.__name__
        cls = getattr(keras.losses, "".join(word.capitalize() for word in name.split("_")), None)
        if cls is None or getattr(keras.losses, name, None) is not resolved:  # the user's own function
            if "from_logits" in inspect.signature(resolved).parameters:
                raise ValueError(
                    f"the outputs are logits, and the loss {name} has an argument from_logits: pass a function of "
                    "targets and predictions alone that sets it to True."
                )
            return FunctionLoss(resolved)
        resolved, takes_defaults = cls(), True
    if takes_defaults and "from_logits" in resolved.get_config():
        resolved = type(resolved)(from_logits=True)
    name, module = type(resolved).__name__, type(resolved).__module__
    if module.startswith("keras.") and resolved.get_config().get("from_logits") is False:
        raise ValueError(
            f"the outputs are logits, and {name} takes probabilities: pass keras.losses.{name}(from_logits=True)."
        )
    if resolved.reduction not in ("sum_over_batch_size", "mean"):
        return resolved
    # Keras's mean divides by the number of examples, those of weight 0 too: empty places, padding.
    # A shallow copy, so that the caller's does not change; `copy.copy` would save and load it as Keras does.
    copy = object.__new__(type(resolved))
    copy.__dict__.update(resolved.__dict__, reduction=MEAN)
    return copy


def resolve_logits_metrics(metrics: Any, default_metrics: Callable) -> Any:
    """Metrics in any of Keras's forms; those given by name take logits.

    Args:
        metrics: Names, functions, `Metric`s, or a nest of these.
        default_metrics: Gives the task's own metrics, of which "accuracy" names one.
    """

    def resolve(metric):
        if not isinstance(metric, str):
            return metric
        if metric.lower() in ("accuracy", "acc"):
            own = (
                known
                for known in keras.tree.flatten(default_metrics())
                if known is not None and known.name == "accuracy"
            )
            return next(own, metric)
        if metric.lower() in CROSSENTROPY:
            raise ValueError(f"the metric {metric!r} is the loss, which is reported anyway: leave it out.")
        resolved = keras.metrics.get(metric)
        config = resolved.get_config() if isinstance(resolved, keras.metrics.Metric) else {}
        logits: dict[str, Any] = {"from_logits": True} if "from_logits" in config else {}
        if isinstance(resolved, keras.metrics.BinaryAccuracy):
            logits["threshold"] = 0.0
        return type(resolved)(**{**config, **logits, "name": metric}) if logits else metric

    return keras.tree.map_structure(resolve, metrics, none_is_leaf=False)


def check_not_one_hot(losses: Any, metrics: Any) -> None:
    """Refuses losses and metrics of Keras that compare one-hot rows, for targets that are the indices of classes.

    Raises:
        ValueError: One of them does.
    """
    for item in keras.tree.flatten([losses, metrics]):
        name = item if isinstance(item, str) else getattr(item, "__name__", type(item).__name__)
        one_hot = next((known for known in ONE_HOT if known.lower() == name.replace("_", "").lower()), None)
        if one_hot is not None:
            raise ValueError(
                f"targets are the indices of classes, whatever form y has, and {one_hot} compares one-hot rows. Use "
                f"{'SparseCategoricalCrossentropy' if 'Crossentropy' in one_hot else 'Sparse' + one_hot}, or leave it "
                "out."
            )


def join_metrics(metrics: Any, weighted_metrics: Any) -> Any:
    """Both of two arguments of metrics: lists, or dicts of lists by output."""
    if not metrics or not weighted_metrics:
        return weighted_metrics or metrics
    if isinstance(metrics, dict):
        return {
            key: [
                metric for group in (metrics, weighted_metrics) for metric in keras.tree.flatten(group.get(key) or [])
            ]
            for key in {**metrics, **weighted_metrics}
        }
    return [*metrics, *weighted_metrics]
