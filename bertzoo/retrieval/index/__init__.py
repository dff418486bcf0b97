"""An index on disk: documents with dense vectors, sparse vectors or vectors of their tokens. NumPy in, NumPy out; any
model may make the vectors, and nothing here imports Keras."""
