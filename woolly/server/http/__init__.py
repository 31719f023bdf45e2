"""http: a request read within its limits, guarded, logged and replied to; without a word about models."""
