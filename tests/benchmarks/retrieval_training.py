"""Training sparse and multi-vector encoders beside sentence-transformers: tokens a second, and the most memory held.

    python tests/benchmarks/run.py retrieval_training {splade,colbert} [--size base] [--batch 32] [--length 512] …

Random weights of BERT's architecture, random tokens, pairs of texts, in-batch negatives; SPLADE with its regularizers.
Rows are as long as sentences are (`--padding real`), or all of them as `--length` says. Contestants run one after
another, each in a process of its own: bertzoo's steps are those of `fit`, packed; sentence-transformers' are its loss
in a plain loop. On a GPU in bfloat16 (there autocast, as its Trainer), on a CPU in float32. Memory is that of the
device, on a CPU that of the process; `idle` is what was held before the first step.
"""

import tempfile
import time
from dataclasses import asdict

import numpy as np
from benchmarks.case import SIZES, VOCABULARIES, Case
from benchmarks.common import command_line, peak_memory, run_in_process, torch_device, torch_trainer

CONTESTANTS = ("bertzoo/jax", "bertzoo/torch", "bertzoo/tensorflow", "sentence-transformers")
COLUMNS, RATE = 2, 2e-5


def rows_of(case: Case) -> list[list[np.ndarray]]:
    """Token ids of each text of both columns."""
    rng = np.random.default_rng(1)
    columns = [rng.permutation(case.lengths()) for _ in range(COLUMNS)]
    return [[rng.integers(1000, VOCABULARIES["bert"], length) for length in lengths] for lengths in columns]


def write_checkpoint(directory: str, case: Case) -> None:
    """A masked language model of random weights, with as many positions as are read."""
    import transformers

    hidden, layers, heads, inner = SIZES[case.size]
    config = transformers.BertConfig(
        hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads, intermediate_size=inner
    )
    config.max_position_embeddings = max(512, case.length)
    transformers.BertForMaskedLM(config).save_pretrained(directory)
    vocabulary = {"[PAD]": 0, "[UNK]": 100, "[CLS]": 101, "[SEP]": 102, "[MASK]": 103}
    vocabulary |= {f"w{i}": i for i in range(VOCABULARIES["bert"]) if i not in vocabulary.values()}
    transformers.BertTokenizer(vocab=vocabulary).save_pretrained(directory)


def child(argument: dict) -> dict[str, float]:
    """Trains with one contestant; gives tokens a second and bytes."""
    case, kind = Case(**argument["case"]), argument["kind"]
    with tempfile.TemporaryDirectory() as directory:
        write_checkpoint(directory, case)
        train = train_bertzoo if case.contestant == "bertzoo" else train_peer
        return train(directory, case, kind, argument["remat"])


def train_bertzoo(directory: str, case: Case, kind: str, remat: bool) -> dict[str, float]:
    import bertzoo as bz
    from bertzoo.data.tuple_data import EncodedTuples
    from bertzoo.text.encoded import Encoded

    task = {"splade": bz.SparseEncoder, "colbert": bz.MultiVectorEncoder}[kind]
    policy = "mixed_bfloat16" if case.dtype == "bfloat16" else "float32"
    model = task.from_preset(directory, verbose=False, dtype=policy, max_length=case.length, remat=remat)
    model.compile(bz.AdamW(RATE))
    columns = [Encoded.from_rows(rows) for rows in rows_of(case)]
    targets = np.zeros(len(columns[0]), "float32")
    data = model.data.make_dataset(EncodedTuples(columns), targets, batch_size=case.batch_size, shuffle=True)
    idle = peak_memory(case.backend)
    model.fit(data, verbose=0)  # compiles
    started = time.perf_counter()
    model.fit(data, verbose=0)
    return _result(columns[0].lengths.sum() + columns[1].lengths.sum(), started, idle, case.backend)


def train_peer(directory: str, case: Case, kind: str, remat: bool) -> dict[str, float]:
    import sentence_transformers as st
    import torch

    device, rows = torch_device(), rows_of(case)
    if kind == "splade":
        from sentence_transformers.sparse_encoder import losses

        model = st.SparseEncoder(directory, device=device)
        loss = losses.SpladeLoss(model, losses.SparseMultipleNegativesRankingLoss(model), 3e-5, 5e-5)
    else:
        from sentence_transformers.multi_vector_encoder import losses

        model = st.MultiVectorEncoder(directory, device=device)
        loss = losses.MultiVectorMultipleNegativesRankingLoss(model)
    model.train()
    if remat:
        model.gradient_checkpointing_enable()
    step, idle = torch_trainer(model, RATE, 2 * case.steps), peak_memory("torch")

    def epoch() -> None:
        for begin in range(0, len(rows[0]), case.batch_size):
            features = [_padded(column[begin : begin + case.batch_size], device) for column in rows]
            with torch.autocast(device, torch.bfloat16, enabled=case.dtype == "bfloat16"):
                value = loss(features, None)
            (sum(value.values()) if isinstance(value, dict) else value).backward()
            step()
        if device == "cuda":
            torch.cuda.synchronize()

    epoch()
    started = time.perf_counter()
    epoch()
    return _result(sum(len(row) for column in rows for row in column), started, idle, "torch")


def _padded(rows: list[np.ndarray], device: str) -> dict:
    import torch

    lengths = np.array([len(row) for row in rows])
    mask = np.arange(lengths.max()) < lengths[:, None]
    ids = np.zeros(mask.shape, "int64")
    ids[mask] = np.concatenate(rows)
    arrays = {"input_ids": ids, "attention_mask": mask.astype("int64"), "token_type_ids": np.zeros_like(ids)}
    return {name: torch.tensor(array, device=device) for name, array in arrays.items()}


def _result(tokens: int, started: float, idle: int, backend: str) -> dict[str, float]:
    taken = time.perf_counter() - started
    return {"tokens_per_second": float(tokens / taken), "idle": float(idle), "peak": float(peak_memory(backend))}


def main(arguments: list[str]) -> None:
    parser = command_line("retrieval_training", __doc__)
    parser.add_argument("kind", choices=["splade", "colbert"])
    parser.add_argument("--size", choices=SIZES, default="base")
    parser.add_argument("--batch", type=int, default=32, help="pairs in a batch")
    parser.add_argument("--length", type=int, default=512, help="the longest text in tokens")
    parser.add_argument("--padding", choices=["none", "real"], default="none")
    parser.add_argument("--steps", type=int, default=10, help="batches of the timed epoch")
    parser.add_argument("--remat", action="store_true", help="blocks are computed anew in the backward pass")
    parser.add_argument("--contestants", nargs="*", choices=CONTESTANTS, default=["bertzoo/torch", CONTESTANTS[-1]])
    options = parser.parse_args(arguments)
    dtype = "bfloat16" if torch_device() == "cuda" else "float32"
    print(f"{options.kind}, {options.size}, {options.batch} pairs of texts of {options.length}, {dtype}")
    for contestant in options.contestants:
        who, _, backend = contestant.partition("/")
        backend = backend or "torch"
        case = Case(
            who, backend, "train", options.size, options.length, options.batch, options.padding, dtype, options.steps
        )
        argument = {"case": asdict(case), "kind": options.kind, "remat": options.remat}
        result = run_in_process("retrieval_training", argument, {"KERAS_BACKEND": backend})
        if isinstance(result, str):
            print(f"{contestant}: {result}")
            continue
        memory = f"{result['peak'] / 1e9:.2f} GB at most, {result['idle'] / 1e9:.2f} GB idle"
        print(f"{contestant}: {result['tokens_per_second']:,.0f} tokens/s; {memory}", flush=True)
