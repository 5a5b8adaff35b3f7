"""Neural drafters: small networks that continue a target's text."""
