"""Pre-trains one ELECTRA twice, here and with transformers: the same first weights, data, order and masks.

    KERAS_BACKEND=jax python tests/benchmarks/run.py electra CORPUS CONFIG.toml [--steps 2000] [--every 100] [--out F]

CORPUS is a directory of `bertzoo prepare`, CONFIG the file of a run of `bertzoo pretrain`, of which the first `--steps`
steps are made, with warm-up and decay over them. The peer is ElectraForMaskedLM and ElectraForPreTraining with one
module of embeddings, torch.optim.AdamW and the same schedule. What is drawn differs: the generator's samples and
dropout. Prints, for every so many steps, the generator's loss and accuracy, the discriminator's loss, and the area
under its ROC curve, of both; writes them as JSON to `--out`.
"""

import dataclasses
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from benchmarks.common import command_line, run_in_process, torch_device

SCORES = ("masked_lm_loss", "masked_accuracy", "rtd_loss", "rtd_auc")


def _run_of(argument: dict):
    """The configuration, the objective, and a function that gives the data set of the steps from a number on."""
    from bertzoo.pretraining.config import PretrainConfig
    from bertzoo.pretraining.corpus import CorpusSentences, TokenCorpus
    from bertzoo.pretraining.corpus_dataset import CorpusDataset
    from bertzoo.pretraining.objectives import find_objective
    from bertzoo.random import set_seed

    config = PretrainConfig.read(argument["config"], TokenCorpus.open(argument["corpus"]))
    settings = {"steps": argument["steps"], "warmup": 0.1, "bias_correction": True, "verbose": 0}
    config = dataclasses.replace(config, training=dataclasses.replace(config.training, **settings))
    set_seed(config.training.seed)
    objective = find_objective(config)
    sentences = CorpusSentences(config.corpus, min(spec.length for spec in config.batches) - 2)
    examples = objective.examples(config.corpus, short_seq_prob=config.training.short_seq_prob, sentences=sentences)

    def data(transform, first, count):
        return CorpusDataset(
            examples, config.batches, transform, num_batches=count, first_batch=first, seed=config.training.seed
        )

    return config, objective, data


def _run_bertzoo(argument: dict) -> Iterator[dict[str, float]]:
    from bertzoo.training.step import BackendModel, jit_compile_setting

    config, objective, data = _run_of(argument)
    model = objective.model(config)
    model.save_to_preset(argument["preset"])
    model.compile(config.training.make_optimizer(), jit_compile=jit_compile_setting())
    for first in range(0, argument["steps"], argument["every"]):
        batches = data(objective.transform(model), first, argument["every"])
        logs = BackendModel.fit(model, batches, epochs=1, shuffle=False, verbose=0).history
        yield {name: float(logs[name][-1]) for name in SCORES}


