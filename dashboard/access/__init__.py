"""Authorization: policy table, accounts, sessions, tokens, sign-in, the gate."""
