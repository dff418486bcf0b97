"""Callbacks beside those of the caller."""

import keras


def with_callback(callbacks, first: keras.callbacks.Callback):
    """The callbacks that a caller passed, in any of Keras's forms, with one put before them."""
    if isinstance(callbacks, keras.callbacks.CallbackList):
        callbacks.append(first)
        return callbacks
    return [first, *(callbacks if isinstance(callbacks, (list, tuple)) else [callbacks] if callbacks else [])]
