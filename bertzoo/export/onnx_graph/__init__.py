"""Encoders and tasks as ONNX graphs, written from their weights."""
