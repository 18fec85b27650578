"""The client side of the wire: `broker.client`."""
