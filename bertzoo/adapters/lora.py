"""LoRA: training a few small matrices beside the large ones (Hu et al. 2022)."""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import keras
import numpy as np
from keras import ops

from bertzoo._keras_hooks import layer_attributes, own_trainable_weights, replace_sublayer, sublayers
from bertzoo.checkpoints.loading import weight_map
from bertzoo.random import get_seed, host_generator
from bertzoo.types import Tensor

# The projections of queries and values (section 4.2 of the paper), as PEFT's choice where it has one.
TARGETS = {
    "bert": ("query", "value"),
    "deberta": ("in_proj",),
    "deberta-v2": ("query_proj", "value_proj"),
    "distilbert": ("q_lin", "v_lin"),
    "modernbert": ("Wqkv",),
    "mpnet": ("q", "v"),
}


@keras.saving.register_keras_serializable("bertzoo")
class LoRADense(keras.layers.Layer):
    """A dense layer with factors: x -> dense(x) + scale × (x A) B, for each part of its output (section 4.1).

    Args:
        dense: The built layer; its weights are frozen.
        parts: The rank and the scale of the factors for each Hugging Face tensor that the kernel joins; None for a part
            without factors.
        labels: A name for each part, from which the initial A is drawn. B starts at 0.
    """

    def __init__(
        self,
        dense: keras.layers.Dense,
        parts: Sequence[tuple[int, float] | None],
        labels: Sequence[str],
        **kwargs: Any,
    ):
        # The factors of a quantized layer are not quantized.
        policy = dense.dtype_policy
        if dense.quantization_mode is not None:
            policy = policy.name.rpartition("_from_")[2]
        super().__init__(name=f"{dense.name}_lora", dtype=policy, **kwargs)
        self.dense, self.scales = dense, [part and part[1] for part in parts]
        for weight in dense.weights:
            weight.trainable = False
        inner, outer = dense.kernel.shape[0], dense.kernel.shape[1] // len(parts)
        self.factors: list = []
        for i, (part, label) in enumerate(zip(parts, labels)):
            if part is None:
                self.factors.append(None)
                continue
            rank = part[0]
            # As Kaiming's uniform numbers with a = √5, which PEFT draws: ±1/√inner.
            draws = host_generator(get_seed(), "lora", label).uniform(-1, 1, (inner, rank)) / np.sqrt(inner)
            a = self.add_weight(name=f"lora_a_{i}", shape=(inner, rank), initializer="zeros")
            a.assign(draws.astype("float32"))
            self.factors.append((a, self.add_weight(name=f"lora_b_{i}", shape=(rank, outer), initializer="zeros")))
        self.outer = outer
        self.built = True

    def call(self, x: Tensor) -> Tensor:
        y, parts = self.dense(x), []
        for factors, scale in zip(self.factors, self.scales):
            if factors is None:
                parts.append(ops.zeros((*ops.shape(x)[:-1], self.outer), y.dtype))
            else:
                parts.append(ops.cast(scale, y.dtype) * ops.matmul(ops.matmul(x, factors[0]), factors[1]))
        return y + (parts[0] if len(parts) == 1 else ops.concatenate(parts, axis=-1))

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        return self.dense.compute_output_shape(input_shape)

    def merge(self) -> None:
        """Adds the product of the factors to the kernel.

        Raises:
            ValueError: The kernel is quantized.
        """
        if self.dense.quantization_mode is not None:
            raise ValueError(
                f"{self.dense.path} is quantized ({self.dense.quantization_mode}), and factors can't be added to it "
                "exactly: save the adapter with save_adapter, and merge it into the model as it was before quantize."
            )
        kernel = np.array(ops.convert_to_numpy(self.dense.kernel), dtype="float32")
        for i, factors in enumerate(self.factors):
            if factors is not None:
                a, b = (np.asarray(ops.convert_to_numpy(f), dtype="float32") for f in factors)
                kernel[:, i * self.outer : (i + 1) * self.outer] += self.scales[i] * (a @ b)
        self.dense.kernel.assign(kernel)


