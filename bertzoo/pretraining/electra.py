"""Replaced-token detection: a small generator fills masks in, a discriminator finds where (Clark et al. 2020)."""

from pathlib import Path

import keras
import numpy as np
from keras import ops

from bertzoo.checkpoints.loading import weight_names
from bertzoo.models.config import EncoderConfig
from bertzoo.models.encoder import Encoder
from bertzoo.pretraining.auc import LogitAuc
from bertzoo.pretraining.means import hits, weighted_mean
from bertzoo.pretraining.sharing import DisentangledEmbeddings, SharedEmbeddings
from bertzoo.random import Salt, fold_in, get_seed, random_bits, step_key
from bertzoo.tasks.masked_lm import MaskedLM
from bertzoo.tasks.pretraining_heads import ReplacedTokenDetector
from bertzoo.text.masking import Masking
from bertzoo.text.tokenizer import Tokenizer
from bertzoo.training.loss_mean import LossMean
from bertzoo.training.optimizer import AdamW
from bertzoo.training.step import BackendStep

SHARING = ("plain", "disentangled")
BLOCK = 128  # tokens


def generator_config(config: EncoderConfig, hidden: float = 0.25, layers: float = 1.0) -> EncoderConfig:
    """A generator for a discriminator, `hidden` times as wide and `layers` times as deep, with the same embeddings.

    Raises:
        ValueError: A share is not above 0, or the width is no multiple of the heads.
    """
    if hidden <= 0 or layers <= 0:
        raise ValueError(f"the generator's shares of width and depth must be above 0; they are {hidden} and {layers}.")
    width = round(hidden * config.hidden_size)
    return config.with_(
        hidden_size=width,
        num_hidden_layers=max(1, round(layers * config.num_hidden_layers)),
        num_attention_heads=max(1, width // 64),
        intermediate_size=4 * width,
    )


class ReplacedTokenTraining(BackendStep, keras.Model):
    """A generator and a discriminator that share token, position and segment tables and their normalisation.

    The generator guesses masked tokens. What it draws from its own guesses takes their place, and the discriminator
    tells for every token whether it is the original. No gradient goes through the draw. The loss is the generator's,
    the mean over masked tokens, and `weight` times the discriminator's, the mean over real tokens.

    Inputs: those of an encoder, and `mask_positions`, `mask_labels`, int (batch, places), with `mask_weights`, float
    (batch, places), as `mask` makes them. Outputs: `masked_lm` logits (batch, places, vocabulary), `rtd` logits (batch,
    length), `replaced` int (batch, length), 1 where the token differs from the original, and `token_ids` (batch,
    length), what the discriminator read.

    Args:
        config: The discriminator's.
        generator: The generator's; see `generator_config`.
        tokenizer: For the presets to save.
        masking: The rule; ELECTRA's where None: 15 %, of which 85 % become [MASK] and the rest stay.
        weight: Of the discriminator's loss.
        sharing: "plain", or "disentangled" as in DeBERTa v3, where the discriminator's loss does not move the tables of
            the generator; see `DisentangledEmbeddings`.
        options: `dropout`, `attention_dropout`, `remat` and `dtype` of both encoders.

    Raises:
        ValueError: The family has no such heads, or the embeddings differ in shape.
    """

    def __init__(
        self,
        config: EncoderConfig,
        generator: EncoderConfig,
        tokenizer: Tokenizer,
        masking: Masking | None = None,
        weight: float = 50.0,
        sharing: str = "plain",
        name: str = "replaced_token_training",
        **options,
    ):
        dtype = {"dtype": options["dtype"]} if options.get("dtype") else {}
        super().__init__(name=name, **dtype)
        if generator.embedding_size != config.embedding_size or generator.vocab_size != config.vocab_size:
            raise ValueError(
                f"generator and discriminator share their embeddings: vocab_size and embedding_size must agree; they "
                f"are {generator.vocab_size}, {generator.embedding_size} and {config.vocab_size}, "
                f"{config.embedding_size}."
            )
        if sharing not in SHARING:
            raise ValueError(f"sharing must be one of {', '.join(SHARING)}; it is {sharing!r}.")
        masking = masking or Masking.for_tokenizer(tokenizer, masked=0.85, random=0.0)
        if sharing == "disentangled":
            made = Encoder(generator, False, name="generator", **options)
            shared = DisentangledEmbeddings(made.embeddings, config.hidden_size)
            encoder = Encoder(config, False, embeddings=shared, **options)
        else:
            encoder = Encoder(config, False, **options)
            shared = SharedEmbeddings(encoder.embeddings, generator.hidden_size)
            made = Encoder(generator, False, embeddings=shared, name="generator", **options)
        self.discriminator = ReplacedTokenDetector(encoder, tokenizer, **dtype)
        self.generator = MaskedLM(made, tokenizer, masking, **dtype)
        self.masking, self.weight, self.seed = masking, weight, get_seed()
        self.scores = {
            name: keras.metrics.Mean(name=name) for name in ("masked_lm_loss", "masked_accuracy", "rtd_loss")
        }
        self.auc = LogitAuc(name="rtd_auc")
        self.built = True

    @property
    def backbone(self) -> Encoder:
        """The discriminator's encoder, which is the one to fine-tune."""
        return self.discriminator.backbone

    def mask(self, inputs: dict[str, np.ndarray], rng: np.random.Generator) -> tuple[dict]:
        """Masks rows: -> a batch."""
        inputs, labels, weights = self.masking(inputs, rng)
        return ({**inputs, "mask_labels": labels, "mask_weights": weights},)

    def call(self, inputs, training: bool = False):
        inputs = dict(inputs)
        positions, labels, counted = (inputs.pop(f"mask_{name}") for name in ("positions", "labels", "weights"))
        if training:
            key = self.backbone.step.next_key()
        else:  # of the batch's own tokens, so that it is the same whatever was evaluated before
            key = step_key(self.seed, ops.cast(ops.sum(inputs["token_ids"]), "int32"))
        logits = self._generate(inputs, positions, key, training)
        drawn = draw(logits, fold_in(key, Salt.REPLACED_TOKENS))
        inputs["token_ids"], replaced = put_in(inputs["token_ids"], positions, labels, counted, drawn)
        outputs = self.backbone(
            inputs, training=training, dropout_key=fold_in(key, Salt.DISCRIMINATOR) if training else None
        )
        head_key = fold_in(key, Salt.DISCRIMINATOR_HEAD) if training else None
        rtd = self.discriminator.rtd(outputs["sequence_output"], key=head_key)[..., 0]
        return {"masked_lm": logits, "rtd": rtd, "replaced": replaced, "token_ids": inputs["token_ids"]}

    def _generate(self, inputs, positions, key, training: bool):
        encoder, head = self.generator.backbone, self.generator.masked_lm
        key = fold_in(key, Salt.GENERATOR) if training else None
        outputs = encoder(inputs, training=training, dropout_key=key, decoder=head, query_positions=positions)
        return head(outputs["decoded_output"], encoder.token_table())

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        labels, counted = x["mask_labels"], ops.cast(x["mask_weights"], "float32")
        real = ops.cast(x["padding_mask"], "float32")
        replaced = ops.cast(y_pred["replaced"], "float32")
        masked_lm = weighted_mean(
            ops.sparse_categorical_crossentropy(labels, y_pred["masked_lm"], from_logits=True), counted
        )
        rtd = weighted_mean(ops.softplus(y_pred["rtd"]) - y_pred["rtd"] * replaced, real)
        right = hits(y_pred["masked_lm"], labels)
        self.scores["masked_lm_loss"].update_state(ops.stop_gradient(masked_lm), ops.sum(counted))
        self.scores["masked_accuracy"].update_state(weighted_mean(right, counted), ops.sum(counted))
        self.scores["rtd_loss"].update_state(ops.stop_gradient(rtd), ops.sum(real))
        self.auc.update_state(y_pred["replaced"], ops.stop_gradient(y_pred["rtd"]), real)
        LossMean.record(self, [masked_lm, self.weight * rtd], [ops.sum(counted), ops.sum(real)])
        return masked_lm + self.weight * rtd

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        return self.get_metrics_result()

    def compile(self, optimizer=None, **kwargs) -> None:
        """As `keras.Model.compile`; the loss is the model's own, the default optimizer the paper's."""
        if optimizer is None:
            optimizer = AdamW(5e-4, 0.01, epsilon=1e-6, warmup=0.01)
        super().compile(optimizer=optimizer, **kwargs)
        LossMean.track(self, terms=2)
        # TensorFlow traces the step twice where its first trace makes the moments.
        self.optimizer.build(self.trainable_variables)

    def save_to_preset(self, directory: str | Path) -> None:
        """Writes the discriminator, which transformers loads as ElectraForPreTraining, and in the subdirectory
        `generator` the generator, which it loads as ElectraForMaskedLM."""
        self._merged().save_to_preset(directory)
        self.generator.save_to_preset(Path(directory) / "generator")

    def _merged(self) -> ReplacedTokenDetector:
        """The discriminator with tables of its own, as files have it."""
        embeddings = self.backbone.embeddings
        if not isinstance(embeddings, DisentangledEmbeddings):
            return self.discriminator
        plain = ReplacedTokenDetector(Encoder(self.backbone.config, False), self.discriminator.tokenizer)
        own = weight_names(self.discriminator)
        sums = {"embeddings/token": embeddings.token, "embeddings/position": embeddings.position}
        for name, weight in weight_names(plain).items():
            weight.assign(ops.convert_to_numpy(own[name] if name in own else sums[name]))
        return plain


def draw(logits, key):
    """Draws from the distributions that logits (batch, places, vocabulary) stand for: int32 (batch, places).

    A random number from the project's integer hash picks a share of the total weight. The block of tokens in which that
    share ends is found first, then the token in the block: a running sum over the whole vocabulary would be slow.
    """
    logits = ops.stop_gradient(ops.cast(logits, "float32"))
    batch, places, vocabulary = ops.shape(logits)
    blocks = -(-vocabulary // BLOCK)
    weights = ops.exp(logits - ops.amax(logits, axis=-1, keepdims=True))
    # Not `ops.pad`, which counts its calls: PyTorch would compile each step anew.
    rest = ops.tile(ops.zeros_like(weights[..., :1]), (1, 1, blocks * BLOCK - vocabulary))
    weights = ops.concatenate([weights, rest], axis=-1)
    weights = ops.reshape(weights, (batch, places, blocks, BLOCK))
    bits = ops.right_shift(random_bits(key, (batch, places, 1)), 8) & 0xFFFFFF
    uniform = (ops.cast(bits, "float32") + 0.5) * 2.0**-24
    sums = ops.sum(weights, axis=-1)
    block, left = _find(sums, uniform * ops.sum(sums, axis=-1, keepdims=True))
    inside = ops.take_along_axis(weights, block[..., None, None], axis=2)[:, :, 0]
    token, _ = _find(inside, left)
    return ops.minimum(block * BLOCK + token, vocabulary - 1)


def _find(weights, share):
    """Where a share of the total weight ends, and what of it is left there: (…, n), (…, 1) -> int32 (…), (…, 1)."""
    sums = ops.cumsum(weights, axis=-1)
    # Rounding may put the share at the very end of the sum, behind which nothing is.
    index = ops.minimum(ops.sum(ops.cast(sums <= share, "int32"), axis=-1), weights.shape[-1] - 1)
    before = ops.take_along_axis(sums - weights, index[..., None], axis=-1)
    return index, share - before


def put_in(token_ids, positions, labels, counted, drawn):
    """Rows with drawn tokens in place of the masked ones, and where these differ from the original.

    Args:
        token_ids: int32 (batch, length).
        positions, labels, drawn: int32 (batch, places).
        counted: (batch, places), above 0 at places in use. The others point to the first token, which is never masked.

    Returns:
        int32 (batch, length) twice.
    """
    used = counted > 0
    first = ops.broadcast_to(token_ids[:, :1], ops.shape(drawn))
    rows = ops.broadcast_to(ops.arange(ops.shape(drawn)[0], dtype="int32")[:, None], ops.shape(drawn))
    where = ops.reshape(ops.stack([rows, ops.cast(positions, "int32")], axis=-1), (-1, 2))
    tokens = ops.reshape(ops.where(used, drawn, first), (-1,))
    differs = ops.reshape(ops.cast(ops.logical_and(used, drawn != labels), "int32"), (-1,))
    token_ids = ops.cast(token_ids, "int32")
    return ops.scatter_update(token_ids, where, tokens), ops.scatter_update(ops.zeros_like(token_ids), where, differs)
