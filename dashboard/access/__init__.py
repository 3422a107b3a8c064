"""Who may do what: policy table, accounts, sessions, tokens, sign-in, the gate."""