class _Peer:
    """ElectraForMaskedLM and ElectraForPreTraining with one module of embeddings, and their optimizer.

    Args:
        config: The run.
        preset: The directory with the first weights.
        steps: Steps of the schedule.
    """

    def __init__(self, config, preset: Path, steps: int):
        import torch
        from transformers import ElectraForMaskedLM, ElectraForPreTraining

        self.device, self.training = torch_device(), config.training
        self.weight = config.generator.get("weight", 50.0)
        options = {"dtype": torch.float32, "hidden_dropout_prob": self.training.dropout or 0.0}
        options["attention_probs_dropout_prob"] = self.training.attention_dropout
        self.discriminator = ElectraForPreTraining.from_pretrained(preset, **options).to(self.device).train()
        self.generator = ElectraForMaskedLM.from_pretrained(preset / "generator", **options).to(self.device).train()
        embeddings = self.generator.electra.embeddings = self.discriminator.electra.embeddings
        self.generator.generator_lm_head.weight = embeddings.word_embeddings.weight
        named = [*self.discriminator.named_parameters(), *self.generator.named_parameters()]
        named = {id(parameter): (name, parameter) for name, parameter in named}.values()  # the shared ones once
        groups = {0.0: [], self.training.weight_decay: []}
        for name, parameter in named:
            plain = name.endswith("bias") or "LayerNorm" in name
            groups[0.0 if plain else self.training.weight_decay].append(parameter)
        self.optimizer = torch.optim.AdamW(
            [{"params": group, "weight_decay": decay} for decay, group in groups.items()],
            lr=self.training.learning_rate,
            betas=(self.training.beta_1, self.training.beta_2),
            eps=self.training.epsilon,
        )
        self.parameters = [parameter for _, parameter in named]
        warmup = max(1, round(self.training.warmup * steps))

        def factor(step):
            return min((step + 1) / warmup, max(0.0, (steps - step) / max(1, steps - warmup)))

        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, factor)

    def step(self, inputs: dict[str, np.ndarray]) -> tuple:
        """Makes an update; returns the first three of `SCORES`, and the logits and targets of real tokens."""
        import torch
        from torch.nn import functional

        arrays = {name: torch.as_tensor(np.asarray(x)).to(self.device) for name, x in inputs.items()}
        ids, mask = arrays["token_ids"].long(), arrays["padding_mask"].long()
        options = {"attention_mask": mask}
        if "segment_ids" in arrays:
            options["token_type_ids"] = arrays["segment_ids"].long()
        places, labels, used = arrays["mask_positions"].long(), arrays["mask_labels"].long(), arrays["mask_weights"] > 0
        precision = {"dtype": torch.bfloat16, "enabled": self.training.dtype == "mixed_bfloat16"}
        with torch.autocast(self.device, **precision):
            hidden = self.generator.electra(ids, **options)[0]
            hidden = torch.gather(hidden, 1, places[..., None].expand(-1, -1, hidden.shape[-1]))
            head, decoder = self.generator.generator_predictions, self.generator.generator_lm_head
            logits = decoder(head(hidden)).float()[used]
        masked_loss = functional.cross_entropy(logits, labels[used])
        sampled = torch.distributions.Categorical(logits=logits.detach()).sample()
        rows = torch.arange(len(ids), device=self.device)[:, None].expand_as(places)[used]
        replaced, ids = torch.zeros_like(ids), ids.clone()
        replaced[rows, places[used]] = (sampled != labels[used]).long()
        ids[rows, places[used]] = sampled
        with torch.autocast(self.device, **precision):
            rtd = self.discriminator(ids, **options).logits
        rtd, targets = rtd.float()[mask > 0], replaced[mask > 0]
        rtd_loss = functional.binary_cross_entropy_with_logits(rtd, targets.float())
        (masked_loss + self.weight * rtd_loss).backward()
        torch.nn.utils.clip_grad_norm_(self.parameters, self.training.global_clipnorm)
        self.optimizer.step()
        self.schedule.step()
        self.optimizer.zero_grad()
        right = (logits.detach().argmax(-1) == labels[used]).float().mean()
        return masked_loss.detach(), right, rtd_loss.detach(), rtd.detach(), targets


def _run_transformers(argument: dict) -> Iterator[dict[str, float]]:
    import torch

    config, objective, data = _run_of(argument)
    peer = _Peer(config, Path(argument["preset"]), argument["steps"])
    transform = objective.transform(objective.model(config))  # this library's masks
    for first in range(0, argument["steps"], argument["every"]):
        batches = data(transform, first, argument["every"])
        made = [peer.step(batches[index][0]) for index in range(argument["every"])]
        means = {name: float(torch.stack(values).mean()) for name, values in zip(SCORES, list(zip(*made))[:3])}
        logits, targets = (torch.cat([step[part] for step in made[::10]]) for part in (3, 4))
        yield {**means, "rtd_auc": float(_auc(logits, targets))}


def _auc(logits, replaced):
    """By the ranks (Mann-Whitney)."""
    ranks = logits.argsort().argsort().double() + 1
    positive = int(replaced.sum())
    negative = len(replaced) - positive
    return (ranks[replaced > 0].sum() - positive * (positive + 1) / 2) / max(1, positive * negative)


def child(argument: dict) -> list[dict[str, float]]:
    """Makes a run."""
    runs = {"bertzoo": _run_bertzoo, "transformers": _run_transformers}
    curve = []
    for number, scores in enumerate(runs[argument["who"]](argument), start=1):
        curve.append({"step": number * argument["every"], **scores})
        print(argument["who"], json.dumps(curve[-1]), file=sys.stderr, flush=True)
    return curve


def main(arguments: list[str]) -> int:
    """Makes both runs and compares them."""
    parser = command_line("electra", __doc__)
    parser.add_argument("corpus")
    parser.add_argument("config")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--every", type=int, default=100)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    curves = {}
    with tempfile.TemporaryDirectory() as folder:
        shared = {"corpus": os.path.abspath(options.corpus), "config": options.config, "preset": f"{folder}/preset"}
        shared |= {"steps": options.steps, "every": options.every}
        for who in ("bertzoo", "transformers"):
            curves[who] = run_in_process("electra", {"who": who, **shared}, {})
            if isinstance(curves[who], str):
                sys.exit(f"{who}: {curves[who]}")
    if options.out:
        options.out.write_text(json.dumps(curves))
    print(f"{'steps':>7}" + "".join(f"{name:>24}" for name in SCORES) + "   (bertzoo, transformers)")
    for own, peer in zip(*curves.values()):
        print(f"{own['step']:>7}" + "".join(f"{own[name]:>14.4f}{peer[name]:>10.4f}" for name in SCORES))
    return 0
