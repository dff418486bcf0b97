"""From documents to a pre-trained model: packed rows of tokens, masking, and the training program."""
