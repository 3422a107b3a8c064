"""Commands of a hub: hub, user, token, rules, history and the like."""
