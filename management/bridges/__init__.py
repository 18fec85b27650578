"""The process `bridges`: it runs the shovels and the links of federation that are defined in the
broker (docs/shovels.md, docs/federation.md).

`process` follows the definitions over the control socket and reports states; `shovel` is one
shovel through its attempts; `ends` opens its connections, whose addresses `addresses` allows or
refuses; `amqp` and `web` carry messages to a broker or over HTTP; `rewrite` adds headers; `trial`
says what is wrong with a definition. `federation` follows the links, `federation_link` is one of
them, `federation_bindings` what it has at an upstream.
"""
