"""A FastAPI server of sentence vectors by another library: `python serve_peers.py LIBRARY MODEL PORT`.

`fastembed` gets the ONNX file that PyTorch's exporter makes of the model, as the files that it downloads are made.
"""

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

THREADS = 2


def sentence_transformers(model: str) -> Callable[[list[str]], list]:
    import torch
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(THREADS)
    encoder = SentenceTransformer(model, device="cpu")
    return lambda texts: encoder.encode(texts, normalize_embeddings=True).tolist()


def fastembed(model: str) -> Callable[[list[str]], list]:
    from benchmarks.onnx import export_with_torch
    from fastembed import TextEmbedding
    from fastembed.common.model_description import ModelSource, PoolingType

    folder = tempfile.mkdtemp()
    export_with_torch(model, folder)
    TextEmbedding.add_custom_model(
        model="local/model",
        pooling=PoolingType.MEAN,
        normalization=True,
        sources=ModelSource(hf="local/model"),
        dim=384,
        model_file="model.onnx",
    )
    encoder = TextEmbedding("local/model", specific_model_path=folder, threads=THREADS)
    return lambda texts: [vector.tolist() for vector in encoder.embed(texts)]


def main(library: str, model: str, port: str) -> None:
    import uvicorn
    from fastapi import FastAPI
    from pydantic import BaseModel

    encode = {"sentence_transformers": sentence_transformers, "fastembed": fastembed}[library](model)
    app = FastAPI()

    class Request(BaseModel):
        inputs: str | list[str]

    @app.post("/embed")
    def embed(request: Request) -> list[list[float]]:
        return encode([request.inputs] if isinstance(request.inputs, str) else request.inputs)

    @app.get("/health")
    def health() -> None:
        return None

    uvicorn.run(app, port=int(port), log_level="warning", access_log=False)


if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])  # where benchmarks/onnx.py does not hide the package onnx
    main(*sys.argv[1:])
