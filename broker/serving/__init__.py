"""What both processes that accept connections share: certificates, origins, WebSocket frames."""
