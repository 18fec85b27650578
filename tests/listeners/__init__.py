"""Every way in: TLS, client certificates, proxies, limits, settings read again."""
