"""Callbacks beside those of the caller."""

import keras


def with_callback(callbacks, first: keras.callbacks.Callback):
    """The callbacks that a caller passed, in any of Keras's forms, with one put before them."""
    if isinstance(callbacks, keras.callbacks.CallbackList):
        callbacks.append(first)
        return callbacks
    return [first, *(callbacks if isinstance(callbacks, (list, tuple)) else [callbacks] if callbacks else [])]


def check_rate_callbacks(optimizer, callbacks) -> None:
    """Refuses a `LearningRateScheduler` beside a schedule of the optimizer's own, which would scale what it sets.

    Raises:
        ValueError: The two meet.
    """
    callbacks = getattr(callbacks, "callbacks", callbacks)
    callbacks = callbacks if isinstance(callbacks, (list, tuple)) else [callbacks]
    sets = any(isinstance(callback, keras.callbacks.LearningRateScheduler) for callback in callbacks)
    if sets and getattr(optimizer, "scales_the_rate", False):
        raise ValueError(
            "LearningRateScheduler sets the learning rate, and so does the optimizer's own schedule (warm-up, then "
            f"{optimizer.schedule!r}): compile with AdamW(rate, warmup=0, schedule='constant'), or leave the callback "
            "out."
        )