@dataclass
class LoRAConfig:
    """The arguments of `enable_lora`, under their names."""

    rank: int
    alpha: float
    targets: Sequence[str] | str
    train_head: bool
    use_rslora: bool
    rank_pattern: Mapping[str, int] = field(default_factory=dict)
    alpha_pattern: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rank_pattern, self.alpha_pattern = dict(self.rank_pattern), dict(self.alpha_pattern)
        for rank in (self.rank, *self.rank_pattern.values()):
            if type(rank) is bool or not isinstance(rank, (int, np.integer)) or rank < 1:
                raise ValueError(f"rank must be a whole number of at least 1. Received: {rank!r}.")
        self.rank = int(self.rank)
        self.targets = self.targets if isinstance(self.targets, str) else list(self.targets)

    def factors(self, module: str) -> tuple[int, float] | None:
        """The rank and the scale of the factors beside a module of Hugging Face's, None where it gets none."""
        if isinstance(self.targets, str):
            is_target = re.fullmatch(self.targets, module) is not None
        else:
            is_target = any(_is_called(module, target) for target in self.targets)
        if not is_target:
            return None
        rank = int(_by_name(self.rank_pattern, module, self.rank))
        return rank, _by_name(self.alpha_pattern, module, self.alpha) / (rank**0.5 if self.use_rslora else rank)


def enable_lora(
    task: keras.Model,
    rank: int = 8,
    alpha: float = 16.0,
    targets: Sequence[str] | str | None = None,
    train_head: bool = True,
    *,
    use_rslora: bool = False,
    rank_pattern: Mapping[str, int] | None = None,
    alpha_pattern: Mapping[str, float] | None = None,
) -> None:
    """Freezes a task's encoder and adds trainable low-rank factors to some of its dense layers.

    Call it before `compile`.

    Args:
        task: A task, or an `Encoder`.
        rank: Inner size of the factors.
        alpha: The factors' product is scaled by alpha / rank.
        targets: The last parts of names of Hugging Face modules, such as "query", "value", "dense"; or, as one string,
            a regular expression for full names, as in PEFT. Fused projections get separate factors. By default the
            projections of queries and values.
        train_head: Train the head too, and save it with the adapter.
        use_rslora: Scale by alpha / √rank (Kalajdzievski 2023).
        rank_pattern, alpha_pattern: The rank or alpha of single modules, by name or the last parts of it.

    Raises:
        ValueError: A rank is below 1, there is LoRA already, or no layer has such a name.
        re.error: `targets` is no regular expression.
    """
    encoder = getattr(task, "backbone", task)
    if targets is None:
        targets = TARGETS.get(encoder.family.model_type, TARGETS["bert"])
    config = LoRAConfig(rank, alpha, targets, train_head, use_rslora, rank_pattern or {}, alpha_pattern or {})
    if lora_layers(task):
        raise ValueError("the model has LoRA factors already: merge_lora puts them into its weights.")
    found = _find_targets(encoder, encoder.family.prefix if encoder is not task else "", config)
    trained = [(weight, weight.trainable) for weight in task.weights]
    try:
        layers = [LoRADense(dense, parts, modules) for _, _, dense, modules, parts in found]
    except BaseException:  # running out of memory too
        for weight, trains in trained:
            weight.trainable = trains
        raise
    in_encoder = {id(weight) for weight in encoder.weights}
    for weight in task.weights:
        if id(weight) in in_encoder or not train_head:
            weight.trainable = False
    for (owner, attribute, *_), layer in zip(found, layers):
        replace_sublayer(owner, attribute, layer)
    _forget_compiled(task)
    encoder.lora = dataclasses.asdict(config)


def _find_targets(encoder: keras.Model, prefix: str, config: LoRAConfig) -> list[tuple]:
    """(layer, attribute, Dense, Hugging Face's modules, their factors) of each Dense that gets factors.

    In `config`, a regular expression becomes the list of names that it matches: files keep names, since another's
    expression may take for ever.
    """
    found = []
    for owner, attribute, dense, modules in dense_layers(encoder):
        parts = [config.factors(prefix + module) for module in modules]
        if any(parts):
            found.append((owner, attribute, dense, modules, parts))
    if not found:
        ends = sorted({module.split(".")[-1] for *_, modules in dense_layers(encoder) for module in modules})
        wanted = config.targets if isinstance(config.targets, str) else ", ".join(config.targets)
        raise ValueError(f"no layer of the encoder is called {wanted}; modules end in {', '.join(ends)}.")
    if isinstance(config.targets, str):
        named = [(module, part) for *_, modules, parts in found for module, part in zip(modules, parts)]
        config.targets = [prefix + module for module, part in named if part is not None]
    return found


