"""Faster forms of operations, for one backend or one device: importing this package registers them.

Without it everything runs, slower.
"""

import keras

from bertzoo.kernels import general as general

if keras.backend.backend() == "jax":
    from bertzoo.kernels import jax_forms as jax_forms
    from bertzoo.kernels import vocabulary_parts as vocabulary_parts
