"""Tables of several packages and processes: arguments, policy keys, control verbs, errors."""
