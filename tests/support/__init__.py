"""What several tests share: small models, data and runs."""
