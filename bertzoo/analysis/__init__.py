"""Looking into models: what they hold, cost and know."""
