"""The HTTP server of `bertzoo serve`: routes of text-embeddings-inference, OpenAI and Cohere on ONNX models.

Nothing here imports Keras: a server holds one Python process with ONNX Runtime and tokenizers.
"""
