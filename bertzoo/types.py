"""Names for types that have no common class."""

from typing import Any, TypeAlias

# A tensor of the backend in use, or a symbolic `keras.KerasTensor`.
Tensor: TypeAlias = Any
