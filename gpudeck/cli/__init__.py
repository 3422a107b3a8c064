"""Command gpudeck: its verbs, their arguments, their completion."""
