"""A schema, the OpenBao role that issues credentials for it, and the credential delivered beside the order."""
