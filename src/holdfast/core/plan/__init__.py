"""Plans as values: the model, parsing, its JSON Schema, scope, schedule."""
