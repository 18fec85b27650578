"""Tables that several rooms and processes read: arguments, policy keys, control verbs, errors."""