def lora_layers(task: keras.Model) -> list[LoRADense]:
    """The layers with factors."""
    return [layer for layer in sublayers(task) if isinstance(layer, LoRADense)]


def factor_ids(task: keras.Model) -> set[int]:
    """The ids of the factors."""
    return {id(w) for layer in lora_layers(task) for pair in layer.factors if pair for w in pair}


def lora_factors(task: keras.Model) -> dict[str, tuple[keras.Variable, keras.Variable]]:
    """Hugging Face's module -> its two factors, (inner, rank) and (rank, outer)."""
    names = _module_names(getattr(task, "backbone", task))
    found = {}
    for layer in lora_layers(task):
        for module, factors in zip(names[_path(layer.dense.kernel)], layer.factors):
            if factors is not None:
                found[module] = factors
    return found


def dense_layers(encoder: keras.Model) -> list[tuple[keras.layers.Layer, str, keras.layers.Dense, tuple[str, ...]]]:
    """(layer, attribute, its Dense, Hugging Face's modules that the Dense joins) for all dense layers."""
    names = _module_names(encoder)
    found = _owners(encoder, keras.layers.Dense)
    return [(owner, attribute, dense, names.get(_path(dense.kernel), ())) for owner, attribute, dense in found]


def merge_lora(task: keras.Model) -> None:
    """Adds the factors to the weights, which then compute the same without them and can be saved as a preset. All
    weights train again, but those of frozen layers, once `compile` has been called anew.

    Raises:
        ValueError: There are none.
    """
    for layer in require_lora(task):
        layer.merge()
    remove_lora(task)
    for layer in sublayers(task):
        for weight in own_trainable_weights(layer):
            weight.trainable = layer.trainable


def remove_lora(task: keras.Model) -> None:
    """Takes the factors away; the dense layers compute as before them, and their weights stay frozen."""
    encoder = getattr(task, "backbone", task)
    for owner, attribute, layer in _owners(encoder, LoRADense):
        replace_sublayer(owner, attribute, layer.dense)
    _forget_compiled(task)
    encoder.lora = None


def require_lora(task: keras.Model) -> list[LoRADense]:
    """The layers with factors.

    Raises:
        ValueError: There are none.
    """
    layers = lora_layers(task)
    if not layers:
        raise ValueError("the model has no LoRA factors: call enable_lora first.")
    return layers


def _module_names(encoder: keras.Model) -> dict[str, tuple[str, ...]]:
    """The encoder's weights -> Hugging Face's modules."""
    entries = weight_map(encoder, encoder, (), ignored=factor_ids(encoder))
    return {entry.keras_name: tuple(name.removesuffix(".weight") for name in entry.hf_names) for entry in entries}


def _path(weight: keras.Variable) -> str:
    return weight.path.split("/", 1)[1]


def _is_called(module: str, name: str) -> bool:
    return module == name or module.endswith(f".{name}")


def _by_name(values: Mapping[str, Any], module: str, default: Any) -> Any:
    """The value of the first name that is the module's or the end of it."""
    return next((value for name, value in values.items() if _is_called(module, name)), default)


def _forget_compiled(task: keras.Model) -> None:
    # TensorFlow's compiled functions would go on with the layers that were there when they were made.
    task.train_function = task.test_function = task.predict_function = None
    task.compiled = False  # its optimizer has the moments of other weights


def _owners(encoder: keras.Model, kind: type) -> list[tuple[keras.layers.Layer, str, Any]]:
    """(layer, attribute, its value) for every attribute that is a layer of a kind."""
    owners = [owner for owner in sublayers(encoder) if not isinstance(owner, LoRADense)]
    return [(o, name, value) for o in owners for name, value in layer_attributes(o) if isinstance(value, kind)]
