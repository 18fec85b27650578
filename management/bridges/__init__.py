"""The process `bridges`: it runs the shovels that are defined in the broker (docs/shovels.md).

`process` follows the definitions over the control socket and reports states; `shovel` is one
shovel through its attempts; `ends` opens its connections, whose addresses `addresses` allows or
refuses; `amqp` and `web` carry messages to a broker or over HTTP; `rewrite` adds headers; `trial`
says what is wrong with a definition.
"""
