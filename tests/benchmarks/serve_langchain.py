"""Vectors by LangChain's two classes, as JSON: `python serve_langchain.py URL MODEL TEXT …`.

It runs in an environment with langchain-openai and langchain-huggingface, which need an older huggingface_hub.
"""

import json
import sys

from langchain_huggingface import HuggingFaceEndpointEmbeddings
from langchain_openai import OpenAIEmbeddings

url, model, *texts = sys.argv[1:]
# Without the check, which sends OpenAI's own token ids in place of texts.
clients = [
    OpenAIEmbeddings(base_url=f"{url}/v1", api_key="none", model=model, check_embedding_ctx_length=False),
    # Its argument `model` takes no address; the method of huggingface_hub that it calls does.
    HuggingFaceEndpointEmbeddings(model=model, model_kwargs={"model": url}, huggingfacehub_api_token="none"),
]
print(json.dumps([[client.embed_query(texts[0]), *client.embed_documents(texts)] for client in clients]))
